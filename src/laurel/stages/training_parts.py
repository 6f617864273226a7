"""Parts of one agent's training: rounds whose proposals were sampled separately, each in its own task on KFP."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.data.lineage import PARTS, read_inputs
from laurel.params.arms import used
from laurel.params.resolved_arms import Arm
from laurel.params.stage_sections import TrainingSections, arms_of
from laurel.stages.parts import check_each_once
from laurel.training.engines import steps_of
from laurel.training.task import steps_per_update

if TYPE_CHECKING:
    from laurel.training.arms import Part


def check_part(part: Part, sections: TrainingSections, inputs: Mapping[str, Path]) -> str:
    """Check the inputs of a part; return the stage that its output belongs to: the last part completes train-agents.

    Raises:
        DataError: as `read_inputs`, or proposals are missing or given twice.
    """
    described = used(sections)
    if part.begun is not None:
        read_inputs(described, {**inputs, "begun": part.begun})
        read = [read_inputs(described, {"begun": part.begun, "proposals": path}) for path in part.proposals]
        held = [
            (path, [manifest["proposals"]["params"]["shard"]])
            for path, manifest in zip(part.proposals, read, strict=True)
        ]
        shards = [arm.agent.settings.sampled_in for arm in arms_of(sections).values()]
        check_each_once(held, range(max(shards)) if held else (), lambda shard: f"proposals of shard {shard}")
    last = all(part.until * steps_per_update(arm.agent.settings) >= steps_of(arm) for arm in arms_of(sections).values())
    return "train-agents" if last else PARTS["begun"]


def copy_checkpoints(begun: Path, output: Path, places: Iterable[Path]) -> None:
    """Copy the checkpoints of the part before into an output, unless an earlier attempt has done so.

    Args:
        places: of agents, below the output.
    """
    for place in places:
        if not place.exists():
            copied = place.with_name(f".{place.name}.copying")
            shutil.rmtree(copied, ignore_errors=True)
            shutil.copytree(begun / place.relative_to(output), copied)
            copied.rename(place)


def steps_until(arm: Arm, part: Part | None) -> int:
    """Return the environment steps of an agent up to the end of a part, or of all its training."""
    return steps_of(arm) if part is None else min(steps_of(arm), part.until * steps_per_update(arm.agent.settings))
