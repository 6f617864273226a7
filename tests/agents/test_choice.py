from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from laurel.agents import choice

ROWS = st.lists(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=3, max_size=3), min_size=1, max_size=6)


@given(rows=ROWS, seed=st.integers(0, 99))
def test_argmax_is_one_of_the_best(rows: list[list[float]], seed: int) -> None:
    chosen = choice.argmax(np.array(rows), np.random.default_rng(seed))
    assert [row[i] for row, i in zip(rows, chosen, strict=True)] == [max(row) for row in rows]


def test_ties_are_broken_evenly() -> None:
    values = np.tile([1.0, 0.0, 1.0, 1.0], (6000, 1))
    counts = np.bincount(choice.argmax(values, np.random.default_rng(0)), minlength=4)
    assert counts[1] == 0
    assert scipy.stats.chisquare(counts[[0, 2, 3]]).pvalue > 1e-3


def test_infinite_values_can_be_best() -> None:
    assert choice.argmax(np.array([[1.0, np.inf, 2.0]]), np.random.default_rng(0)).tolist() == [1]


def test_sample_has_the_given_probabilities() -> None:
    weights = np.array([0.2, 0.0, 0.5, 0.3])
    chosen = choice.sample(np.tile(3 * weights, (10_000, 1)), np.random.default_rng(0))
    counts = np.bincount(chosen, minlength=4)
    assert counts[1] == 0
    assert scipy.stats.chisquare(counts[weights > 0], weights[weights > 0] * 10_000).pvalue > 1e-3


@given(rows=ROWS, epsilon=st.floats(0, 1))
def test_epsilon_greedy_shares(rows: list[list[float]], epsilon: float) -> None:
    found = choice.epsilon_greedy(np.array(rows), epsilon)
    for row, probabilities in zip(rows, found, strict=True):
        best = [value == max(row) for value in row]
        expected = [epsilon / 3 + (1 - epsilon) / sum(best) * is_best for is_best in best]
        assert probabilities.tolist() == pytest.approx(expected)
