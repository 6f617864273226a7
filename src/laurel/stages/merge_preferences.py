"""merge-preferences: shards of the pairs → preferences. Joins labels from several machines.

The result equals that of `annotate.run` for all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from laurel.data.captions import read_segments
from laurel.data.directory import output_directory
from laurel.data.labels import join_labels
from laurel.data.lineage import read_inputs
from laurel.envs import adapter_for
from laurel.errors import DataError
from laurel.params.stage_sections import AnnotateSections
from laurel.stages.annotate import SHARD, STAGE, described, log, write_unlabelled
from laurel.stages.label_quality import gold_of, join_missing, join_sample, join_success, setting_aside
from laurel.stages.label_verdict import conclude
from laurel.stages.parts import check_each_once


def run(captions: Path, shards: Sequence[Path], output: Path, **sections: Unpack[AnnotateSections]) -> None:
    """Join shards of the pairs, labelled by the main judge or by none.

    Args:
        captions: output of the caption stage, used by the shards.
        shards: outputs of `annotate.run` for each share, in any order.
        output: directory to write pairs.parquet and preferences.parquet into.

    Raises:
        RefusedLabelsError: nothing can be learned from the labels; they are kept beside `output`.
        DataError: a shard is missing, damaged or duplicated, or has other parameters or captions.
    """
    seed, annotate = sections["seed"], sections["annotate"]
    used, inputs = described(sections), {"captions": captions}
    adapter = adapter_for(sections["env"], with_action=sections["caption"].with_action)
    gold = gold_of(annotate, adapter)
    manifests = [(path, read_inputs(used, {**inputs, "shard": path})["shard"]) for path in shards]
    for path, manifest in manifests:
        number, count = manifest["params"]["shard"]
        if count != len(shards):
            raise DataError(f"{path}: is shard {number + 1} of {count}, so {count} are needed, not {len(shards)}.")
    held = [(path, [manifest["params"]["shard"][0]]) for path, manifest in manifests]
    check_each_once(held, range(len(shards)), lambda number: f"shard {number + 1}")
    ordered = sorted(manifests, key=lambda share: int(share[1]["params"]["shard"][0]))
    if not sections["judges"]:
        with output_directory(output, stage=STAGE, params=used, inputs=inputs) as out:
            write_unlabelled(seed, annotate, out)
            log(sections, inputs, out, ())
        return
    sources = {**inputs, "gold": gold.path} if gold else inputs
    with (
        output_directory(output, stage=STAGE, params=used, inputs=sources) as out,
        setting_aside(output, out, used, sources),
    ):
        statuses = join_labels([path for path, _ in ordered], out.path, SHARD)
        join_sample(seed, [(path, int(manifest["counts"]["pairs"])) for path, manifest in ordered], out)
        join_success([path for path, _ in ordered], out)
        join_missing([path for path, _ in ordered], out)
        for _, manifest in ordered:
            out.join(manifest)
        out.counts = {k: v for k, v in ordered[0][1]["counts"].items() if k.startswith("probe_")}  # of all alike
        out.notes += dict.fromkeys(note for _, manifest in ordered for note in manifest["notes"])
        refusals = conclude(seed, annotate, adapter, captions, statuses, read_segments(captions).texts, out)
        log(sections, inputs, out, refusals)
