"""merge-agents: agents of each branch → agents of all. Joins agents that were trained on several machines.

A branch is an arm with some of the seeds. The result equals that of `train_agents.run` with all of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from laurel.errors import ParamsError
from laurel.params.arms import ArmParams, used
from laurel.params.stage_sections import TrainingSections, arms_of
from laurel.seeding import seed_folder
from laurel.stages.parts import check_each_once

MAX_BRANCHES = 100
"""Maximum number of outputs of a loop that Vertex AI can collect."""


@dataclass(frozen=True)
class Branch:
    """An arm and some of the seeds, trained in one place."""

    arm: str
    seeds: tuple[int, ...]

    @staticmethod
    def read(content: Mapping[str, Any]) -> Branch:
        """Parse the output of `write`; its numbers may have become floats in between."""
        return Branch(content["arm"], tuple(int(seed) for seed in content["seeds"]))

    def write(self) -> dict[str, Any]:
        return {"arm": self.arm, "seeds": list(self.seeds)}

    def narrow(self, sections: Mapping[str, Any]) -> dict[str, Any]:
        """Narrow sections of params, arms and agent among them, to this branch."""
        arms = tuple(arm for arm in sections["arms"] if arm.name == self.arm)
        return {**sections, "arms": arms, "agent": sections["agent"].model_copy(update={"seeds": self.seeds})}

    def __str__(self) -> str:
        return f"{self.arm} {','.join(map(str, self.seeds))}"


def branches(arms: Sequence[ArmParams], seeds: Sequence[int], seeds_per_step: int | None) -> list[Branch]:
    """Divide the training of agents; `seeds_per_step` None puts all seeds of an arm into one branch.

    There is at least one branch, possibly without agents: KFP cannot collect the outputs of an empty loop.

    Raises:
        ParamsError: there would be more branches than can be collected.
    """
    size = seeds_per_step or len(seeds)
    names = _trained(arms)
    divided = [tuple(seeds[start : start + size]) for start in range(0, len(seeds), size)]
    if len(names) * len(divided) > MAX_BRANCHES:
        enough = -(-len(seeds) // (MAX_BRANCHES // len(names)))
        raise ParamsError(
            f"pipeline.seeds_per_step is {size}, which makes {len(names) * len(divided)} branches of {len(names)} arms "
            f"and {len(seeds)} seeds, but at most {MAX_BRANCHES} can be collected. Set it to {enough} or more."
        )
    return [Branch(arm, group) for arm in names for group in divided]


def _trained(arms: Sequence[ArmParams]) -> list[str]:
    return [arm.name for arm in arms if arm.trained] or [arms[0].name]


def run(
    captions: Path,
    preferences: Path,
    reward: Path,
    shards: Sequence[Path],
    output: Path,
    **sections: Unpack[TrainingSections],
) -> None:
    """Join agents that were trained branch by branch.

    Args:
        captions: output of the caption stage, used by the shards.
        preferences: output of the annotate stage, used by the shards.
        reward: output of the train-reward stage, used by the shards.
        shards: outputs of the train-agents stage, one per branch, in any order.
        output: directory to write <arm>/seed-<n>/ into.

    Raises:
        DataError: a shard is missing, damaged or duplicated, or has other parameters or inputs.
    """
    from laurel.data.asked import ASKED
    from laurel.data.directory import output_directory
    from laurel.data.lineage import read_inputs
    from laurel.rewards.method import RewardContext
    from laurel.stages.training_notes import notes_on_arms, notes_on_questions, notes_on_training
    from laurel.tracking.agents import track_agents
    from laurel.tracking.judgements import log_asked
    from laurel.tracking.tracker import Tracker
    from laurel.training.engines import steps_of
    from laurel.training.task import Agent

    described, arms_by_name, seeds = used(sections), arms_of(sections), sections["agent"].seeds
    context = RewardContext(sections["env"], sections["caption"], sections["annotate"], sections["rewards"])
    adapter = context.adapter
    inputs = {"captions": captions, "preferences": preferences, "reward": reward}
    manifests = {path: read_inputs(described, {**inputs, "agents": path})["agents"] for path in shards}
    held = {path: _branch(manifest) for path, manifest in manifests.items()}
    check_each_once(
        [(path, [(branch.arm, seed) for seed in branch.seeds]) for path, branch in held.items()],
        [(arm, seed) for arm in _trained(sections["arms"]) for seed in seeds],
        lambda agent: f"agents of {agent[0]} with seed {agent[1]}",
    )
    with output_directory(output, stage="train-agents", params=described, inputs=inputs) as out:
        places: list[Agent] = []
        untracked: list[Agent] = []
        left_out: list[str] = []  # notes on arms without agents come first, as in an undivided stage
        notes: list[str] = []
        for path, branch in sorted(held.items(), key=lambda item: list(arms_by_name).index(item[1].arm)):
            trained = [(arms_by_name[branch.arm], seed, path / branch.arm / seed_folder(seed)) for seed in branch.seeds]
            trained = [agent for agent in trained if agent[2].is_dir()]  # none if the arm was left out
            for arm, seed, place in trained:
                shutil.copytree(place, out.path / arm.name / seed_folder(seed))
            places += trained
            if manifests[path]["mlflow_run_id"] is None:
                untracked += trained
                out.asked += manifests[path][ASKED]
            out.join(manifests[path])
            out.agent_runs |= manifests[path].get("mlflow_agent_runs", {})
            arms = [arms_by_name[branch.arm]] if trained else []
            of_this = [*notes_on_arms(arms, context, adapter), *notes_on_training(trained)]
            (notes if trained else left_out).extend(note for note in manifests[path]["notes"] if note not in of_this)
        arms = list({arm.name: arm for arm, *_ in places}.values())
        of_all = [*notes_on_arms(arms, context, adapter), *notes, *notes_on_training(places)]
        out.notes += dict.fromkeys([*left_out, *of_all])
        out.run_notes += notes_on_questions(places)
        out.counts = {
            "arms": len(arms),
            "seeds": len(seeds),
            "steps_each": max((steps_of(arm) for arm, _, _ in places), default=0),
        }
        trained_in = {f"{branch.arm}.{branch.seeds[0]}": path for path, branch in held.items()}
        tracker = Tracker(sections, "merge-agents", {**inputs, **trained_in}, out)
        with tracker.stage_run() as tracked:
            if tracked:
                tracked.log_metrics({key: float(value) for key, value in out.counts.items()})
                track_agents(tracker, tracked, untracked)
                log_asked(tracked, out.asked)


def _branch(manifest: Mapping[str, Any]) -> Branch:
    used = manifest["params"]
    return Branch(",".join(used["arms"]), tuple(used["agent"]["seeds"]))
