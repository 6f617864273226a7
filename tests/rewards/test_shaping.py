"""Shaping by its properties, and episode counts against a dictionary for each environment."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from laurel.rewards.normalizer import GRID, Normalizer
from laurel.rewards.shaping import EpisodeCounts, shape

REWARDS = arrays.arrays(np.float32, st.integers(1, 30), elements=st.floats(-100, 100, width=32))
BETAS = st.floats(0, 20)
THRESHOLDS = st.floats(-5, 5, width=32)


def counts_like(rewards: np.ndarray) -> st.SearchStrategy[np.ndarray]:
    return arrays.arrays(np.int64, rewards.shape, elements=st.integers(1, 1000))


# -- shape ------------------------------------------------------------------------------------------------------
@given(REWARDS, st.data(), THRESHOLDS, BETAS)
def test_shape_is_its_formula(rewards: np.ndarray, data: st.DataObject, threshold: float, beta: float) -> None:
    counts = data.draw(counts_like(rewards))
    expected = [max(float(r) - threshold, 0.0) / float(n) ** beta for r, n in zip(rewards, counts, strict=True)]
    shaped = shape(rewards, counts, threshold=threshold, beta=beta)
    assert shaped.dtype == np.float32
    assert shaped.shape == rewards.shape
    np.testing.assert_allclose(shaped, expected, rtol=1e-4, atol=1e-5)


@given(REWARDS, st.data(), THRESHOLDS)
def test_without_beta_counts_do_not_matter(rewards: np.ndarray, data: st.DataObject, threshold: float) -> None:
    counts = data.draw(counts_like(rewards))
    once = shape(rewards, np.ones_like(counts), threshold=threshold, beta=0.0)
    assert np.array_equal(shape(rewards, counts, threshold=threshold, beta=0.0), once)


@given(REWARDS, THRESHOLDS, BETAS)
def test_a_first_occurrence_gets_the_full_reward(rewards: np.ndarray, threshold: float, beta: float) -> None:
    first = shape(rewards, np.ones(rewards.shape, np.int64), threshold=threshold, beta=beta)
    above = rewards > threshold
    assert np.array_equal(first[above], rewards[above] - np.float32(threshold))
    assert not first[~above].any()


@given(THRESHOLDS, st.integers(1, 100), BETAS)
def test_at_the_threshold_the_reward_is_zero(threshold: float, count: int, beta: float) -> None:
    at = np.array([threshold, np.nextafter(np.float32(threshold), np.float32(-np.inf))], dtype=np.float32)
    assert not shape(at, np.full(2, count), threshold=float(at[0]), beta=beta).any()


@given(REWARDS, st.integers(1, 100), st.floats(0, 1), BETAS)
def test_a_better_caption_never_gets_less_reward(raw: np.ndarray, count: int, quantile: float, beta: float) -> None:
    """Whatever the utilities and the quantile, which lies below the mean where few captions are good."""
    normalizer = Normalizer.of(raw)
    threshold = normalizer.threshold(quantile)
    shaped = shape(np.sort(normalizer(raw)), np.full(raw.shape, count), threshold=threshold, beta=beta)
    assert (np.diff(shaped) >= 0).all()
    assert (shaped >= 0).all()


def test_normalised_rewards_are_on_a_grid_that_is_the_same_on_every_cpu() -> None:
    raw = np.random.default_rng(0).normal(size=100)
    rewards = Normalizer.of(raw)(raw).astype(np.float64) * GRID
    assert (rewards == np.rint(rewards)).all()
    assert not np.signbit(Normalizer(0.0, 1.0, ())(np.array([-0.1 / GRID]))).any()


def test_only_a_few_good_captions_among_many_are_rewarded() -> None:
    """Utilities of 20 milestones among 100 captions with a little noise, as labels give them: half lie above eps."""
    rng = np.random.default_rng(0)
    utility = np.where(np.arange(100) < 20, 1.0, 0.0) + rng.normal(0, 0.05, 100)
    normalizer = Normalizer.of(utility.astype(np.float32))
    threshold = normalizer.threshold(0.5)
    assert threshold < 0
    shaped = shape(normalizer(utility.astype(np.float32)), np.ones(100, np.int64), threshold=threshold, beta=3.0)
    assert shaped[20:].max() < 0.2 * shaped[:20].min()
    assert (shaped >= 0).all()


@given(st.floats(0.0078125, 100, width=32), st.floats(0.01, 5))
def test_repeats_get_less_and_less_reward(reward: float, beta: float) -> None:
    shaped = shape(np.full(50, reward, np.float32), np.arange(1, 51), threshold=0.0, beta=beta)
    assert (np.diff(shaped) < 0).all()


def test_a_steep_beta_gives_zero_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shaped = shape(np.float32([1, 1]), np.array([1, 1000]), threshold=0.0, beta=100.0)
    assert shaped.tolist() == [1.0, 0.0]


def test_shape_leaves_its_arguments_alone() -> None:
    rewards, counts = np.float32([1, 2, -3]), np.array([1, 2, 3])
    shape(rewards, counts, threshold=0.0, beta=2.0)
    assert rewards.tolist() == [1, 2, -3]
    assert counts.tolist() == [1, 2, 3]


def test_shape_keeps_time_and_environments_apart() -> None:
    rewards = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert shape(rewards, np.ones((2, 3), np.int64), threshold=2.0, beta=1.0).tolist() == [[0, 0, 0], [1, 2, 3]]


# -- EpisodeCounts ------------------------------------------------------------------------------------------------
class SlowCounts:
    """A counter for each environment, emptied where an episode ends."""

    def __init__(self, n_envs: int) -> None:
        self.counters = [Counter[int]() for _ in range(n_envs)]

    def update(self, ids: np.ndarray, valid: np.ndarray, ended: np.ndarray) -> list[list[int]]:
        seen = []
        for t in range(len(ids)):
            row = []
            for n, counter in enumerate(self.counters):
                counts = bool(valid[t, n]) and ids[t, n] >= 0
                if counts:
                    counter[int(ids[t, n])] += 1
                row.append(counter[int(ids[t, n])] if counts else 1)
                if ended[t, n]:
                    counter.clear()
            seen.append(row)
        return seen


@given(st.data(), st.integers(1, 4), st.integers(1, 4))
def test_counts_agree_with_a_counter_for_each_environment(data: st.DataObject, n_envs: int, n_updates: int) -> None:
    fast, slow = EpisodeCounts(n_envs), SlowCounts(n_envs)
    ids_drawn = st.integers(-2, 3) | st.sampled_from([63, 64, 65, 127, 128, 129, 1000])
    for _ in range(n_updates):
        shape_drawn = (data.draw(st.integers(0, 8)), n_envs)
        ids = data.draw(arrays.arrays(np.int64, shape_drawn, elements=ids_drawn))
        valid = data.draw(arrays.arrays(np.bool_, shape_drawn))
        ended = data.draw(arrays.arrays(np.bool_, shape_drawn))
        assert fast.update(ids, valid, ended).tolist() == slow.update(ids, valid, ended)


def test_counts_by_hand() -> None:
    counts = EpisodeCounts(2)
    column = np.array([[7, 7], [7, 5], [-1, 7], [7, 7]])
    valid = np.array([[1, 1], [1, 1], [1, 1], [0, 1]], np.bool_)
    ended = np.array([[0, 0], [0, 1], [1, 0], [0, 0]], np.bool_)
    assert counts.update(column, valid, ended).tolist() == [[1, 1], [2, 1], [1, 1], [1, 2]]
    assert counts.update(column[:1], valid[:1], ended[:1]).tolist() == [[1, 3]], "counts outlive an update"


@pytest.mark.parametrize("caption", [0, 63, 64, 500])
def test_counts_grow_without_forgetting(caption: int) -> None:
    counts, yes, no = EpisodeCounts(1), np.array([[True]]), np.array([[False]])
    for expected in (1, 2):
        assert counts.update(np.array([[caption]]), yes, no).tolist() == [[expected]]
    counts.update(np.array([[5000]]), yes, no)
    assert counts.update(np.array([[caption]]), yes, no).tolist() == [[3]]
