"""Pairs with known answers for tuning, testing or comparing judges, from an environment's hand-written progress, a
person's gold labels, or another judge's labels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Pair
from laurel.feedback.annotators.scripted import OracleUtility
from laurel.feedback.pairs import sample_pairs
from laurel.feedback.rates import grouped_rate, rate
from laurel.seeding import generator

if TYPE_CHECKING:
    from laurel.data.captions import Segments
    from laurel.data.gold import GoldFile
    from laurel.data.preference_rows import PreferenceRows

TRIES = 50
"""Maximum number of draws per wanted pair, after which the environment is assumed to have no more."""


class KnownPair(NamedTuple):
    """A pair with its answer."""

    pair: Pair
    p_first: float
    """Probability that the first text is better: 1, 0, or a soft label."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An environment's pairs."""

    adapter: EnvAdapter
    pairs: tuple[KnownPair, ...]
    left_out: int = 0
    """Further labels of a person or judge, which were not drawn."""
    goal: str | None = None
    """Goal in words that the answers are given for; None: the adapter's own."""

    @property
    def questions(self) -> tuple[Pair, ...]:
        return tuple(pair for pair, _ in self.pairs)

    @property
    def first_is_better(self) -> tuple[bool, ...]:
        return tuple(p_first > 0.5 for _, p_first in self.pairs)


def by_progress(adapter: EnvAdapter, n: int, seed: int) -> Subject:
    """Draw pairs of captions that the adapter lists with different progress, all pairs of levels equally often.

    Returns:
        n pairs, or fewer if there are fewer; the better text stands first in about half of them.

    Raises:
        AnnotationError: the environment has no hand-written progress, or lists no captions that differ in it.
    """
    levels: dict[float, list[str]] = {}
    for caption in dict.fromkeys(map(adapter.describe, adapter.events())):
        progress = adapter.oracle(caption)
        if caption and progress is not None:
            levels.setdefault(round(progress, 6), []).append(caption)
    if len(levels) < 2:
        raise AnnotationError(
            f"{adapter.env_id}: its adapter lists no captions that differ in hand-written progress, so no answer is "
            "known. Name another environment, or give labels of another kind."
        )
    return Subject(adapter, across_levels(levels, n, drawing(seed, adapter)))


def across_levels(levels: Mapping[float, list[str]], n: int, rng: np.random.Generator) -> tuple[KnownPair, ...]:
    """Draw pairs of texts of different levels, a higher one better; all pairs of levels equally often.

    Returns:
        n pairs, or fewer if there are fewer; the better text stands first in about half of them.
    """
    unlike = list(combinations(sorted(levels), 2))
    order, by_texts = rng.permutation(len(unlike)), dict[frozenset[str], KnownPair]()
    for number in range(TRIES * n):
        if len(by_texts) == n:
            break
        worse, better = (
            levels[level][rng.integers(len(levels[level]))] for level in unlike[order[number % len(unlike)]]
        )
        known = KnownPair(Pair(better, worse), 1.0) if rng.random() < 0.5 else KnownPair(Pair(worse, better), 0.0)
        by_texts.setdefault(frozenset((better, worse)), known)
    return tuple(by_texts.values())


def by_progress_of_segments(
    adapter: EnvAdapter, segments: Segments, captions: Collection[str], n: int, seed: int
) -> Subject:
    """Draw pairs of segments evenly, and keep up to n whose hand-written progress differs.

    Raises:
        AnnotationError: the environment has no hand-written progress, or it is the same for all segments.
    """
    if adapter.oracle("") is None:
        raise AnnotationError(
            f"{adapter.env_id} has no hand-written progress to compare judges with. Give --gold a file of labels, as "
            "`laurel annotate review` makes."
        )
    first, second = sample_pairs(segments.counts, TRIES * n, "uniform", np.random.default_rng(seed))
    utility = OracleUtility(adapter, captions)
    pairs: list[KnownPair] = []
    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        if difference := utility(segments.texts[a]) - utility(segments.texts[b]):
            pairs.append(KnownPair(Pair(segments.texts[a], segments.texts[b]), float(difference > 0)))
        if len(pairs) == n:
            break
    if not pairs:
        raise AnnotationError(
            f"The hand-written progress of {adapter.env_id} is the same for all of "
            f"{len(segments)} segments. Collect more steps (collect.steps), or give --gold a file of labels."
        )
    return Subject(adapter, tuple(pairs))


