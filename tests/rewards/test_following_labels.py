"""A reward follows the labels that it was trained on, as far as they do not contradict each other."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from planted_pairs import params, units

from laurel.rewards.bradley_terry import Comparisons, Ensemble, cross_validate, fit, fit_to_labels
from laurel.rewards.model import raw_rewards

torch.set_num_threads(1)


def ranked(n_items: int = 6) -> tuple[np.ndarray, Comparisons]:
    """Items with features that say nothing about their rank, and all their pairs: a smaller number is better."""
    features = np.random.default_rng(3).standard_normal((n_items, 32))
    first, second = np.array(list(combinations(range(n_items), 2))).T
    return features, units(features, first, second, np.ones(len(first)))


def same(one: Ensemble, other: Ensemble) -> bool:
    mine, others = one.state_dict(), other.state_dict()
    return all(torch.equal(weight, others[name]) for name, weight in mine.items())


def test_training_goes_on_where_few_epochs_contradict_labels() -> None:
    features, comparisons = ranked()
    held_out = cross_validate(features, comparisons, params(max_epochs=200), seed=0)
    short = raw_rewards(fit(features, comparisons, params(), held_out.epochs, seed=0), features).mean(axis=0)
    assert np.any(np.diff(short) > 0), "what carries over to items left out, which is nothing, says little on labels"
    fitted = fit_to_labels(features, comparisons, params(max_epochs=200, patience=40), held_out.epochs, seed=0)
    assert np.all(np.diff(raw_rewards(fitted.ensemble, features).mean(axis=0)) < 0)
    assert (fitted.clear_pairs, fitted.followed) == (15, 15)
    assert fitted.epochs > held_out.epochs
    assert same(fitted.ensemble, fit(features, comparisons, params(), fitted.epochs, seed=0))
    before = fit(features, comparisons, params(), fitted.epochs - 1, seed=0)
    assert np.any(np.diff(raw_rewards(before, features).mean(axis=0)) > 0), "no longer than needed"


def test_training_ends_where_labels_are_followed_already() -> None:
    features, comparisons = ranked()
    expected = fit(features, comparisons, params(), 50, seed=0)
    epochs: list[int] = []
    fitted = fit_to_labels(features, comparisons, params(), 50, seed=0, advance=epochs.append)
    assert fitted.followed == fitted.clear_pairs
    assert (fitted.epochs, len(epochs)) == (50, 50)
    assert same(fitted.ensemble, expected)


def test_labels_that_contradict_each_other_end_training_after_patience() -> None:
    features = np.random.default_rng(0).standard_normal((3, 8))
    circle = units(features, [0, 1, 2], [1, 2, 0], [1, 1, 1])
    epochs: list[int] = []
    fitted = fit_to_labels(features, circle, params(patience=7), 4, seed=0, advance=epochs.append)
    assert fitted.clear_pairs == 3 > fitted.followed
    assert len(epochs) == fitted.epochs + 7
    assert same(fitted.ensemble, fit(features, circle, params(), fitted.epochs, seed=0))


def test_training_never_exceeds_its_maximum() -> None:
    features, comparisons = ranked()
    epochs: list[int] = []
    fitted = fit_to_labels(features, comparisons, params(max_epochs=3), 2, seed=0, advance=epochs.append)
    assert fitted.followed < fitted.clear_pairs
    assert len(epochs) == 3


@pytest.mark.parametrize(
    ("first", "second", "p_first", "clear"),
    [
        ([0, 1], [1, 2], [0.75, 0.25], 2),
        ([0, 1], [1, 2], [0.74, 0.26], 0),
        ([0, 1, 0], [1, 0, 1], [1.0, 0.0, 1.0], 1),  # the same answer three times, once with the sides swapped
        ([0, 1], [1, 0], [1.0, 1.0], 0),  # one pair, opposite answers
        ([0, 1], [0, 2], [1.0, 0.5], 0),  # a text and itself, and a tie
    ],
)
def test_which_labels_are_clear(first: Any, second: Any, p_first: Any, clear: int) -> None:
    features = np.random.default_rng(0).standard_normal((3, 8))
    fitted = fit_to_labels(features, units(features, first, second, p_first), params(), 1, seed=0)
    assert (fitted.clear_pairs, fitted.followed) == (clear, clear)


def test_segments_of_one_text_are_one_pair() -> None:
    features = np.random.default_rng(0).standard_normal((4, 8))
    items = np.arange(4, dtype=np.int64)[:, None]
    group = np.array([0, 0, 1, 1])
    comparisons = Comparisons(items, group, np.array([0, 3]), np.array([2, 1]), np.array([1.0, 0.0]))
    fitted = fit_to_labels(features, comparisons, params(), 1, seed=0)
    assert (fitted.clear_pairs, fitted.followed) == (1, 1)
