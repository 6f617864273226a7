"""The likelihood against slow and obvious sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.feedback.likelihood import Likelihood

DIFFERENCES = np.linspace(-6, 6, 25)


@pytest.mark.parametrize("lapse", [0.001, 0.2])
def test_either_side_is_better_or_the_other_is(lapse: float) -> None:
    likelihood = Likelihood(lapse)
    p = likelihood.p_first(DIFFERENCES)
    np.testing.assert_allclose(p + likelihood.p_first(-DIFFERENCES), 1)
    assert (np.diff(p) > 0).all()
    assert likelihood.p_first(np.array([1000.0]))[0] == pytest.approx(1 - lapse), "and nothing overflows"


@pytest.mark.parametrize("p_first", [0.0, 0.3, 0.5, 1.0])
def test_the_slope_is_that_of_the_logarithm(p_first: float) -> None:
    likelihood, step = Likelihood(0.1), 1e-6
    for difference in DIFFERENCES:
        above, below = (likelihood.log(np.array([difference + d]), np.array([p_first])) for d in (step, -step))
        slope = likelihood.slope(np.array([difference]), np.array([p_first]))[0]
        assert slope == pytest.approx((above - below) / (2 * step), abs=1e-6)


def test_precision_is_the_expected_square_of_the_slope() -> None:
    likelihood = Likelihood(0.1)
    p = likelihood.p_first(DIFFERENCES)
    squares = [likelihood.slope(DIFFERENCES, np.full(len(DIFFERENCES), answer)) ** 2 for answer in (1.0, 0.0)]
    np.testing.assert_allclose(likelihood.precision(DIFFERENCES), p * squares[0] + (1 - p) * squares[1])


def test_information_is_the_mutual_information_of_answer_and_difference() -> None:
    likelihood = Likelihood(0.05)
    draws = np.random.default_rng(0).normal(0.7, 1.5, 200_000)
    p = likelihood.p_first(draws)

    def entropy(q: np.ndarray) -> np.ndarray:
        return -q * np.log(q) - (1 - q) * np.log(1 - q)

    by_chance = entropy(p.mean(keepdims=True))[0] - entropy(p).mean()
    assert likelihood.information(np.array([0.7]), np.array([2.25]))[0] == pytest.approx(by_chance, rel=0.02)


@given(st.floats(-20, 20), st.floats(1e-12, 400), st.sampled_from([0.001, 0.1, 0.3]))
def test_information_of_an_answer_is_between_zero_and_one_bit(mean: float, variance: float, lapse: float) -> None:
    told = Likelihood(lapse).information(np.array([mean]), np.array([variance]))[0]
    assert -1e-12 <= told <= np.log(2)


def test_certain_pairs_have_no_information_and_uncertain_ones_the_most() -> None:
    mean, variance = np.array([0.0, 0.0, 5.0]), np.array([1e-12, 4.0, 4.0])
    known, in_doubt, nearly_sure = Likelihood(0.05).information(mean, variance)
    assert known == pytest.approx(0, abs=1e-9)
    assert in_doubt > 3 * nearly_sure


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 0.01), (0.5, 4.0), (2.0, 64.0)])
def test_the_variance_after_an_answer_is_that_of_bayes_rule(mean: float, variance: float) -> None:
    likelihood = Likelihood(0.05)
    grid = mean + np.sqrt(variance) * np.linspace(-8, 8, 20_001)
    prior = np.exp(-((grid - mean) ** 2) / variance / 2)
    prior /= prior.sum()
    left = 0.0
    for p in (likelihood.p_first(grid), likelihood.p_first(-grid)):
        after = prior * p
        chance, after = after.sum(), after / after.sum()
        left += chance * (after @ grid**2 - (after @ grid) ** 2)
    chance, up, down = (value[0] for value in likelihood.expected_shift(np.array([mean]), np.array([variance])))
    assert up * down == pytest.approx(variance - left, rel=0.1)
    assert chance * up == pytest.approx((1 - chance) * down), "on the whole the mean stays where it is"