def by_gold(
    adapter: EnvAdapter, gold: GoldFile, n: int, rng: np.random.Generator, *, representative: bool = False
) -> Subject:
    """Draw up to n pairs in which a person preferred one text.

    Args:
        representative: only of pairs that were drawn at random. Pairs that were chosen because a judge was uncertain
            make it look worse than judges that are as good.

    Raises:
        AnnotationError: no such gold label is for the task.
    """
    preferred = [label for label in gold.labels.values() if label.answer in ("first", "second")]
    used = [label for label in preferred if not representative or label.chosen == "uniform"]
    if not used:
        uncertain = f", but {len(preferred)} for pairs that were chosen as uncertain" if preferred else ""
        others = f", but {gold.others} for other tasks" if gold.others else ""
        option = " --sample uniform" if preferred else ""
        raise AnnotationError(
            f'{gold.path}: holds no preference for {gold.task.env} and the goal "{gold.task.goal}"{uncertain or others}'
            f". Label some pairs with `laurel annotate review{option}`."
        )
    known = [KnownPair(Pair(label.first, label.second), float(label.answer == "first")) for label in used]
    return _subject(adapter, known, n, rng, gold.task.goal)


def by_judge(adapter: EnvAdapter, rows: PreferenceRows, goal: str, n: int, seed: int) -> Subject:
    """Draw pairs in which another judge preferred one text, with its soft labels, which it gave for a goal in words.

    Raises:
        AnnotationError: the other judge preferred neither text in any of the pairs.
    """
    known = [
        KnownPair(Pair(first, second), float(p))
        for first, second, p in zip(*rows.judged(), rows.labels.p_first.tolist(), strict=True)
        if np.isfinite(p) and p != 0.5 and first != second
    ]
    if not known:
        raise AnnotationError(
            f"{adapter.env_id}: no pair of the preferences has a preferred text, so there is nothing to learn from."
        )
    return _subject(adapter, known, n, drawing(seed, adapter), goal)


def drawing(seed: int, adapter: EnvAdapter) -> np.random.Generator:
    """Return the generator for the pairs on which a judge is tuned and tested."""
    return generator(seed, "known pairs", adapter.env_id)


def _subject(adapter: EnvAdapter, known: list[KnownPair], n: int, rng: np.random.Generator, goal: str) -> Subject:
    """Draw up to n of the labels, which are for this goal in words."""
    drawn = tuple(known[i] for i in rng.permutation(len(known))[:n].tolist())
    steered = goal if goal != adapter.goal else None
    return Subject(adapter, drawn, left_out=max(len(known) - n, 0), goal=steered)


def right(subject: Subject, p_shown_first: Iterable[tuple[float, float]]) -> dict[str, Any]:
    """Measure how often a judge is right.

    Args:
        subject: pairs with known answers.
        p_shown_first: of each pair, the probability that the judge gives the text that is shown first, in the pair's
            order and in the other one.

    Returns:
        `accuracy` of both orders together, where a tie is wrong, and `position_bias`, the share of questions in which
        the text shown first is named, with half a question where neither is; both with intervals.
    """
    p = np.array(list(p_shown_first)).reshape(-1, 2)
    lean = p[:, 0] - p[:, 1]  # twice the mean p(first) of both orders, less 1
    known = np.array([pair.p_first for pair in subject.pairs]) - 0.5
    return {
        "accuracy": rate(int((lean * known > 0).sum()), len(known)),
        "position_bias": grouped_rate((np.sign(p - 0.5).reshape(-1) + 1) / 2, np.arange(len(p)).repeat(2)),
    }
