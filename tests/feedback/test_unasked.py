"""Unasked pairs against a set of frozensets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.feedback import pairs as module
from laurel.feedback.pairs import UnaskedPairs


def pairs(first: np.ndarray, second: np.ndarray) -> list[frozenset[int]]:
    return [frozenset(pair) for pair in zip(first.tolist(), second.tolist(), strict=True)]


@given(
    st.integers(1, 8),
    st.lists(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=9), max_size=6),
)
def test_a_pair_is_fresh_until_it_is_asked_about(size: int, batches: list[list[tuple[int, int]]]) -> None:
    left = UnaskedPairs(size)
    asked: set[frozenset[int]] = set()
    for batch in batches:
        first, second = (np.array(side) % size for side in zip(*batch, strict=True))
        fresh = pairs(*left.fresh(first, second))
        expected = [pair for pair in dict.fromkeys(pairs(first, second)) if len(pair) == 2 and pair not in asked]
        assert fresh == expected
        left.ask(*left.fresh(first, second))
        asked |= set(fresh)
        assert len(left) == size * (size - 1) // 2 - len(asked) == len(left.listed()[0])
        assert not set(pairs(*left.listed())) & asked


@pytest.mark.parametrize("few", [0, 200_000])
def test_draws_are_uniform_over_what_is_left(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", few)
    hits = np.zeros((12, 12))
    for seed in range(400):
        left = UnaskedPairs(12)
        left.ask(np.array([0, 5]), np.array([1, 2]))
        first, second = left.draw(10, np.random.default_rng(seed))
        assert len(set(pairs(first, second))) == 10
        np.add.at(hits, (first, second), 1)
    assert hits[0, 1] == hits[2, 5] == hits[np.tril_indices(12)].sum() == 0
    rest = np.delete(hits[np.triu_indices(12, 1)], [0, list(zip(*np.triu_indices(12, 1), strict=True)).index((2, 5))])
    assert 28 < rest.min() <= rest.max() < 104, "62.5 expected, five standard deviations"


@pytest.mark.parametrize("size", [0, 1])
def test_without_two_captions_there_is_no_pair(size: int) -> None:
    left = UnaskedPairs(size)
    assert len(left) == 0
    assert len(left.draw(5, np.random.default_rng(0))[0]) == 0


def test_all_that_are_left_where_more_are_wanted() -> None:
    left = UnaskedPairs(4)
    left.ask(np.array([1]), np.array([0]))
    assert len(set(pairs(*left.draw(100, np.random.default_rng(0))))) == 5
