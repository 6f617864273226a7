"""Draw pairs of segments, ask one judge about them, and write the labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from laurel.arrays import DoubleArray, FloatArray, IntArray
from laurel.console import tell
from laurel.data.captions import read_segments, read_vocabulary
from laurel.data.directory import Output
from laurel.data.labels import LabelWriter
from laurel.data.simulated import simulated_labels
from laurel.data.usage import Usage, added
from laurel.device import torch_device
from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Annotator, failures_of, judge, pairs_of, usage_of
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.annotators import make_annotator
from laurel.feedback.probe import ask, has_probe, load_probe
from laurel.feedback.rounds import OneRound, Rounds, make_rounds
from laurel.heap import heap_frozen
from laurel.llm.budget import Budget
from laurel.llm.encoder import load_encoder
from laurel.params.annotation import AnnotateParams
from laurel.progress import Advance
from laurel.seeding import derive_seed
from laurel.stages.label_quality import ask_about_success, keep_missing, keep_sample
from laurel.stages.label_verdict import conclude

Pairs = TypeVar("Pairs", "IntArray", range)
Failures = Mapping[str, Mapping[str, int]]
"""Annotator -> reason -> number of missing answers."""


class Meter:
    """Adds up the usage of the label sets of a run. What stopped runs used is only in the total, not in a further set's
    manifest.

    Args:
        out: the run's output.
    """

    def __init__(self, out: Output) -> None:
        self._out = self._part = out
        self._before: Usage = {}
        self._now: Usage = {}

    def begin(self, part: Output) -> None:
        """Begin a label set, written to `part`, which may be the run's output itself."""
        self._part, self._before, self._now = part, added(self._before, self._now), {}

    @contextmanager
    def reading(self, annotator: Annotator, budget: Budget) -> Iterator[None]:
        """Note what the annotator of the label set uses, also if the block fails."""
        budget.answered = lambda: self._out.use_soon(added(self._before, usage_of(annotator)))
        try:
            yield
        finally:
            self._now = usage_of(annotator)
            if self._part is not self._out:
                self._part.usage = self._now
            self._out.use(added(self._before, self._now))


@dataclass(frozen=True)
class PairLabelling:
    """Settings for drawing and judging a label set."""

    seed: int
    """Seed of the run."""
    label_set: int
    """Number of the label set."""
    annotate: AnnotateParams
    """The judge's."""
    adapter: EnvAdapter
    captions: Path
    shard: tuple[int, int] | None

    def run(self, budget: Budget, out: Output, meter: Meter) -> list[str]:
        """Judge the pairs and write the labels; return why they cannot be learned from, if so."""
        from laurel.progress import progress

        annotate, shard = self.annotate, self.shard
        segments = read_segments(self.captions)
        seed = derive_seed(self.seed, "annotate", *([str(self.label_set)] if self.label_set else []))
        rounds = make_rounds(segments.counts, cache(lambda: _embeddings(annotate, segments.texts)), annotate, seed)
        if rounds.at_most == 0:
            raise AnnotationError(
                f"{self.captions}: {len(segments)} distinct segment, so there are no pairs to judge. "
                "Collect more steps (collect.steps), use another policy, or name the actions (caption.with_action)."
            )
        texts = read_vocabulary(self.captions).texts
        annotator = make_annotator(annotate, self.adapter, seed, texts, budget=budget)
        with meter.reading(annotator, budget):
            probe = probed(annotate, self.adapter, annotator, out)
            if refusals := ask_about_success(self.seed, annotate, self.adapter, texts, annotator, out):
                return refusals
            before = failures_of(annotator)  # of questions with known answers, which are no labels
            n_pairs = len(_share(range(rounds.at_most), shard))
            with (
                LabelWriter(out.path, annotate.sampler, seed, annotator.name) as labels,
                progress(n_pairs, "annotate", "pairs") as advance,
                heap_frozen(),
            ):
                all_asked = _label(rounds, annotator, segments.texts, shard, labels, advance)
            statuses = labels.statuses
            keep_sample(self.seed, annotate, segments.texts, out, share=shard is not None)
            keep_missing(annotate, _since(before, failures_of(annotator)), out)
            if not all_asked:
                of_shard = f" of shard {shard[0] + 1} of {shard[1]}" if shard else ""
                judged = f"{sum(statuses.values()):,} of {n_pairs:,} pairs{of_shard} were judged"
                reason = (
                    f"the budget of {budget.reached} was reached"
                    if budget.reached
                    else "the others were not asked about"
                )
                cut_short = f"{judged}: {reason}."
                out.notes.append(cut_short)
            out.notes += [note for voter in annotate.voters for note in kind_of(voter).notes()]
            if annotator.simulated:
                out.notes.append(simulated_labels(annotator.name))
            out.notes += rounds.notes
            out.counts = {**rounds.counts, **probe}
            if shard:
                out.counts = {"pairs": sum(statuses.values()), **statuses, **out.counts}
                refusals = []
            else:
                refusals = conclude(self.seed, annotate, self.adapter, self.captions, statuses, segments.texts, out)
            if not all_asked and not refusals:
                tell(f"annotate: {cut_short}")
            return refusals


