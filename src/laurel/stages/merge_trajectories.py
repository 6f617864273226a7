"""merge-trajectories: the parts of a collection → trajectories. Joins what was collected on several machines.

The result is what `collect.run` gives for all parts at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laurel.data.directory import output_directory
from laurel.data.manifest import checked_manifest
from laurel.data.trajectories import join_trajectories
from laurel.errors import DataError
from laurel.params import CollectParams, EnvParams, TrackingParams
from laurel.params.fields import dumped
from laurel.stages.collect import PART, STAGE, track
from laurel.tracking.tracker import Tracker


def run(
    seed: int, env: EnvParams, collect: CollectParams, tracking: TrackingParams, parts: Sequence[Path], output: Path
) -> None:
    """Join parts of a collection.

    Args:
        parts: outputs of `collect.run` for each part of `collect.parts`, in any order.
        output: directory to write shards of `laurel.data.trajectories` into.

    Raises:
        DataError: a part is missing, damaged, there twice, or of other parameters.
    """
    sections = {"seed": seed, "env": env, "collect": collect}
    used = dumped(sections)
    found: dict[int, tuple[Path, dict[str, Any]]] = {}
    for path in parts:
        manifest = checked_manifest(path, PART)
        number = manifest["params"]["part"]
        if manifest["params"] != {**used, "part": number}:
            raise DataError(f"{path}: was collected with other parameters. Collect it again.")
        if number in found:
            raise DataError(f"{path}: holds part {number}, as {found[number][0]} does: give only one of the two.")
        found[number] = path, manifest
    if missing := [str(number) for number in range(collect.parts) if number not in found]:
        raise DataError(f"Part {', '.join(missing)} of {collect.parts} is missing. Collect it first.")
    ordered = [found[number] for number in range(collect.parts)]
    with output_directory(output, stage=STAGE, params=used) as out:
        out.counts = dict(join_trajectories([(path, manifest["counts"]) for path, manifest in ordered], out.path))
        out.notes += dict.fromkeys(note for _, manifest in ordered for note in manifest["notes"])
        sources = {f"part.{number}": path for number, (path, _) in enumerate(ordered)}
        with Tracker({**sections, "tracking": tracking}, STAGE, sources, out).stage_run() as tracked:
            if tracked:
                track(tracked, out.counts)
