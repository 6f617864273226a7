"""Estimate the questions of the annotate stage and their cost, from only the captions; asks and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from laurel.data.captions import read_segments, read_vocabulary
from laurel.data.lineage import read_inputs
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Pair
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.estimate import in_lines
from laurel.feedback.pairs import sample_pairs
from laurel.feedback.probe import has_probe, load_probe
from laurel.params import Params
from laurel.params.annotation import AnnotateParams
from laurel.seeding import derive_seed
from laurel.stages.label_quality import questions_about_success

NOTHING = "Nothing was asked, and nothing was written."


def run(params: Params, captions: Path) -> str:
    """Return the estimated cost of `annotate.run` as text.

    Args:
        params: sections seed, env, caption and annotate are used.

    Raises:
        AnnotationError: the prompt does not fit the model.
        DataError: the captions or the store of answers cannot be read.
    """
    asking = params.annotate
    read_inputs(params.dump("seed", "env", "caption", "annotate"), {"captions": captions})
    segments = read_segments(captions)
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    rng = np.random.default_rng(derive_seed(params.seed, "annotate"))
    sampler = "uniform" if asking.adaptive else asking.sampler
    first, second = sample_pairs(segments.counts, asking.n_pairs, sampler, rng)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    questions = [Pair(segments.texts[a], segments.texts[b]) for a, b in pairs]
    notes = []
    if asking.adaptive:
        notes.append(
            f"The sampler {asking.sampler} depends on labels: this estimate is for the same number of "
            f"uniformly drawn pairs."
        )
    if asking.feedback_seeds > 1 or asking.judges:
        notes.append(
            f"This is for the first of {asking.feedback_seeds} label sets of annotate.annotator alone; further sets "
            f"and judges cost about the same each."
        )
    if asking.stop.rule != "none":
        notes.append("This is for all pairs; annotate.stop may end annotation earlier.")
    if asking.probe.min_score is not None and has_probe(adapter.env_id):
        known = load_probe(adapter.env_id).asked
        questions += known
        notes.append(f"{len(known)} of the pairs are the probe's, asked first and in both orders.")
    success, why_not = questions_about_success(params.seed, asking, adapter, read_vocabulary(captions).texts)
    if success:
        questions += [one.question for one in success]
        notes.append(
            f"{len(success)} of the pairs ask first whether success at the task is better than another outcome."
        )
    notes += [why_not] if why_not else []
    return "\n".join([*notes, *_of_all(asking, adapter, questions), NOTHING]) + "\n"


def of_probe(params: Params) -> str:
    """Return the estimated cost of `laurel annotate probe` as text; errors as in `run`.

    Raises:
        AnnotationError: no probe is for the environment.
    """
    questions = load_probe(params.env.id).asked
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    return "\n".join([*_of_all(params.annotate, adapter, questions), NOTHING]) + "\n"


def _of_all(asking: AnnotateParams, adapter: EnvAdapter, questions: Sequence[Pair]) -> Iterator[str]:
    """Yield the estimated cost of each annotator."""
    for number, voter in enumerate(asking.voters):
        heading = f"member {number + 1} of {len(asking.voters)}\n" if len(asking.voters) > 1 else ""
        yield heading + _of_one(voter, adapter, questions)


def _of_one(asking: AnnotateParams, adapter: EnvAdapter, pairs: Sequence[Pair]) -> str:
    """Return the estimated cost of one annotator as text."""
    found = kind_of(asking).estimate(adapter, pairs)
    if found is None:
        return (
            f"{len(pairs):,} pairs. The annotator {asking.annotator} works in this process: "
            "no calls, no tokens, no cost.\n"
        )
    return in_lines(found, asking.budget)
