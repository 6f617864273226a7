"""References that labels are compared with: a person's gold labels, and the environment's hand-written progress."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from laurel.arrays import DoubleArray
from laurel.data.gold import P_FIRST, GoldFile, Selection, Task
from laurel.data.preferences import Pairs
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.annotators.scripted import OracleUtility
from laurel.params.annotation import AnnotateParams


def references(
    pairs: Pairs, texts: Sequence[str], adapter: EnvAdapter, gold: GoldFile | None, captions: Collection[str] = ()
) -> dict[str, DoubleArray]:
    """Return each reference's labels of the pairs, in the form of `laurel.feedback.quality`.

    Args:
        pairs: P pairs of segments.
        texts: (S,) of segments.
        captions: of single steps, which segments consist of, besides those that the adapter lists.

    Returns:
        `gold`, a person's labels of uniformly chosen pairs; `gold_uncertain`, of pairs chosen because their label was
        uncertain, which are not representative; `oracle`, the adapter's. References without any label are left out.
    """
    sides = {"oracle": oracle_sides(pairs, texts, adapter, captions)}
    if gold is not None:
        sides["gold"] = gold_sides(pairs, texts, gold, "uniform")
        sides["gold_uncertain"] = gold_sides(pairs, texts, gold, "uncertain")
    return {name: known for name, known in sides.items() if not np.isnan(known).all()}


def oracle_sides(
    pairs: Pairs, texts: Sequence[str], adapter: EnvAdapter, captions: Collection[str] = ()
) -> DoubleArray:
    """Return which segment of each pair (P,) made more progress by the adapter's oracle, summed over its steps.

    1 is the first, 0 the second, 1/2 neither, NaN if the adapter has no oracle.
    """
    if adapter.oracle("") is None:
        return np.full(len(pairs), np.nan)
    worth = OracleUtility(adapter, captions)
    utility = np.full(len(texts), np.nan)
    for segment in np.unique(np.concatenate([pairs.first, pairs.second])).tolist():
        utility[segment] = worth(texts[segment])
    return (np.sign(utility[pairs.first] - utility[pairs.second]) + 1) / 2


def gold_sides(pairs: Pairs, texts: Sequence[str], gold: GoldFile, chosen: Selection) -> DoubleArray:
    """Return a person's label of each pair (P,), NaN if it has none or was chosen in another way."""
    labels = [label for label in gold.labels.values() if label.chosen == chosen and label.answer is not None]
    wanted = {text for label in labels for text in (label.first, label.second)}
    place = {text: segment for segment, text in enumerate(texts) if text in wanted}
    known: dict[tuple[int, int], float] = {}
    for label in labels:
        a, b = place.get(label.first), place.get(label.second)
        if a is not None and b is not None and label.answer is not None:
            known[a, b] = P_FIRST[label.answer]
            known[b, a] = 1 - P_FIRST[label.answer]
    size = len(texts)
    keys = np.array([a * size + b for a, b in known] or [-1], dtype=np.int64)
    values = np.array(list(known.values()) or [np.nan])
    order = keys.argsort()
    asked = pairs.first * size + pairs.second
    position = np.minimum(np.searchsorted(keys[order], asked), len(keys) - 1)
    sides: DoubleArray = np.where(keys[order][position] == asked, values[order][position], np.nan)
    return sides


def task_of(annotate: AnnotateParams, adapter: EnvAdapter) -> Task:
    """Return the task of a run's labels: its environment and its annotator's goal.

    Raises:
        PromptError: there is no goal of the name that params give.
    """
    return Task(adapter.env_id, kind_of(annotate).goal(adapter))
