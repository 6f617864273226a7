"""merge-agents: agents of each arm → agents of all. Joins what was trained on several machines.

The result is what `train_agents.run` gives with all arms at once. Knows nothing about who trains the shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laurel.errors import DataError
from laurel.params import Params

UNTRAINED = "random_policy"
"""The arm that has no agents."""


def arms_to_train(params: Params) -> list[str]:
    """Return the arms whose agents are trained, a shard each.

    There is at least one, even where it has no agents: a loop over nothing has nothing to collect.
    """
    return [arm for arm in params.agent.arms if arm != UNTRAINED] or [UNTRAINED]


def narrow(params: Params, arm: str) -> Params:
    """Narrow the parameters to one arm."""
    return params.model_copy(update={"agent": params.agent.model_copy(update={"arms": (arm,)})})


def run(params: Params, captions: Path, preferences: Path, reward: Path, shards: Sequence[Path], output: Path) -> None:
    """Join agents that were trained arm by arm.

    Args:
        params: of the whole run; what train-agents uses is used.
        captions: output of the caption stage, as the shards had it.
        preferences: output of the annotate stage, as the shards had it.
        reward: output of the train-reward stage, as the shards had it.
        shards: outputs of the train-agents stage, one for each arm of `arms_to_train(params)`, in any order.
        output: directory to write <arm>/seed-<n>/ into.

    Raises:
        DataError: a shard is missing, damaged, there twice, or of other parameters or inputs.
    """
    import shutil

    from laurel.data.directory import output_directory
    from laurel.data.lineage import read_inputs
    from laurel.tracking import Tracker

    used = params.dump("seed", "env", "caption", "annotate", "reward", "shaping", "agent")
    used["agent"].pop("workers")
    inputs = {"captions": captions, "preferences": preferences, "reward": reward}
    manifests = {path: read_inputs(used, {**inputs, "agents": path})["agents"] for path in shards}
    places = _by_arm(params, manifests)
    with output_directory(output, stage="train-agents", params=used, inputs=inputs) as out:
        for arm, place in places.items():
            if (place / arm).is_dir():  # not where the arm was left out
                shutil.copytree(place / arm, out.path / arm)
        trained = [place for place in places.values() if manifests[place]["counts"]["arms"]]
        left_out = [place for place in places.values() if place not in trained]
        notes = [note for place in trained for note in manifests[place]["notes"]]
        notes = sorted(note for place in left_out for note in manifests[place]["notes"]) + notes  # as in a whole stage
        out.notes += dict.fromkeys(notes)
        out.counts = {"arms": len(trained), "seeds": len(params.agent.seeds), "steps_each": params.agent.steps}
        with Tracker(params, "merge-agents", {**inputs, **places}, out).stage_run() as tracked:
            if tracked:
                tracked.log_metrics({key: float(value) for key, value in out.counts.items()})


def _by_arm(params: Params, manifests: Mapping[Path, dict[str, Any]]) -> dict[str, Path]:
    """Return arm -> shard in the order of the parameters; there must be just one for each."""
    wanted = arms_to_train(params)
    found: dict[str, Path] = {}
    for path, manifest in manifests.items():
        arms, seeds = (manifest["params"]["agent"][key] for key in ("arms", "seeds"))
        if len(arms) != 1 or arms[0] not in wanted or seeds != list(params.agent.seeds):
            raise DataError(
                f"{path}: holds agents of {', '.join(arms)} with seeds {seeds}, but one of {', '.join(wanted)} with "
                f"seeds {list(params.agent.seeds)} is needed."
            )
        if arms[0] in found:
            raise DataError(f"{path}: holds agents of {arms[0]}, as {found[arms[0]]} does. Name one of the two.")
        found[arms[0]] = path
    missing = [arm for arm in wanted if arm not in found]
    if missing:
        raise DataError(f"No shard holds the agents of {', '.join(missing)}. Train them, then merge again.")
    return {arm: found[arm] for arm in wanted}
