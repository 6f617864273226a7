from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.params import Params
from laurel.params.search import read_space
from laurel.tuning.figures import TREND_TRIALS, draw, nearness, weighted_means
from laurel.tuning.importance import Importance
from laurel.tuning.trials import Trial

FINITE = st.floats(-10, 10)


@given(points=st.lists(st.tuples(FINITE, FINITE), min_size=2, max_size=12), log=st.booleans())
def test_a_trend_is_the_mean_weighted_by_nearness(points: list[tuple[float, float]], *, log: bool) -> None:
    x, y = np.array(points).T
    x = np.exp(x) if log else x
    grid, weights = nearness(x, log=log)
    mean, low, high = weighted_means(weights, y)
    place = [math.log(value) for value in x] if log else list(x)
    width = max(0.12 * (max(place) - min(place)), 1e-12)
    for i in (0, 40, 99):
        at = math.log(grid[i]) if log else grid[i]
        near = [math.exp(-0.5 * ((at - value) / width) ** 2) for value in place]
        expected = sum(a * b for a, b in zip(near, y, strict=True)) / sum(near)
        assert mean[i] == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert np.all(low <= high)
    assert np.all((min(y) - 1e-9 <= low) & (high <= max(y) + 1e-9))


def test_the_interval_of_a_mean_is_as_wide_as_its_standard_error_says() -> None:
    values = np.random.default_rng(0).normal(size=400)
    (mean,), (low,), (high,) = weighted_means(np.ones((1, 400)), values)
    error = 1.96 * values.std() / math.sqrt(400)
    assert (low, high) == pytest.approx((mean - error, mean + error), abs=0.02)


def test_the_interval_follows_the_trend() -> None:
    x = np.linspace(0, 1, 200)
    _, weights = nearness(x, log=False)
    mean, low, high = weighted_means(weights, x + np.random.default_rng(0).normal(scale=0.1, size=200))
    assert np.ptp(mean) > 0.7
    assert np.all((low < mean) & (mean < high))
    assert np.all(high - low < 0.15)


def test_no_interval_of_a_few_trials(params: Params) -> None:
    space = read_space(["shaping.beta=1.0,2.0", "shaping.intrinsic=0:1"], params, "preference")
    trials = [
        Trial(n, {"shaping.beta": 1.0 + (n == 0), "shaping.intrinsic": n / 10}, "complete", float(n % 3))
        for n in range(TREND_TRIALS + 1)
    ]
    few, many = (draw(space, some, {}, "score")["parameters"].axes for some in (trials[:-2], trials))
    assert [len(axes.patches) for axes in few] == [0, 0]
    assert len(few[1].lines) == 1, "the ticks of what was pruned, and no trend"
    assert [len(axes.patches) for axes in many] == [1, 0], "the choice that enough trials had"
    assert len(many[1].collections) == 3, "the points, the best one, and the band of the trend"


def test_importance_is_drawn_with_its_interval(params: Params) -> None:
    space = read_space(["shaping.beta=0:4"], params, "preference")
    trials = [Trial(0, {"shaping.beta": 1.0}, "complete", 0.5)]
    (axes,) = draw(space, trials, {"shaping.beta": Importance(0.4, 0.1, 0.7)}, "score")["importance"].axes
    assert axes.patches[0].get_width() == 0.4  # type: ignore[attr-defined]
    assert list(axes.lines[0].get_xdata()) == [0.1, 0.7]


def test_the_best_score_so_far_never_falls_and_pruned_trials_are_drawn_where_they_ended(params: Params) -> None:
    space = read_space(["shaping.beta=1.0,2.0"], params, "preference")
    trials = [Trial(n, {"shaping.beta": 1.0 + n % 2}, "complete", score) for n, score in enumerate((1.0, 3.0, 2.0))]
    trials.append(Trial(3, {"shaping.beta": 1.0}, "pruned", None, reports=[(1, 0.2), (2, 0.7)]))
    figures = draw(space, trials, {}, "score")
    (axes,) = figures["history"].axes
    assert list(axes.lines[0].get_ydata()) == [1.0, 3.0, 3.0]
    assert np.asarray(axes.collections[0].get_offsets()).tolist() == [[3.0, 0.7]]
    (axes,) = figures["parameters"].axes
    means = [list(line.get_ydata()) for line in axes.lines if len(np.asarray(line.get_xdata())) == 2]
    assert means == [[1.5, 1.5], [3.0, 3.0]], "of each choice"
