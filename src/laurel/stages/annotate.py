"""annotate: captions → preferences. Samples pairs of segments and has them judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.errors import AnnotationError
from laurel.params import Params

if TYPE_CHECKING:
    from laurel.data.directory import Output
    from laurel.envs.base import IntArray
    from laurel.tracking import Run

STAGE, SHARD = "annotate", "annotate-shard"


def run(
    params: Params,
    captions: Path,
    output: Path,
    shard: tuple[int, int] | None = None,
    responses: Path | None = None,
) -> None:
    """Judge pairs of segments.

    Args:
        params: sections seed, env, caption and annotate are used.
        captions: output of the caption stage.
        output: directory to write pairs.parquet and preferences.parquet into.
        shard: (number, of how many): judge this share of the pairs alone; `merge_preferences` joins them.
        responses: folder in which a language model's answers are kept beside the store of this machine, whose disk
            goes with it; None where it stays.

    Raises:
        AnnotationError: the annotator cannot be made, or too many pairs have no usable label.
        DataError: the captions are missing, damaged or of another environment.
    """
    import numpy as np

    from laurel.data.captions import read_segments
    from laurel.data.directory import output_directory
    from laurel.data.labels import LabelWriter
    from laurel.data.lineage import read_inputs
    from laurel.envs import room_for
    from laurel.feedback.annotator import judge, make_annotator, questions_about
    from laurel.feedback.pairs import sample_pairs
    from laurel.llm.mirror import mirrored
    from laurel.progress import progress
    from laurel.seeding import derive_seed

    used = params.dump("seed", "env", "caption", "annotate")
    inputs = {"captions": captions}
    read_inputs(used, inputs)
    stage = SHARD if shard else STAGE
    kept = responses if params.annotate.keeps_responses else None
    with (
        mirrored(params.annotate.language_model.responses, kept),
        output_directory(output, stage=stage, params={**used, "shard": shard} if shard else used, inputs=inputs) as out,
    ):
        segments = read_segments(captions)
        seed = derive_seed(params.seed, "annotate")
        first, second = sample_pairs(
            segments.counts, params.annotate.n_pairs, params.annotate.sampler, np.random.default_rng(seed)
        )
        if len(first) == 0:
            raise AnnotationError(
                f"{captions}: {len(segments)} distinct segment, so there is no pair to judge. "
                "Collect more steps (collect.steps) or use another policy."
            )
        room = room_for(params.env, with_action=params.caption.with_action)
        annotator = make_annotator(params.annotate, room, seed)
        rounds = [(first, second)]
        with (
            LabelWriter(out.path, params.annotate.sampler, seed, annotator.name) as labels,
            progress(sum(len(_share(first, shard)) for first, _ in rounds), "annotate", "pairs") as advance,
        ):
            for first, second in rounds:
                annotator.prepare(questions_about(segments.texts, _numbers(first), _numbers(second)))
                first, second = _share(first, shard), _share(second, shard)
                questions = questions_about(segments.texts, _numbers(first), _numbers(second))
                judgements = judge(annotator, questions)
                for a, b, judgement in zip(_numbers(first), _numbers(second), judgements, strict=True):
                    labels.add(a, b, judgement)
                    advance(1)
        out.usage = annotator.usage
        if annotator.simulated:
            out.notes.append(f"The labels are simulated, not a language model's: {annotator.name}.")
        if shard:
            out.counts = {"pairs": sum(labels.statuses.values()), **labels.statuses}
        else:
            conclude(params, inputs, labels.statuses, len(segments), out)


def _share(pairs: IntArray, shard: tuple[int, int] | None) -> IntArray:
    """Return what one of several is to judge of a round's pairs; all where nobody shares."""
    if shard is None:
        return pairs
    number, count = shard
    return pairs[len(pairs) * number // count : len(pairs) * (number + 1) // count]


def _numbers(array: IntArray) -> Iterator[int]:
    """Yield Python's integers, a few of them at a time in memory."""
    for start in range(0, len(array), 4096):
        yield from array[start : start + 4096].tolist()


def conclude(params: Params, inputs: dict[str, Path], statuses: Mapping[str, int], distinct: int, out: Output) -> None:
    """Refuse labels that nothing can be learned from; count and log those of all pairs.

    Args:
        params: section annotate is used.
        inputs: what the labels were made from.
        statuses: how many pairs have each status.
        distinct: number of segments to draw pairs from.
        out: where the labels are.

    Raises:
        AnnotationError: too many pairs have no label because the annotator failed, or none has a preference.
    """
    from laurel.tracking import Tracker

    pairs = sum(statuses.values())
    failed = (statuses["parse_failed"] + statuses["api_failed"]) / pairs
    if failed > params.annotate.max_failure_rate:
        raise AnnotationError(
            f"{failed:.0%} of {pairs} pairs have no label because the annotator failed; at most "
            f"{params.annotate.max_failure_rate:.0%} are allowed (annotate.max_failure_rate)."
        )
    if statuses["ok"] == 0:
        raise AnnotationError(
            f"None of {pairs} pairs has a preference ({statuses['tie']} ties, "
            f"{statuses['abstain']} abstained): there is nothing to learn. "
            "Lower the tie band or change goal and anti-goal (annotate.embedding)."
        )
    out.counts = {"pairs": pairs, "distinct_segments": distinct, **statuses}
    with Tracker(params, STAGE, inputs, out).stage_run() as tracked:
        if tracked:
            track(tracked, {**out.counts, **out.usage}, out.path)


def track(run: Run, counts: dict[str, int], path: Path) -> None:
    """Log how many pairs got which label, and the labels."""
    run.log_metrics({key: float(value) for key, value in counts.items()})
    run.log_directory(path, "preferences")
