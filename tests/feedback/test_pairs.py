"""Pairs by their properties, in the branch that lists all of them and in the one that draws."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.feedback.pairs import sample_pairs

SAMPLERS = ("uniform", "frequency")
MANY = 1000
"""Segments with too many pairs to list."""


def draw(counts: np.ndarray | list[int], n_pairs: int, sampler: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return sample_pairs(np.asarray(counts, dtype=np.int64), n_pairs, sampler, np.random.default_rng(seed))


def check(first: np.ndarray, second: np.ndarray, size: int, n_pairs: int) -> None:
    assert first.shape == second.shape == (min(n_pairs, size * (size - 1) // 2),)
    assert first.dtype == second.dtype == np.int64
    pairs = [frozenset(pair) for pair in zip(first.tolist(), second.tolist(), strict=True)]
    assert all(len(pair) == 2 for pair in pairs), "no segment is judged against itself"
    assert len(set(pairs)) == len(pairs), "no pair twice, in either order"
    assert {i for pair in pairs for i in pair} <= set(range(size))


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**6), max_size=30), st.integers(1, 300), st.sampled_from(SAMPLERS), st.integers(0, 99))
def test_distinct_pairs_of_distinct_segments(counts: list[int], n_pairs: int, sampler: str, seed: int) -> None:
    first, second = draw(counts, n_pairs, sampler, seed)
    check(first, second, len(counts), n_pairs)
    again = draw(counts, n_pairs, sampler, seed)
    assert np.array_equal(first, again[0])
    assert np.array_equal(second, again[1])


@settings(max_examples=25, deadline=None)
@given(st.integers(700, 3000), st.integers(1, 500), st.sampled_from(SAMPLERS), st.floats(0.0, 3.0), st.integers(0, 99))
def test_the_same_holds_where_pairs_are_too_many_to_list(
    size: int, n_pairs: int, sampler: str, skew: float, seed: int
) -> None:
    counts = (10**6 / np.arange(1, size + 1) ** skew).astype(np.int64)  # Zipf's law, from even to extreme
    first, second = draw(counts, n_pairs, sampler, seed)
    check(first, second, size, n_pairs)
    assert np.array_equal(np.stack([first, second]), np.stack(draw(counts, n_pairs, sampler, seed)))


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("size", [40, MANY])
def test_orientation_and_order_are_random(size: int, sampler: str) -> None:
    n_pairs = 400
    first, second = draw(np.ones(size), n_pairs, sampler)
    assert 0.4 < (first < second).mean() < 0.6, "five standard deviations"
    lower = np.minimum(first, second)
    assert (np.diff(lower) < 0).sum() > n_pairs / 4, "not sorted"


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("size", [40, MANY])
def test_another_seed_draws_other_pairs(size: int, sampler: str) -> None:
    first, second = (np.stack(draw(np.ones(size), 100, sampler, seed)) for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_samplers_that_need_labels_draw_no_random_pairs() -> None:
    with pytest.raises(ValueError, match="information does not draw at random"):
        draw([1, 1, 1], 2, "information")


def test_all_pairs_are_drawn_if_there_are_fewer() -> None:
    first, second = draw([5, 0, 2, 1], 100, "frequency")
    found = {frozenset(pair) for pair in zip(first.tolist(), second.tolist(), strict=True)}
    assert found == {frozenset(pair) for pair in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))}


@pytest.mark.parametrize("size", [0, 1])
def test_without_two_segments_there_is_no_pair(size: int) -> None:
    first, second = draw(np.ones(size), 10, "uniform")
    assert len(first) == len(second) == 0


@pytest.mark.parametrize("size", [100, MANY])
def test_frequency_prefers_what_occurred_often(size: int) -> None:
    counts = np.zeros(size, dtype=np.int64)
    common = np.arange(7, size, 10)  # a tenth of them, nine times as likely: together half of all weight
    counts[common] = 8
    n_pairs = 25  # few, so that those drawn do not change the chances of the rest
    share = {
        sampler: np.mean([np.isin(draw(counts, n_pairs, sampler, seed), common).mean() for seed in range(100)])
        for sampler in SAMPLERS
    }
    assert share["uniform"] == pytest.approx(0.1, abs=0.02)
    assert share["frequency"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("size", [100, MANY])
def test_no_place_in_the_vocabulary_is_preferred(size: int) -> None:
    """Of more pairs than are needed, those that were drawn first are taken, not those of the first segments."""
    drawn = np.concatenate(draw(np.ones(size), 300, "uniform"))
    assert drawn.mean() == pytest.approx(size / 2, abs=size / 16), "five standard deviations"


@pytest.mark.parametrize("size", [100, MANY])
def test_segments_that_were_only_listed_are_judged_too(size: int) -> None:
    counts = np.zeros(size, dtype=np.int64)
    counts[:3] = 4
    first, second = draw(counts, 300, "frequency")
    assert (counts[np.concatenate([first, second])] == 0).any()


def test_listed_and_drawn_pairs_have_the_same_distribution() -> None:
    """The drawn branch, restricted to the pairs that the listed branch knows, agrees on which are frequent."""
    counts = np.zeros(MANY, dtype=np.int64)
    counts[:4] = (4000, 2000, 1000, 500)
    hits = np.zeros(4)
    for seed in range(200):
        drawn = np.stack(draw(counts, 3, "frequency", seed))
        hits += np.isin(np.arange(4), drawn)
    dense = np.zeros(4)
    for seed in range(200):  # 600 segments are few enough to list; 400 fewer of weight 1 hardly matter
        drawn = np.stack(draw(counts[:600], 3, "frequency", seed))
        dense += np.isin(np.arange(4), drawn)
    np.testing.assert_allclose(hits / 200, dense / 200, atol=0.15)
    assert (np.diff(hits) < 0).all()


def test_one_segment_that_fills_nearly_every_step_does_not_hold_up_the_draw() -> None:
    counts = np.ones(MANY, dtype=np.int64)
    counts[0] = 10**9
    started = time.process_time()
    first, second = draw(counts, 2000, "frequency")
    assert time.process_time() - started < 5
    check(first, second, MANY, 2000)
    assert ((first == 0) | (second == 0)).mean() > 0.2, "and is still judged the most"
