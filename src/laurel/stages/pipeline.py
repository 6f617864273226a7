"""The stages of the pipeline: the sections of params, inputs and output of each.

The command line, DVC's graph and the tests use this table. A stage is imported only when it runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laurel.params import Params
    from laurel.training.preload import Work

PLACES = {
    "trajectories": "data/trajectories",
    "captions": "data/captions",
    "preferences": "data/preferences",
    "reward": "data/reward",
    "agents": "data/agents",
}
"""Output of a stage -> its default directory."""
JUDGES = "data/judges.json"
"""File in which `laurel judges` writes the judges that arms need, so that DVC annotates again only if these change."""
TRAINING_SECTIONS = ("seed", "env", "caption", "annotate", "arms", "rewards", "shaping", "agent", "tracking")
"""Sections of params that training agents depends on."""
WITHOUT_EFFECT = frozenset({"tracking", "pipeline"})
"""Sections that do not affect results."""


@dataclass(frozen=True)
class Stage:
    """A stage: its sections and inputs, its output, and the help of its command."""

    name: str
    summary: str
    inputs: tuple[str, ...]
    """Names of PLACES."""
    output: str
    example: str
    sections: tuple[str, ...]
    """Sections of params that its `run` takes by name, and `judges`, which follows from arms and rewards."""
    only: Mapping[str, str] = field(default_factory=dict)
    """Section -> its only key that affects the result."""
    work: Work | None = None
    """The work of its worker processes, if it always has some: they are imported while the stage itself is imported."""

    @property
    def module(self) -> str:
        return f"laurel.stages.{self.name.replace('-', '_')}"

    def run(self, params: Params, *, output: Path, **rest: Any) -> None:
        """Run the stage on its sections; `rest` has its inputs and further options."""
        if self.work:
            from laurel.pool import start_server
            from laurel.training.preload import preload

            start_server(preload(self.work, params.env, params.resolved_arms.values()))
        importlib.import_module(self.module).run(**self.given(params), **rest, output=output)

    def given(self, params: Params) -> dict[str, Any]:
        """Return the sections of its `run`, which are also those of the stage that merges its parts."""
        return {name: getattr(params, name) for name in self.sections}

    def used(self, params: Params) -> dict[str, Any]:
        """Return the parameters that its result depends on, as `Params.used` does."""
        used = params.used(*set(self.sections) - WITHOUT_EFFECT - self.only.keys())
        return used | {name: {key: params.used(name)[name][key]} for name, key in self.only.items()}


STAGES = (
    Stage(
        "collect",
        "Step many environments with a policy and keep every transition.",
        (),
        PLACES["trajectories"],
        "laurel collect --output data/trajectories",
        ("seed", "env", "collect", "tracking"),
    ),
    Stage(
        "caption",
        "Describe every transition in words, and count the distinct captions.",
        ("trajectories",),
        PLACES["captions"],
        "laurel caption --trajectories data/trajectories",
        ("env", "caption", "tracking"),
    ),
    Stage(
        "annotate",
        "Ask an annotator which of two captions is better.",
        ("captions",),
        PLACES["preferences"],
        "laurel annotate --captions data/captions",
        ("seed", "env", "caption", "annotate", "judges", "tracking"),
    ),
    Stage(
        "train-reward",
        "Make the rewards of the arms.",
        ("trajectories", "captions", "preferences"),
        PLACES["reward"],
        "laurel train-reward --preferences data/preferences",
        ("seed", "env", "caption", "annotate", "arms", "rewards", "agent", "tracking"),
        only={"agent": "seeds"},  # controls have a reward for each seed
    ),
    Stage(
        "train-agents",
        "Train agents of every arm with every seed.",
        ("captions", "preferences", "reward"),
        PLACES["agents"],
        "laurel train-agents --reward data/reward --output data/agents",
        TRAINING_SECTIONS,
        work="train",
    ),
    Stage(
        "evaluate",
        "Play fresh episodes, compare the arms, write the report.",
        ("trajectories", "captions", "preferences", "reward", "agents"),
        "reports",
        "laurel evaluate --agents data/agents --output reports",
        (*TRAINING_SECTIONS, "collect", "evaluate"),
        work="play",
    ),
)
STAGE = {stage.name: stage for stage in STAGES}
"""Name -> stage."""
