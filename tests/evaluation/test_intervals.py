"""Intervals against exact references, and how often they hold planted truths."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from known_arms import KNOWN
from laurel.evaluation.comparison import (
    compare,
    compare_arms,
    holm,
    improvement_interval,
    permutation_p,
    probability_of_improvement,
)
from laurel.evaluation.intervals import mean_intervals, median_interval, wilson

LEAST = 0.93
TRIALS = 2000

scores = st.lists(st.integers(0, 4).map(float), min_size=2, max_size=5).map(np.array)


# -- against references ---------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 2, 5, 10, 37])
def test_wilson_of_counts_is_scipys(n):
    for k in range(n + 1):
        expected = scipy.stats.binomtest(k, n).proportion_ci(method="wilsoncc")
        assert wilson(k / n, n) == pytest.approx((expected.low, expected.high))


def test_the_mean_of_successes_and_failures_has_the_exact_interval():
    for k in range(11):
        seeds = np.repeat([0.0, 1.0], [10 - k, k])
        low, high = mean_intervals(seeds[None], 0.0, 1.0, draws=40_000, seed=0)
        exact = scipy.stats.binomtest(k, 10).proportion_ci(method="exact")
        assert (low[0], high[0]) == pytest.approx((exact.low, exact.high), abs=0.01)


def test_seeds_that_differ_little_have_a_narrower_interval():
    def width(seeds):
        low, high = mean_intervals(seeds[None], 0.0, 1.0, draws=2000, seed=0)
        return high[0] - low[0]

    assert width(np.full(10, 0.5)) < 0.6 * width(np.repeat([0.0, 1.0], 5))
    assert width(np.full(10, 0.5)) > 0.2, "a seed in five may still be unlike those seen"


def test_no_bound_is_beyond_what_a_seed_may_score():
    for n in range(1, 30):
        low, high = mean_intervals(np.array([np.ones(n), np.full(n, 0.7)]), 0.0, 1.0, draws=1000, seed=n)
        assert high[0] == 1.0
        assert 0.0 <= low.min() <= high.max() <= 1.0


def test_equal_scores_have_equal_intervals_and_an_unknown_one_none():
    low, high = mean_intervals(np.array([[1.0, 2.0], [1.0, 2.0], [np.nan, 1.0]]), 0.0, 3.0, draws=500, seed=0)
    assert low[0] == low[1]
    assert high[0] == high[1]
    assert np.isnan([low[2], high[2]]).all()


@given(scores, scores)
def test_permutation_p_counts_all_splits(x, y):
    """As SciPy does by listing them."""
    observed = probability_of_improvement(x, y)
    expected = scipy.stats.permutation_test(
        (x, y), lambda a, b: probability_of_improvement(a, b), vectorized=False, n_resamples=math.inf
    )
    assert expected.statistic == observed
    assert permutation_p(x, y) == pytest.approx(min(1.0, expected.pvalue))


def test_holm_is_that_of_the_definition():
    p = [0.01, 0.04, 0.03, 0.005]
    found = holm(p)
    assert found == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


# -- how often they hold ----------------------------------------------------------------------------
def failing(rate):
    """Draw returns of seeds that mostly solve a task but fail at a rate."""

    def draw(rng, size):
        fails = rng.random(size) < rate
        return np.where(fails, rng.beta(1, 30, size), rng.beta(60, 2, size))

    return draw


def all_or_nothing(rate):
    return lambda rng, size: (rng.random(size) >= rate).astype(float)


DISTRIBUTIONS = {
    **{f"{rate:.0%} fail": failing(rate) for rate in (0.05, 0.1, 0.2, 0.5)},
    **{f"{rate:.0%} get nothing": all_or_nothing(rate) for rate in (0.02, 0.1, 0.2, 0.5)},
    "saturated": lambda rng, size: np.clip(rng.normal(0.97, 0.03, size), 0, 1),
    "narrow": lambda rng, size: np.clip(rng.normal(0.5, 0.05, size), 0, 1),
    "anything": lambda rng, size: rng.random(size),
}


@pytest.mark.parametrize("n", [5, 10])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_interval_of_the_mean_holds_the_truth(name, n):
    """If one seed in ten fails, a bootstrap interval of five seeds covers the mean in 41% of cases."""
    rng, draw = np.random.default_rng(0), DISTRIBUTIONS[name]
    truth = draw(rng, 1_000_000).mean()
    low, high = mean_intervals(draw(rng, (TRIALS, n)), 0.0, 1.0, draws=1000, seed=0)
    assert ((low <= truth + 1e-9) & (truth <= high + 1e-9)).mean() >= LEAST


@pytest.mark.parametrize("n", [5, 10])
@pytest.mark.parametrize(
    "spread", [lambda rng, size: rng.standard_t(2, size), lambda rng, size: rng.lognormal(0, 1, size)]
)
def test_the_interval_of_a_mean_with_heavy_tails_holds_the_truth(spread, n):
    """Where the range is that of all seeds of six arms, which need not reach the ends of the distribution."""
    rng = np.random.default_rng(0)
    truth = float(np.exp(0.5)) if spread(np.random.default_rng(0), 100).min() > 0 else 0.0
    held = 0
    for _ in range(TRIALS // 4):
        arms = spread(rng, (6, n))
        low, high = mean_intervals(arms[:1], arms.min(), arms.max(), draws=500, seed=0)
        held += low[0] <= truth <= high[0]
    assert held / (TRIALS // 4) >= LEAST


@pytest.mark.parametrize("n", [5, 6, 8, 9, 10, 20])
def test_the_interval_of_the_median_holds_the_truth(n):
    rng = np.random.default_rng(0)
    found = [median_interval(seeds) for seeds in rng.lognormal(0.0, 1.0, (TRIALS, n))]
    assert np.mean([low <= 1.0 <= high for low, high in found]) >= LEAST - 0.01  # its level, less what chance explains


def test_the_interval_of_the_median_includes_seeds_that_never_reached_it():
    assert median_interval(np.array([3.0, 1.0, 2.0, math.inf, math.inf])) == (1.0, math.inf)
    assert median_interval(np.arange(10.0)) == (1.0, 8.0)
    assert median_interval(np.arange(4.0)) is None


PAIRS = {
    "shifted": (lambda rng, size: rng.normal(1.8, 1, size), lambda rng, size: rng.normal(0, 1, size)),
    "alike": (lambda rng, size: rng.normal(0, 1, size), lambda rng, size: rng.normal(0, 1, size)),
    "heavy tails": (lambda rng, size: rng.standard_t(2, size) + 1, lambda rng, size: rng.standard_t(2, size)),
    "skewed": (lambda rng, size: rng.lognormal(1.5, 1, size), lambda rng, size: rng.lognormal(0, 1, size)),
    "few against many failures": (failing(0.1), failing(0.8)),
    "all or nothing": (all_or_nothing(0.1), all_or_nothing(0.9)),
    "always good, against sometimes better": (
        lambda rng, size: np.full(size, 0.96),
        lambda rng, size: np.where(rng.random(size) < 0.9, 0.0, 0.97),
    ),
    "saturated": (
        lambda rng, size: np.clip(rng.normal(0.99, 0.03, size), 0, 1),
        lambda rng, size: np.clip(rng.normal(0.96, 0.03, size), 0, 1),
    ),
}


def wins(x, y):
    difference = x[:, :, None] - y[:, None, :]
    return (difference > 0).mean((1, 2)) + 0.5 * (difference == 0).mean((1, 2))


@pytest.mark.parametrize("n", [5, 10])
@pytest.mark.parametrize("name", PAIRS)
def test_the_interval_of_an_improvement_holds_the_truth(name, n):
    """A bootstrap prints [1.00, 1.00] in 30% of cases where the truth is 0.9."""
    rng, (ours, theirs) = np.random.default_rng(0), PAIRS[name]
    truth = wins(ours(rng, (100_000, 4)), theirs(rng, (100_000, 4))).mean()
    found = wins(ours(rng, (TRIALS, n)), theirs(rng, (TRIALS, n)))
    bounds = np.array([improvement_interval(p, n, n) for p in found])
    assert ((bounds[:, 0] <= truth) & (truth <= bounds[:, 1])).mean() >= LEAST
    assert (bounds[:, 1] - bounds[:, 0] > 0.2).all(), "an interval is never a point"


def test_an_interval_of_an_improvement_contains_the_probability_and_turns_with_the_arms():
    for p in (0.0, 0.025, 0.3, 0.5, 0.975):
        low, high = improvement_interval(p, 10, 2)
        assert 0 <= low <= p <= high <= 1
        assert improvement_interval(1 - p, 2, 10) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize("n", [5, 10])
def test_the_interval_of_solved_seeds_holds_the_truth(n):
    for truth in np.linspace(0.01, 0.99, 99):
        held = [low <= truth <= high for low, high in (wilson(k / n, n) for k in range(n + 1))]
        assert scipy.stats.binom.pmf(np.arange(n + 1), n, truth) @ np.array(held) >= LEAST


def test_differences_are_claimed_at_their_level_where_there_are_none():
    rng = np.random.default_rng(0)
    claimed = 0
    for _ in range(500):
        arms = ("preference", "extrinsic", "random_reward", "shuffled_labels")
        found = compare_arms({"return": {arm: failing(0.3)(rng, 10) for arm in arms}}, [KNOWN[arm] for arm in arms])
        claimed += any(entry["return"]["p_holm"] < 0.05 for entry in found["preference"].values())
    assert claimed / 500 <= 0.07


# -- what is compared -------------------------------------------------------------------------------
def test_each_learned_arm_is_compared_with_each_control():
    seeds = {arm: np.arange(6.0) for arm in ("preference", "intrinsic_only", "extrinsic", "similarity", "oracle")}
    scores = {"return": seeds, "area": {arm: seeds[arm] for arm in ("preference", "extrinsic")}}
    found = compare_arms(scores, [KNOWN[arm] for arm in seeds])
    assert {arm: {over: list(measures) for over, measures in overs.items()} for arm, overs in found.items()} == {
        "preference": {"extrinsic": ["return", "area"], "similarity": ["return"]},
        "intrinsic_only": {"extrinsic": ["return"], "similarity": ["return"]},
    }
    entry = found["preference"]["extrinsic"]["return"]
    assert (entry["probability"], entry["p"], entry["p_holm"], entry["difference"]) == (0.5, 1.0, 1.0, 0.0)


@pytest.mark.parametrize("scores", [np.array([1.0]), np.array([1.0, np.nan]), np.array([])])
def test_incomparable_arms_are_not_compared(scores):
    entry = compare(scores, np.array([1.0, 2.0]))
    assert entry["ci95"] is None
    assert entry["p"] is None
    assert (entry["probability"] is None) == (len(scores) != 1)
