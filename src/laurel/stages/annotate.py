"""annotate: captions → preferences. Samples pairs of segments and has them judged."""

from __future__ import annotations

from pathlib import Path

from laurel.params import Params


def run(params: Params, captions: Path, output: Path) -> None:
    """Judge pairs of segments.

    Args:
        params: sections env, caption and annotate are used.
        captions: output of the caption stage.
        output: directory to write pairs.parquet and preferences.parquet into.

    Raises:
        AnnotationError: the annotator cannot be made, or too many pairs have no usable label.
        DataError: the captions are missing, damaged or of another environment.
    """
    import numpy as np

    from laurel.data.captions import read_segments
    from laurel.data.directory import output_directory
    from laurel.data.lineage import read_inputs
    from laurel.data.preferences import Pairs, Preferences, write_pairs, write_preferences
    from laurel.envs import room_for
    from laurel.errors import AnnotationError
    from laurel.feedback.annotator import Question, judge, make_annotator
    from laurel.feedback.pairs import sample_pairs
    from laurel.progress import progress
    from laurel.seeding import derive_seed
    from laurel.tracking import Tracker

    used = params.dump("seed", "env", "caption", "annotate")
    inputs = {"captions": captions}
    read_inputs(used, inputs)
    with output_directory(output, stage="annotate", params=used, inputs=inputs) as out:
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
        questions = [Question(segments.texts[a], segments.texts[b]) for a, b in zip(first, second, strict=True)]
        judgements = []
        with progress(len(first), "annotate", "pairs") as advance:
            for judgement in judge(annotator, questions):
                judgements.append(judgement)
                advance(1)
        pairs = Pairs(first, second, params.annotate.sampler, seed)
        preferences = Preferences.of(judgements, annotator.name)
        write_pairs(out.path, pairs)
        write_preferences(out.path, preferences)

        statuses = preferences.status_counts()
        failed = (statuses["parse_failed"] + statuses["api_failed"]) / len(first)
        if failed > params.annotate.max_failure_rate:
            raise AnnotationError(
                f"{failed:.0%} of {len(first)} pairs have no label because the annotator failed; at most "
                f"{params.annotate.max_failure_rate:.0%} are allowed (annotate.max_failure_rate)."
            )
        if statuses["ok"] == 0:
            raise AnnotationError(
                f"None of {len(first)} pairs has a preference ({statuses['tie']} ties, "
                f"{statuses['abstain']} abstained): there is nothing to learn. "
                "Lower the tie band or change goal and anti-goal (annotate.embedding)."
            )
        out.counts = {"pairs": len(first), "distinct_segments": len(segments), **statuses}
        if annotator.simulated:
            out.notes.append(f"The labels are simulated, not a language model's: {annotator.name}.")
        with Tracker(params, "annotate", inputs, out).stage_run() as tracked:
            if tracked:
                tracked.log_metrics({key: float(value) for key, value in out.counts.items()})
                tracked.log_directory(out.path, "preferences")
