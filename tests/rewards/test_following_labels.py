"""A reward follows the labels that it was trained on, if most pairs have one and no label contradicts others."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from planted_pairs import params, units

from laurel.rewards import bradley_terry
from laurel.rewards.bradley_terry import CLEAR_MARGIN, Comparisons, Ensemble, cross_validate, fit, fit_to_labels
from laurel.rewards.model import raw_rewards

torch.set_num_threads(1)


def ranked(n_items: int = 6) -> tuple[np.ndarray, Comparisons]:
    """Items with features that say nothing about their rank, and all their pairs: a smaller number is better."""
    features = np.random.default_rng(3).standard_normal((n_items, 32))
    first, second = np.array(list(combinations(range(n_items), 2))).T
    return features, units(features, first, second, np.ones(len(first)))


def same(left: Ensemble, right: Ensemble) -> bool:
    mine, others = left.state_dict(), right.state_dict()
    return all(torch.equal(weight, others[name]) for name, weight in mine.items())


@pytest.fixture
def epochs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list with an entry for each epoch of training."""
    made: list[int] = []
    original = bradley_terry.Trainer.epoch

    def epoch(self: Any, rng: Any) -> None:
        made.append(1)
        original(self, rng)

    monkeypatch.setattr(bradley_terry.Trainer, "epoch", epoch)
    return made


def test_training_goes_on_where_few_epochs_contradict_labels() -> None:
    features, comparisons = ranked()
    held_out = cross_validate(features, comparisons, params(max_epochs=200), seed=0)
    fitted = fit_to_labels(features, comparisons, params(max_epochs=200, patience=40), held_out.epochs, seed=0)
    assert (fitted.clear_pairs, fitted.clear_pairs_followed, fitted.judged_share) == (15, 15, 1)
    assert same(fitted.ensemble, fit(features, comparisons, params(), fitted.epochs, seed=0))

    def steps_after(epochs: int) -> np.ndarray:
        """How much better each item is than the next."""
        return -np.diff(raw_rewards(fit(features, comparisons, params(), epochs, seed=0), features).mean(axis=0))

    followed = next(epochs for epochs in range(held_out.epochs, 200) if np.all(steps_after(epochs) > 0))
    assert held_out.epochs < followed < fitted.epochs
    assert steps_after(followed).min() < CLEAR_MARGIN / 10, "the last label has a margin near 0 there"
    assert np.median(steps_after(fitted.epochs)) > CLEAR_MARGIN
    assert steps_after(fitted.epochs).min() > CLEAR_MARGIN / 4


def test_training_ends_where_labels_are_followed_already(epochs: list[int]) -> None:
    features, comparisons = ranked()
    shown: list[int] = []
    fitted = fit_to_labels(features, comparisons, params(), 65, seed=0, advance=shown.append)
    assert fitted.clear_pairs_followed == fitted.clear_pairs
    assert fitted.epochs == len(epochs) == len(shown) == 65, "more than the default maximum of these settings"
    assert same(fitted.ensemble, fit(features, comparisons, params(), 65, seed=0))


def test_a_few_of_many_labels_may_be_contradicted(epochs: list[int]) -> None:
    _, comparisons = ranked(24)
    features = np.linspace(1, -1, 24)[:, None] * np.ones(8)  # which say the rank
    comparisons.p_first[1] = 0.0  # the best is worse than the third, so that one label at least must be contradicted
    fitted = fit_to_labels(features, comparisons, params(), 20, seed=0)
    assert (fitted.clear_pairs, fitted.clear_pairs_followed) == (276, 275)
    assert fitted.epochs == len(epochs) == 20


def test_training_does_not_go_on_where_few_pairs_have_a_label(epochs: list[int]) -> None:
    features, comparisons = ranked(16)
    some = comparisons[np.arange(0, 120, 3)]
    fitted = fit_to_labels(features, some, params(), 2, seed=0)
    assert 1 / 3 < fitted.judged_share < 1 / 2
    assert fitted.clear_pairs_followed < fitted.clear_pairs
    assert fitted.epochs == len(epochs) == 2
    most = comparisons[np.arange(0, 120, 2)]
    assert fit_to_labels(features, most, params(), 2, seed=0).epochs > 2


@pytest.mark.parametrize("start", [1, 4])
def test_labels_that_contradict_each_other_end_training_after_patience(start: int, epochs: list[int]) -> None:
    features, comparisons = ranked(4)
    comparisons.p_first[2] = 0.0  # the best is worse than the worst, so that one label must be contradicted
    fitted = fit_to_labels(features, comparisons, params(patience=25, max_epochs=500), start, seed=0)
    assert (fitted.clear_pairs, fitted.clear_pairs_followed) == (6, 5)
    assert fitted.epochs > start
    assert len(epochs) == fitted.epochs + 25
    assert same(fitted.ensemble, fit(features, comparisons, params(), fitted.epochs, seed=0))


def test_training_never_exceeds_its_maximum(epochs: list[int]) -> None:
    features, comparisons = ranked()
    fitted = fit_to_labels(features, comparisons, params(max_epochs=3), 2, seed=0)
    assert fitted.clear_pairs_followed < fitted.clear_pairs
    assert len(epochs) == 3


@pytest.mark.parametrize(
    ("first", "second", "p_first", "clear"),
    [
        ([0, 1], [1, 2], [0.75, 0.25], 2),
        ([0, 1], [1, 2], [0.74, 0.26], 0),
        ([0, 1, 0], [1, 0, 1], [1.0, 0.0, 1.0], 1),  # the same answer three times, once with the sides swapped
        ([0, 0, 0], [1, 1, 1], [0.6, 0.6, 0.6], 0),  # three times a little is still a little
        ([0, 1], [1, 0], [1.0, 1.0], 0),  # one pair, opposite answers
        ([0, 1], [0, 2], [1.0, 0.5], 0),  # a text and itself, and a tie
    ],
)
def test_which_labels_are_clear(first: Any, second: Any, p_first: Any, clear: int) -> None:
    features = np.random.default_rng(0).standard_normal((3, 8))
    fitted = fit_to_labels(features, units(features, first, second, p_first), params(), 1, seed=0)
    assert (fitted.clear_pairs, fitted.clear_pairs_followed) == (clear, clear)


def test_what_cannot_be_told_apart_follows_no_label() -> None:
    features = np.ones((2, 8))
    for p_first in (0.0, 1.0):
        fitted = fit_to_labels(features, units(features, [0], [1], [p_first]), params(), 1, seed=0)
        assert (fitted.clear_pairs, fitted.clear_pairs_followed) == (1, 0)


def test_segments_of_one_text_are_one_pair() -> None:
    features = np.random.default_rng(0).standard_normal((4, 8))
    items = np.arange(4, dtype=np.int64)[:, None]
    group = np.array([0, 0, 1, 1])
    comparisons = Comparisons(items, group, np.array([0, 3]), np.array([2, 1]), np.array([1.0, 0.0]))
    fitted = fit_to_labels(features, comparisons, params(), 1, seed=0)
    assert (fitted.clear_pairs, fitted.clear_pairs_followed, fitted.judged_share) == (1, 1, 1)
