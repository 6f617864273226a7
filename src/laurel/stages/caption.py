"""caption: trajectories → captions. Describes every step in words, and lists the distinct captions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.data.background import read_ahead
from laurel.errors import DataError
from laurel.params import CaptionParams, EnvParams, TrackingParams
from laurel.params.fields import dumped
from laurel.tracking.run import Run

if TYPE_CHECKING:
    from laurel.data.directory import Output
    from laurel.envs.base import EnvAdapter, Transitions

BATCH = 2**14
"""Number of steps that are captioned at a time, which bounds the adapter's memory."""


def run(env: EnvParams, caption: CaptionParams, tracking: TrackingParams, trajectories: Path, output: Path) -> None:
    """Caption every step, one shard at a time.

    Args:
        output: directory to write the files of `laurel.data.captions` into.

    Raises:
        DataError: the trajectories are missing, damaged or of another environment.
    """
    import numpy as np

    from laurel.data.captions import (
        CaptionTally,
        Segments,
        SegmentTally,
        write_captions,
        write_segments,
        write_vocabulary,
    )
    from laurel.data.directory import output_directory
    from laurel.data.lineage import check_adapter
    from laurel.data.manifest import checked_manifest
    from laurel.data.trajectories import count_of, read_metadata, read_trajectories
    from laurel.envs import adapter_for, words_of
    from laurel.envs.captioner import Captioner
    from laurel.progress import progress
    from laurel.tracking.tracker import Tracker

    manifest = checked_manifest(trajectories, "collect")
    collected = read_metadata(trajectories)["env"]
    if (collected["id"], collected["kwargs"]) != (env.id, env.kwargs):
        raise DataError(
            f"{trajectories}: holds steps of {collected['id']} {collected['kwargs'] or ''}, but env is "
            f"{env.id} {env.kwargs or ''}. Run laurel collect again."
        )
    check_adapter(trajectories, manifest, env.id, env.kwargs)
    sections = {"env": env, "caption": caption}
    inputs = {"trajectories": trajectories}
    total = count_of(trajectories, manifest, "transitions")
    with output_directory(output, stage="caption", params=dumped(sections), inputs=inputs) as out:
        out.adapter = words_of(env.id, env.kwargs)
        adapter = adapter_for(env, with_action=caption.with_action)
        captioner = Captioner(adapter, enumerate_events=caption.enumerate)
        steps, windows = CaptionTally(), SegmentTally(caption.segment_length)
        shards = 0
        with progress(total, "caption", "steps") as advance:
            for transitions, position in read_ahead(read_trajectories(trajectories)):
                rows = range(0, len(transitions), BATCH)
                ids = np.concatenate([captioner.ids(transitions[row : row + BATCH]) for row in rows])
                if caption.with_action and not shards and not _name_action(adapter, env, transitions[:BATCH]):
                    out.notes.append(
                        f"caption.with_action has no effect: captions of {env.id} are the same without it. An adapter "
                        "has to name the action itself, where its `with_action` is true."
                    )
                steps.update(position, ids)
                if windows.length > 1:
                    windows.update(position, ids)
                write_captions(out.path, shards, position, ids)
                shards += 1
                advance(len(ids))
        vocabulary = steps.vocabulary(captioner.texts)
        segments, dropped = Segments.units(vocabulary), 0
        if windows.length > 1:
            segments, dropped = windows.segments(captioner.texts, caption.max_segments)
        write_vocabulary(out.path, vocabulary)
        write_segments(out.path, segments)
        out.counts = {
            "transitions": steps.transitions,
            "captioned": steps.captioned,
            "nothing_to_say": steps.transitions - steps.captioned,
            "distinct": steps.distinct,
            "listed_only": len(vocabulary) - steps.distinct,
            "segments": len(segments),
            "dropped_segments": dropped,
            "fraction_unique": steps.distinct / max(steps.captioned, 1),
            "shards": shards,
        }
        out.notes += _notes(env, caption, adapter, out.counts)
        with Tracker({**sections, "tracking": tracking}, "caption", inputs, out).stage_run() as tracked:
            if tracked:
                track(tracked, sections, out)


def _notes(env: EnvParams, caption: CaptionParams, adapter: EnvAdapter, counts: Mapping[str, Any]) -> list[str]:
    """Return notes on captions made from the observation space alone, on dropped segments, and on steps without
    captions.
    """
    notes = []
    if adapter.generic:
        notes.append(
            f"{env.id} has no adapter, so its captions are made from the observation space alone. "
            f"{adapter.left_out}".rstrip()
        )
    if dropped := counts["dropped_segments"]:
        notes.append(
            f"{dropped:,} of {dropped + counts['segments']:,} distinct segments were dropped, the rarest ones "
            f"(caption.max_segments is {caption.max_segments:,})."
        )
    if not counts["captioned"]:
        notes.append(f"None of {counts['transitions']:,} steps has a caption.")
    return notes


def _name_action(adapter: EnvAdapter, env: EnvParams, transitions: Transitions) -> bool:
    """Whether captions of these steps, or listed ones, differ from those that do not name the action."""
    from laurel.envs import adapter_for

    with_action, without_action = (
        {describer.describe(event) for event in {*describer.encode(transitions).tolist(), *describer.events()}}
        for describer in (adapter, adapter_for(env))
    )
    return with_action != without_action


def track(run: Run, sections: Mapping[str, Any], out: Output) -> None:
    """Log the number of steps with a caption, and the vocabulary."""
    from laurel.data.captions import VOCABULARY

    run.log_metrics({key: float(value) for key, value in out.counts.items()})
    run.log_file(out.path / VOCABULARY)
