"""Quality of a reward model, compared with simple baselines.

Every figure is on pairs with a caption that the predicting member was not trained on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from laurel.arrays import DoubleArray, IntArray
from laurel.data.captions import Segments
from laurel.rewards.bradley_terry import Comparisons, CrossValidation
from laurel.rewards.normalizer import Floats, rounded

BINS = 10
RIDGE = 1.0
"""Penalty of the bag-of-words regression."""
MOST_WORDS = 2000
"""Up to this many distinct words the regression is solved exactly, otherwise iteratively, in little memory."""


def quality(
    held_out: CrossValidation, comparisons: Comparisons, segments: Segments, environment: DoubleArray
) -> dict[str, Any]:
    """Summarise a cross-validation.

    Args:
        held_out: predictions of members on unseen pairs.
        comparisons: all labelled pairs.
        segments: the texts of the groups of the comparisons.
        environment: (V,) the environment's mean reward at each caption, NaN where unknown.

    Returns:
        pairs, distinct by their texts; heldout_pairs, predictions for pairs that are not ties, one per member that had
        not seen the pair but has learned from others; heldout_agreement, their agreement with the labels (which
        measures how well the annotator is copied, not whether it is right), the same if both captions are new, and of
        how many predictions, heldout_loss, brier, calibration bins and expected error, the agreement of three baselines
        on the same, and heldout_epochs, after how many epochs of training these were measured.
    """
    first = comparisons.group[comparisons.first]
    second = comparisons.group[comparisons.second]
    label = comparisons.p_first
    target = label[held_out.pair]
    decided = (target != 0.5) & held_out.taught
    both_new = decided & held_out.both_new
    env = _segment_means(environment, segments)
    env_guess = np.nan_to_num(np.sign(env[first] - env[second]))[held_out.pair]
    bag_guess = _bag_of_words(held_out, segments.texts, first, second, label)
    guess = held_out.predicted - 0.5
    firsts = float((target[decided] > 0.5).mean()) if decided.any() else 0.5
    bins = _calibration(held_out.predicted, target)
    return {
        "pairs": len(np.unique(np.minimum(first, second) * len(segments) + np.maximum(first, second))),
        "heldout_pairs": int(decided.sum()),
        "heldout_agreement": _agreement(guess[decided], target[decided]),
        "heldout_agreement_both_new": _agreement(guess[both_new], target[both_new]),
        "heldout_pairs_both_new": int(both_new.sum()),
        "heldout_loss": rounded(held_out.loss),
        "heldout_epochs": held_out.epochs,
        "brier": rounded(np.square(held_out.predicted - target).mean()),
        "calibration_error": rounded(sum(b["pairs"] * abs(b["p"] - b["observed"]) for b in bins) / len(target)),
        "calibration": bins,
        "baselines": {
            "majority": max(firsts, 1 - firsts),
            "bag_of_words": _agreement(bag_guess[decided], target[decided]),
            "environment_reward": _agreement(env_guess[decided], target[decided]),
        },
    }


def _agreement(guess: Floats, target: Floats) -> float | None:
    """Share of guesses (positive: the first) that agree with the label; no guess counts as 1/2."""
    right = np.where(guess == 0, 0.5, (guess > 0) == (target > 0.5))
    return float(right.mean()) if len(right) else None


def _segment_means(values: DoubleArray, segments: Segments) -> DoubleArray:
    """Average caption values (V,) over each segment's captions (S,); NaN if any is unknown."""
    present = segments.members >= 0
    gathered = np.where(present, values[segments.members.clip(min=0)], 0)
    return gathered.sum(axis=1) / np.maximum(present.sum(axis=1), 1)


def _bag_of_words(
    held_out: CrossValidation, texts: Sequence[str], first: IntArray, second: IntArray, label: DoubleArray
) -> DoubleArray:
    """Predict each held-out pair by a ridge regression on word counts, fitted without the fold's captions."""
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import lsqr

    judged, row = np.unique(np.concatenate([first, second]), return_inverse=True)  # possibly few of many texts
    first, second = np.split(row, 2)
    words: dict[str, int] = {}
    counted = [[words.setdefault(word, len(words)) for word in re.findall(r"\w+", texts[i].lower())] for i in judged]
    places = (
        np.repeat(np.arange(len(judged)), [len(word_ids) for word_ids in counted]),
        [word for word_ids in counted for word in word_ids],
    )
    bag = csr_array((np.ones(len(places[1])), places), shape=(len(judged), max(len(words), 1)))  # repeats add up
    guess = np.zeros(len(held_out.pair))
    for member in np.unique(held_out.member):
        of_member = held_out.member == member
        train = np.setdiff1d(np.arange(len(label)), held_out.pair[of_member])
        x = bag[first[train]] - bag[second[train]]
        if bag.shape[1] > MOST_WORDS:
            weights = lsqr(x, label[train] - 0.5, damp=RIDGE**0.5)[0]
        else:
            weights = np.linalg.solve((x.T @ x).toarray() + RIDGE * np.eye(bag.shape[1]), x.T @ (label[train] - 0.5))
        rows = held_out.pair[of_member]
        guess[of_member] = (bag[first[rows]] - bag[second[rows]]) @ weights
    return guess


def _calibration(predicted: Floats, target: DoubleArray) -> list[dict[str, float]]:
    """Return for each tenth of predicted probability its mean, the mean label and how many pairs there are."""
    place = np.minimum((predicted * BINS).astype(int), BINS - 1)
    return [
        {"p": rounded(predicted[rows].mean()), "observed": rounded(target[rows].mean()), "pairs": int(rows.sum())}
        for rows in (place == i for i in range(BINS))
        if rows.any()
    ]
