from __future__ import annotations

import numpy as np
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from laurel.agents.replay import SumTree

NUMBERS = st.lists(st.floats(0, 1e3) | st.just(0.0), min_size=1, max_size=40)


@given(NUMBERS, st.data())
def test_sums_are_those_of_the_numbers(numbers: list[float], data: st.DataObject) -> None:
    tree = SumTree(len(numbers))
    tree.set(np.arange(len(numbers)), np.array(numbers))
    for _ in range(3):
        changed = data.draw(st.lists(st.integers(0, len(numbers) - 1), min_size=1, max_size=5, unique=True))
        values = np.array(data.draw(st.lists(st.floats(0, 10), min_size=len(changed), max_size=len(changed))))
        tree.set(np.array(changed), values)
        for i, value in zip(changed, values, strict=True):
            numbers[i] = value
    np.testing.assert_allclose(tree.leaves, numbers)
    np.testing.assert_allclose(tree.total, sum(numbers))
    np.testing.assert_allclose(tree.values(np.array(changed)), values)


@given(NUMBERS.filter(lambda numbers: sum(numbers) > 0), st.integers(0, 1000))
def test_leaves_of_priority_zero_are_never_drawn(numbers: list[float], seed: int) -> None:
    tree = SumTree(len(numbers))
    tree.set(np.arange(len(numbers)), np.array(numbers))
    drawn = tree.sample(50, np.random.default_rng(seed))
    assert ((drawn >= 0) & (drawn < len(numbers))).all()
    assert (np.array(numbers)[drawn] > 0).all()


def test_draws_are_in_proportion() -> None:
    numbers = np.array([0.0, 1.0, 4.0, 0.5, 0.0, 2.5])
    tree = SumTree(6)
    tree.set(np.arange(6), numbers)
    rng = np.random.default_rng(0)
    drawn = np.concatenate([tree.sample(1, rng) for _ in range(4000)])
    counts = np.bincount(drawn, minlength=6)
    assert scipy.stats.chisquare(counts[numbers > 0], 4000 * numbers[numbers > 0] / 8).pvalue > 1e-3
    many = np.bincount(tree.sample(8000, rng), minlength=6)
    np.testing.assert_allclose(many, 1000 * numbers, atol=2)


class Highest:
    """A generator whose numbers are as close to 1 as they can be."""

    def random(self, size: int) -> np.ndarray:
        return np.full(size, np.nextafter(1.0, 0.0))


def test_rounding_never_draws_a_leaf_of_priority_zero() -> None:
    """The highest draw is rounded up to the total itself, beyond the last leaf with a priority."""
    tree = SumTree(4)
    tree.set(np.arange(2), np.array([1.0, 2.0]))
    assert tree.sample(8, Highest()).tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
