"""Rounds of pairs: the labels of one round decide the next, until the pairs run out or a stopping rule applies.

`uniform` and `frequency` without a stopping rule are one round of all pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from laurel.arrays import DoubleArray, IntArray
from laurel.feedback.pairs import UnaskedPairs, sample_pairs
from laurel.seeding import generator

if TYPE_CHECKING:
    from laurel.feedback.acquisition import Strategy
    from laurel.feedback.samplers import Sampler
    from laurel.feedback.stopping import StoppingRule
    from laurel.params.annotation import AnnotateParams

Round = tuple[IntArray, IntArray]
_HARDER = (
    "Pairs were chosen by annotate.sampler: {}, mostly uncertain ones: their rates of ties and of agreement differ "
    "from those of pairs drawn at random."
)


class OneRound:
    """All pairs at once, drawn at random."""

    notes: Sequence[str] = ()
    counts: dict[str, int]

    def __init__(self, counts: IntArray, params: AnnotateParams, seed: int) -> None:
        self.counts = {}
        self._round = sample_pairs(counts, params.n_pairs, params.drawn_by, np.random.default_rng(seed))
        self.at_most = len(self._round[0])

    def __iter__(self) -> Iterator[Round]:
        if self.at_most:
            yield self._round

    def observe(self, first: IntArray, second: IntArray, p_first: Sequence[float | None] | DoubleArray) -> None:
        """Do nothing: there is no other round."""


class Rounds:
    """Rounds of a sampler; each must be observed before the next is requested.

    Args:
        unasked: pairs that the sampler has not proposed; held-out pairs are drawn from it.
        stopping: checks the labels after each round; None: ask about all pairs.
        params: n_pairs, round_pairs, sampler and stop are used.
    """

    def __init__(
        self,
        sampler: Sampler,
        unasked: UnaskedPairs,
        stopping: StoppingRule | None,
        params: AnnotateParams,
        rng: np.random.Generator,
    ) -> None:
        from laurel.feedback.posterior import Labels

        self.at_most = min(params.n_pairs, len(unasked))
        self.counts = {"rounds": 0}
        self._sampler = sampler
        self._unasked = unasked
        self._stopping = stopping
        self._params = params
        self._rng = rng
        self._asked = self._judged = 0
        self._converged = False
        self._proposed = 0
        """Number of the round's pairs that the sampler chose; the following ones are held out."""
        self._labels, self._held_out = Labels.empty(), Labels.empty()

    def __iter__(self) -> Iterator[Round]:
        share = self._params.stop.held_out if self._stopping and self._params.stop.rule == "accuracy" else 0.0
        while self._asked < self.at_most and not self._converged:
            n = min(self._params.round_pairs, self.at_most - self._asked)
            held_out = self._unasked.draw(min(round(n * share), n - 1), self._rng)
            self._unasked.ask(*held_out)
            first, second = self._sampler.propose(n - len(held_out[0]))
            self._proposed = len(first)
            if not self._proposed:
                return
            self._asked += len(first) + len(held_out[0])
            self.counts["rounds"] += 1
            turned = self._rng.random(len(held_out[0])) < 0.5
            yield (
                np.concatenate([first, np.where(turned, held_out[1], held_out[0])]),
                np.concatenate([second, np.where(turned, held_out[0], held_out[1])]),
            )

    def observe(self, first: IntArray, second: IntArray, p_first: Sequence[float | None] | DoubleArray) -> None:
        """Observe the labels of the round, in its order; None and NaN mean no label."""
        self._judged += len(first)
        p = np.asarray(p_first, dtype=np.float64)
        proposed, rest = slice(0, self._proposed), slice(self._proposed, None)
        self._sampler.observe(first[proposed], second[proposed], p[proposed])
        if self._stopping is None:
            return
        self._labels = self._labels.with_more(first[proposed], second[proposed], p[proposed])
        self._held_out = self._held_out.with_more(first[rest], second[rest], p[rest])
        self._converged = self._stopping.after_round(self._labels, self._held_out)

    @property
    def notes(self) -> Sequence[str]:
        """Notes on how pairs were chosen, and when and why annotation ended."""
        notes = [_HARDER.format(self._params.sampler)] if self._params.adaptive else []
        if self._stopping is None or (self._judged < self.at_most and not self._converged):  # interrupted by the caller
            return notes
        reason = (
            f"annotate.stop.rule ({self._params.stop.rule}) was met"
            if self._converged
            else "annotate.n_pairs was reached"
            if self._judged >= self._params.n_pairs
            else "no pairs were left"
        )
        ended = f"Annotation ended after {self._judged:,} of at most {self.at_most:,} pairs, as {reason}"
        return [*notes, f"{ended}; {self._stopping.state}."]


def make_rounds(
    counts: IntArray, embed: Callable[[], npt.NDArray[np.floating]], params: AnnotateParams, seed: int
) -> OneRound | Rounds:
    """Make the rounds that the params name.

    Args:
        counts: (N,) how often each caption occurred.
        embed: returns the captions' embeddings (N, E), deterministically; called only if needed.
        params: n_pairs, round_pairs, sampler and stop are used.
        seed: all randomness derives from it.
    """
    if not params.in_rounds or len(counts) < 2:
        return OneRound(counts, params, seed)
    from laurel.feedback.samplers import AdaptiveSampler, DrawnSampler
    from laurel.feedback.stopping import StoppingRule

    unasked = UnaskedPairs(len(counts))
    stopping = None if params.stop.rule == "none" else StoppingRule(embed(), params.stop)
    sampler: Sampler
    if params.adaptive:
        sampler = AdaptiveSampler(_strategy(params, len(counts), embed), unasked, generator(seed, "sampler"))
    else:
        sampler = DrawnSampler(counts, params.n_pairs, params.sampler, unasked, np.random.default_rng(seed))
    return Rounds(sampler, unasked, stopping, params, generator(seed, "held-out"))


def _strategy(params: AnnotateParams, size: int, embed: Callable[[], npt.NDArray[np.floating]]) -> Strategy:
    from laurel.feedback.acquisition import Disagreement, Information, Nearby, Ranking

    if params.sampler == "ranking":
        return Ranking(size)
    strategies: dict[str, Callable[..., Strategy]] = {"disagreement": Disagreement, "nearby": Nearby}
    return strategies.get(params.sampler, Information)(embed())