def _since(before: Failures, after: Failures) -> Failures:
    """Return annotator -> reason -> number of failures after `before`."""
    return {
        name: {
            reason: count
            for reason, total in reasons.items()
            if (count := total - before.get(name, {}).get(reason, 0)) > 0
        }
        for name, reasons in after.items()
    }


def _label(
    rounds: OneRound | Rounds,
    annotator: Annotator,
    texts: Sequence[str],
    shard: tuple[int, int] | None,
    labels: LabelWriter,
    advance: Advance,
) -> bool:
    """Judge all rounds, or a share of each, and write the labels; return whether all pairs were asked about."""
    for first, second in rounds:
        annotator.prepare(pairs_of(texts, _numbers(first), _numbers(second)))
        first, second = _share(first, shard), _share(second, shard)
        p_first = _label_round(first, second, annotator, texts, labels, advance)
        if p_first is None:
            return False
        rounds.observe(first, second, p_first)
    return True


def _label_round(
    first: IntArray,
    second: IntArray,
    annotator: Annotator,
    texts: Sequence[str],
    labels: LabelWriter,
    advance: Advance,
) -> DoubleArray | None:
    """Write the judgement of each pair; return probabilities, NaN for no label, or None if some were not asked."""

    def count(number: int, *, stored: bool) -> None:
        advance(number, free=stored)

    judgements = judge(annotator, pairs_of(texts, _numbers(first), _numbers(second)), count)
    p_first = np.full(len(first), np.nan)
    unasked = 0
    for i, (a, b, judgement) in enumerate(zip(_numbers(first), _numbers(second), judgements, strict=True)):
        if judgement.status == "unasked":
            unasked += 1
            continue
        labels.add(a, b, judgement)
        if judgement.p_first is not None:
            p_first[i] = judgement.p_first
    return None if unasked else p_first


def probed(annotate: AnnotateParams, adapter: EnvAdapter, annotator: Annotator, out: Output) -> dict[str, float]:
    """Ask the annotator the questions with known answers, if `annotate.probe` says so; return the score as counts.

    Raises:
        AnnotationError: its score is too low.
    """
    least = annotate.probe.min_score
    if least is None:
        return {}
    if not has_probe(adapter.env_id):
        out.notes.append(
            f"The annotator was not probed: there are no questions with known answers for {adapter.env_id}."
        )
        return {}
    score = ask(annotator, load_probe(adapter.env_id)).score
    if score.fraction < least:
        raise AnnotationError(
            f"The annotator knows too little about {adapter.env_id} to judge pairs. Of the questions with known "
            f"answers {score}, but at least {least:.0%} is required (annotate.probe.min_score). See `laurel annotate "
            "probe`; try another model or prompt."
        )
    return {"probe_score": score.fraction, "probe_right": score.right, "probe_questions": score.of}


def _embeddings(annotate: AnnotateParams, texts: Sequence[str]) -> FloatArray:
    """Encode the segments' texts with the encoder of the embedding annotator."""
    device = torch_device(annotate.embedding.device, "annotate.embedding.device")
    return load_encoder(annotate.embedding.model, device).encode(list(texts))


def _share(pairs: Pairs, shard: tuple[int, int] | None) -> Pairs:
    """Return one machine's share of a round's pairs, or all of them if there are no shards."""
    if shard is None:
        return pairs
    number, count = shard
    return pairs[len(pairs) * number // count : len(pairs) * (number + 1) // count]


def _numbers(array: IntArray) -> Iterator[int]:
    """Yield Python integers, with only a few of them in memory at a time."""
    for start in range(0, len(array), 4096):
        yield from array[start : start + 4096].tolist()
