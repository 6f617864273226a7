"""Training pairs of texts for a reward, and agreement of predictions with held-out pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from laurel.arrays import Array, BoolArray, DoubleArray, IntArray
from laurel.data.preference_rows import PreferenceRows
from laurel.errors import DataError
from laurel.feedback.rates import Rate, rate_of_variance
from laurel.rewards.normalizer import rounded
from laurel.seeding import generator

FOLDS = 5


def joined(prompt: str, text: str) -> str:
    r"""Join a prompt and its completion, in the format of all text reward models.

    >>> joined("Name a fruit.", "Apple"), joined("2 + 2 =", " 4"), joined("", "Apple")
    ('Name a fruit.\nApple', '2 + 2 = 4', 'Apple')
    """
    gap = prompt and text and not prompt[-1].isspace() and not text[0].isspace()
    return f"{prompt}\n{text}" if gap else prompt + text


@dataclass(frozen=True)
class TextPairs:
    """P pairs of T distinct texts."""

    texts: Sequence[str]
    first: IntArray
    """(P,) text numbers."""
    second: IntArray
    p_first: DoubleArray
    """(P,) 1/2 for ties."""
    group: IntArray
    """(T,) texts of a group are held out together: the answers to one prompt, or a single text."""

    @classmethod
    def of(cls, rows: PreferenceRows) -> TextPairs:
        """Use the labelled rows whose texts differ.

        Answers to one prompt form a group. With fewer prompts than FOLDS, holding out whole prompts would leave little
        or nothing to learn from, so each text is its own group.

        Raises:
            DataError: no pair names a better text.
        """
        items: dict[str, int] = {}
        prompts: dict[str, int] = {}
        group: list[int] = []
        sides: list[tuple[int, int]] = []
        kept = rows.labels.usable
        for number, (prompt, first, second) in enumerate(zip(rows.prompts, rows.first, rows.second, strict=True)):
            texts = joined(prompt, first), joined(prompt, second)
            kept[number] &= texts[0] != texts[1]  # completions may differ only in the gap after the prompt
            if not kept[number]:
                continue
            for text in texts:
                if text not in items:
                    items[text] = len(items)
                    group.append(prompts.setdefault(prompt or text, len(prompts)))
            sides.append((items[texts[0]], items[texts[1]]))
        p_first = rows.labels.p_first[kept]
        if not (p_first != 0.5).any():
            raise DataError(f"{rows.labels.annotator}: no row names a better text, so there is nothing to learn from.")
        places = np.array(sides, dtype=np.int64)
        groups = np.array(group, dtype=np.int64) if len(prompts) >= FOLDS else np.arange(len(items))
        return cls(list(items), places[:, 0], places[:, 1], p_first, groups)

    def folds(self, seed: int) -> IntArray:
        """Return a fold (T,) from 0 on for each text."""
        groups = int(self.group.max()) + 1
        return (generator(seed, "text folds").permutation(groups) % FOLDS)[self.group]

    def contradicted(self) -> int:
        """Count the pairs with a better text whose other text is the better one in another pair of the same two."""
        ends = np.stack([self.first, self.second], axis=1)
        _, pair_ids = np.unique(np.sort(ends, axis=1), axis=0, return_inverse=True)
        side = np.sign(self.p_first - 0.5) * np.sign(self.second - self.first)
        contradictory = np.bincount(pair_ids, side > 0).astype(bool) & np.bincount(pair_ids, side < 0).astype(bool)
        return int((contradictory[pair_ids] & (side != 0)).sum())


def quality(pairs: TextPairs, held_out: BoolArray, logits: Array) -> dict[str, Any]:
    """Measure the agreement of predictions with held-out labels, and that of baselines without learning.

    Args:
        held_out: (P,) which pairs are predicted.
        logits: (P,) of p(first better), by a model that has not seen one of the texts; 0 counts as 1/2.

    Returns:
        pairs, ties, contradicted (as `TextPairs.contradicted`), texts; heldout_pairs, those with a side;
        heldout_agreement with `heldout_ci95`; heldout_loss, over ties, too; and baselines: the longer text, and the
        first, None where all rows name the better text first. Figures without held-out pairs are None.
    """
    target = pairs.p_first[held_out]
    side = target != 0.5
    lengths = np.array([len(text) for text in pairs.texts])
    longer = np.sign(lengths[pairs.first] - lengths[pairs.second])[held_out]
    judged = logits[held_out][side]
    right = np.where(judged == 0, 0.5, (judged > 0) == (target[side] > 0.5))
    agreement = paired_rate(right, pairs.first[held_out][side], pairs.second[held_out][side])
    loss = np.logaddexp(0, logits[held_out]) - target * logits[held_out]
    firsts = float((target[side] > 0.5).mean()) if side.any() else 1.0
    majority = max(firsts, 1 - firsts)
    longer_right = np.where(longer[side] == 0, 0.5, (longer[side] > 0) == (target[side] > 0.5))
    return {
        "pairs": len(pairs.first),
        "ties": int((pairs.p_first == 0.5).sum()),
        "contradicted": pairs.contradicted(),
        "texts": len(pairs.texts),
        "heldout_pairs": int(side.sum()),
        "heldout_agreement": agreement["value"] if agreement else None,
        "heldout_ci95": agreement["ci95"] if agreement else None,
        "heldout_loss": rounded(float(loss.mean())) if len(loss) else None,
        "baselines": {
            "longer": float(longer_right.mean()) if side.any() else None,
            "majority": majority if majority < 1 else None,
        },
    }


def paired_rate(right: DoubleArray, first: IntArray, second: IntArray) -> Rate | None:
    """Return the share of right pairs (right 1, wrong 0, undecided 1/2); pairs with a common text are dependent.

    The variance is the dyadic one (Aronow, Samii and Assenova 2015, Political Analysis 23(4)): with e the errors,

        v = (sum over texts of (sum of e of its pairs)^2 - sum over distinct pairs of (sum of e)^2) / n^2

    since the rows of a pair have two texts in common, and would count twice.

    If all pairs are equal, the number of cases is that of pairs without a common text, at most T / 2 of T texts.
    """
    if not len(right):
        return None
    p = float(right.mean())
    errors = right - p
    size = int(max(first.max(), second.max())) + 1
    sums = np.bincount(first, weights=errors, minlength=size) + np.bincount(second, weights=errors, minlength=size)
    of_pair = np.unique(np.minimum(first, second) * size + np.maximum(first, second), return_inverse=True)[1]
    counted_twice = float(np.square(np.bincount(of_pair, weights=errors)).sum())
    variance = max(float(np.square(sums).sum()) - counted_twice, float(np.square(errors).sum())) / len(right) ** 2
    texts = len(np.unique(np.concatenate([first, second])))
    return rate_of_variance(p, variance, len(right), max(1, texts // 2))
