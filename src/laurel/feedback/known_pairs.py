"""Pairs whose better text is known, to compare annotators on.

The truth is a person's gold labels or the environment's hand-written progress.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from laurel.errors import AnnotationError
from laurel.feedback.annotator import Pair
from laurel.feedback.annotators.scripted import OracleUtility
from laurel.feedback.pairs import sample_pairs

if TYPE_CHECKING:
    from laurel.data.captions import Segments
    from laurel.data.gold import GoldFile
    from laurel.envs.base import EnvAdapter

DRAWN = 50
"""Pairs that are drawn for each that is wanted: the oracle sees no difference between most."""


@dataclass(frozen=True)
class KnownPairs:
    """Questions and their right answers."""

    questions: tuple[Pair, ...]
    first_is_better: tuple[bool, ...]
    source: str
    """Where the answers are from, as text."""

    def __len__(self) -> int:
        return len(self.questions)


def known_by_oracle(
    segments: Segments, captions: Collection[str], adapter: EnvAdapter, n: int, seed: int
) -> KnownPairs:
    """Draw pairs of segments evenly, and keep up to n that differ by the adapter's oracle.

    Raises:
        AnnotationError: the adapter has no oracle, or it sees no difference.
    """
    if adapter.oracle("") is None:
        raise AnnotationError(
            f"{adapter.env_id} has no hand-written progress to compare judges with. Give --gold a file of labels, as "
            "`laurel annotate review` makes."
        )
    first, second = sample_pairs(segments.counts, DRAWN * n, "uniform", np.random.default_rng(seed))
    utility = OracleUtility(adapter, captions)
    questions, better = [], []
    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        difference = utility(segments.texts[a]) - utility(segments.texts[b])
        if difference:
            questions.append(Pair(segments.texts[a], segments.texts[b]))
            better.append(difference > 0)
        if len(questions) == n:
            break
    if not questions:
        raise AnnotationError(
            f"The hand-written progress of {adapter.env_id} sees no difference between any two of "
            f"{len(segments)} segments. Collect more steps (collect.steps), or give --gold a file of labels."
        )
    return KnownPairs(tuple(questions), tuple(better), f"the hand-written progress of {adapter.env_id}")


def known_by_gold(gold: GoldFile, n: int, seed: int) -> KnownPairs:
    """Draw up to n of a person's labels that name a side.

    Raises:
        AnnotationError: no gold label is for the task.
    """
    labels = [label for label in gold.labels.values() if label.answer in ("first", "second")]
    if not labels:
        others = f", but {gold.others} for other tasks" if gold.others else ""
        raise AnnotationError(
            f'{gold.path}: holds no label with a side for {gold.task.env} and the goal "{gold.task.goal}"{others}. '
            "Label some pairs with `laurel annotate review`."
        )
    drawn = np.sort(np.random.default_rng(seed).permutation(len(labels))[:n])
    chosen = [labels[i] for i in drawn]
    questions = tuple(Pair(label.first, label.second) for label in chosen)
    return KnownPairs(questions, tuple(label.answer == "first" for label in chosen), f"the gold labels in {gold.path}")
