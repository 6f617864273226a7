"""annotate: captions → preferences. Samples pairs of segments and has them judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        output: directory to write pairs.parquet, preferences.parquet, quality.json and more into.
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
    from laurel.stages.label_quality import gold_of, keep_sample

    used = params.dump("seed", "env", "caption", "annotate")
    inputs = {"captions": captions}
    read_inputs(used, inputs)
    stage = SHARD if shard else STAGE
    kept = responses if params.annotate.keeps_responses else None
    room = room_for(params.env, with_action=params.caption.with_action)
    gold = gold_of(params, room)  # what is wrong with it is said before anything is paid for
    sources = {**inputs, "gold": gold.path} if gold and not shard else inputs
    made_with = {**used, "shard": shard} if shard else used
    with (
        mirrored(params.annotate.language_model.responses, kept),
        output_directory(output, stage=stage, params=made_with, inputs=sources) as out,
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
        keep_sample(params, segments.texts, out, share=shard is not None)
        out.usage = annotator.usage
        if annotator.simulated:
            out.notes.append(f"The labels are simulated, not a language model's: {annotator.name}.")
        if shard:
            out.counts = {"pairs": sum(labels.statuses.values()), **labels.statuses}
        else:
            conclude(params, inputs, labels.statuses, segments.texts, out)


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


def conclude(
    params: Params, inputs: dict[str, Path], statuses: Mapping[str, int], texts: Sequence[str], out: Output
) -> None:
    """Refuse labels that nothing can be learned from; count, measure and log those of all pairs.

    Args:
        params: sections seed, env, caption and annotate are used.
        inputs: what the labels were made from.
        statuses: how many pairs have each status.
        texts: what the segments say that pairs were drawn from.
        out: where the labels are.

    Raises:
        AnnotationError: too many pairs have no label because the annotator failed, none has a preference, or a gate
            does not let the labels pass.
    """
    from laurel.stages.label_quality import assess
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
    out.counts = {"pairs": pairs, "distinct_segments": len(texts), **statuses}
    assess(params, texts, out)
    with Tracker(params, STAGE, inputs, out).stage_run() as tracked:
        if tracked:
            track(tracked, {**out.counts, **out.usage}, out.path)


def track(run: Run, counts: dict[str, int], path: Path) -> None:
    """Log how many pairs got which label, how far labels can be trusted, and the labels."""
    from laurel.data.directory import read_json
    from laurel.data.quality import QUALITY, metrics

    run.log_metrics({**{key: float(value) for key, value in counts.items()}, **metrics(read_json(path / QUALITY))})
    run.log_directory(path, "preferences")
