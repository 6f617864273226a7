"""Pairs whose answer is known, to tune a judge on or to test one: by an environment's hand-written progress, by a
person's gold labels, or by the labels that another judge gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from laurel.errors import AnnotationError
from laurel.feedback.annotator import Pair
from laurel.feedback.rates import grouped_rate, rate
from laurel.seeding import generator

if TYPE_CHECKING:
    from laurel.data.gold import GoldFile
    from laurel.data.preferences import Pairs, Preferences
    from laurel.envs.base import EnvAdapter

TRIES = 50
"""Draws for each pair that is wanted; after that the environment has no more of them."""


class KnownPair(NamedTuple):
    """A pair with its answer."""

    pair: Pair
    p_first: float
    """Probability that the first text is the better one: 1, 0, or what a soft label says."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An environment's pairs."""

    adapter: EnvAdapter
    pairs: tuple[KnownPair, ...]


def by_progress(adapter: EnvAdapter, n: int, seed: int) -> Subject:
    """Draw pairs of captions that the adapter lists, of unlike progress; no two levels of progress come more often.

    Returns:
        n pairs, or fewer where there are fewer; the better text stands first in about half of them.

    Raises:
        AnnotationError: the environment has no hand-written progress, or lists no captions that differ in it.
    """
    levels: dict[float, list[str]] = {}
    for caption in dict.fromkeys(map(adapter.describe, adapter.events())):
        progress = adapter.oracle(caption)
        if caption and progress is not None:
            levels.setdefault(round(progress, 6), []).append(caption)
    rng = generator(seed, "known pairs", adapter.env_id)
    unlike = list(combinations(sorted(levels), 2))
    if not unlike:
        raise AnnotationError(
            f"{adapter.env_id}: its adapter lists no captions that differ in hand-written progress, so no answer is "
            "known. Name another environment, or give labels of another kind."
        )
    order, found = rng.permutation(len(unlike)), dict[frozenset[str], KnownPair]()
    for number in range(TRIES * n):
        if len(found) == n:
            break
        worse, better = (
            levels[level][rng.integers(len(levels[level]))] for level in unlike[order[number % len(unlike)]]
        )
        known = KnownPair(Pair(better, worse), 1.0) if rng.random() < 0.5 else KnownPair(Pair(worse, better), 0.0)
        found.setdefault(frozenset((better, worse)), known)
    return Subject(adapter, tuple(found.values()))


def by_gold(adapter: EnvAdapter, gold: GoldFile, n: int, seed: int) -> Subject:
    """Draw pairs that a person gave a side; errors as `by_progress`."""
    sides = {"first": 1.0, "second": 0.0}
    known = [
        KnownPair(Pair(one.first, one.second), sides[one.answer])
        for one in gold.labels.values()
        if one.answer in ("first", "second")
    ]
    return _drawn(adapter, known, n, seed, f"{gold.path} holds no gold label with a side")


def by_judge(
    adapter: EnvAdapter, pairs: Pairs, labels: Preferences, texts: Sequence[str], n: int, seed: int
) -> Subject:
    """Draw pairs that another judge gave a side, with its soft labels; errors as `by_progress`."""
    known = [
        KnownPair(Pair(texts[first], texts[second]), float(p))
        for first, second, p in zip(pairs.first.tolist(), pairs.second.tolist(), labels.p_first.tolist(), strict=True)
        if np.isfinite(p) and p != 0.5 and texts[first] != texts[second]
    ]
    return _drawn(adapter, known, n, seed, "the preferences hold no label with a side")


def _drawn(adapter: EnvAdapter, known: list[KnownPair], n: int, seed: int, otherwise: str) -> Subject:
    if not known:
        raise AnnotationError(f"{adapter.env_id}: {otherwise}, so there is nothing to learn from.")
    order = generator(seed, "known pairs", adapter.env_id).permutation(len(known))[:n]
    return Subject(adapter, tuple(known[i] for i in order.tolist()))


def right(subject: Subject, p_shown_first: Iterable[tuple[float, float]]) -> dict[str, Any]:
    """Say how a judge did.

    Args:
        subject: pairs with sides.
        p_shown_first: of each pair, the probability that the judge gives the text that is shown first, in the pair's
            order and in the other one.

    Returns:
        `accuracy` of both orders together, where a tie is wrong, and `position_bias`, the share of questions in which
        the text shown first is named; both with intervals.
    """
    p = np.array(list(p_shown_first)).reshape(-1, 2)
    lean = p[:, 0] - p[:, 1]  # of their mean, p(first) - 1/2, twice
    known = np.array([pair.p_first for pair in subject.pairs]) - 0.5
    return {
        "accuracy": rate(int((lean * known > 0).sum()), len(known)),
        "position_bias": grouped_rate((p > 0.5).reshape(-1), np.arange(len(p)).repeat(2)),
    }
