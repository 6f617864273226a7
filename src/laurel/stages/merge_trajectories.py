"""merge-trajectories: the parts of a collection → trajectories. Joins trajectories from several machines.

The result equals that of `collect.run` for all parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from laurel.data.directory import output_directory
from laurel.data.lineage import check_adapter
from laurel.data.manifest import checked_manifest
from laurel.data.trajectories import join_trajectories
from laurel.envs import words_of
from laurel.errors import DataError
from laurel.params import CollectParams, EnvParams, TrackingParams
from laurel.params.fields import dumped
from laurel.stages.collect import PART, STAGE, track
from laurel.stages.parts import check_each_once
from laurel.tracking.tracker import Tracker


def run(
    seed: int, env: EnvParams, collect: CollectParams, tracking: TrackingParams, parts: Sequence[Path], output: Path
) -> None:
    """Join parts of a collection.

    Args:
        parts: outputs of `collect.run` for each part of `collect.parts`, in any order.
        output: directory to write shards of `laurel.data.trajectories` into.

    Raises:
        DataError: a part is missing, damaged or duplicated, or has other parameters.
    """
    sections = {"seed": seed, "env": env, "collect": collect}
    used = dumped(sections)
    manifests = [(path, checked_manifest(path, PART)) for path in parts]
    for path, manifest in manifests:
        if manifest["params"] != {**used, "part": manifest["params"]["part"]}:
            raise DataError(f"{path}: was collected with other parameters. Collect it again.")
        check_adapter(path, manifest, env.id, env.kwargs)
    ordered = sorted(manifests, key=lambda part: int(part[1]["params"]["part"]))
    held = [(path, [manifest["params"]["part"]]) for path, manifest in manifests]
    check_each_once(held, range(collect.parts), lambda number: f"part {number}")
    with output_directory(output, stage=STAGE, params=used) as out:
        out.counts = dict(join_trajectories([(path, manifest["counts"]) for path, manifest in ordered], out.path))
        out.adapter = words_of(env.id, env.kwargs)
        for _, manifest in ordered:
            out.join(manifest)
        out.notes += dict.fromkeys(note for _, manifest in ordered for note in manifest["notes"])
        sources = {f"part.{number}": path for number, (path, _) in enumerate(ordered)}
        with Tracker({**sections, "tracking": tracking}, STAGE, sources, out).stage_run() as tracked:
            if tracked:
                track(tracked, sections, out)
