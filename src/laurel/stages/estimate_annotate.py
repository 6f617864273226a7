"""What the annotate stage would ask and what that would cost, from the captions alone: asks nobody, writes nothing."""

from __future__ import annotations

from pathlib import Path

from laurel.params import Params


def run(params: Params, captions: Path) -> str:
    """Say in lines of text what `annotate.run` would take.

    Args:
        params: sections seed, env, caption and annotate are used.
        captions: output of the caption stage.

    Raises:
        AnnotationError: the prompt does not go with the model.
        DataError: the captions or the store of answers cannot be read.
    """
    import numpy as np

    from laurel.data.captions import read_segments
    from laurel.data.lineage import read_inputs
    from laurel.envs import room_for
    from laurel.feedback.annotator import Question
    from laurel.feedback.pairs import sample_pairs
    from laurel.seeding import derive_seed

    read_inputs(params.dump("seed", "env", "caption", "annotate"), {"captions": captions})
    segments = read_segments(captions)
    rng = np.random.default_rng(derive_seed(params.seed, "annotate"))
    first, second = sample_pairs(segments.counts, params.annotate.n_pairs, params.annotate.sampler, rng)
    if params.annotate.annotator not in ("openai", "huggingface"):
        return (
            f"{len(first):,} pairs. The annotator {params.annotate.annotator} works in this process: "
            "no calls, no tokens, no cost.\n"
        )
    from laurel.feedback.estimate import estimate, in_lines

    room = room_for(params.env, with_action=params.caption.with_action)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    questions = [Question(segments.texts[a], segments.texts[b]) for a, b in pairs]
    return in_lines(estimate(params.annotate, room, questions), params.annotate)
