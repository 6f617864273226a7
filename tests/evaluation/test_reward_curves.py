from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from laurel.errors import DataError
from laurel.evaluation.reward_curves import mean_over_runs, moving_average, plot_rewards

NUMBERS = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


@given(values=NUMBERS, window=st.integers(1, 40))
def test_a_moving_average_is_that_of_the_last_values(values: list[float], window: int) -> None:
    found = moving_average(values, window)
    for i in range(len(values)):
        last = values[max(0, i + 1 - window) : i + 1]
        assert found[i] == pytest.approx(sum(last) / len(last), abs=1e-9)


def test_each_run_is_averaged_by_itself() -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 20))
    np.testing.assert_allclose(moving_average(values, 4)[1, 2], moving_average(values[1, 2], 4))
    with pytest.raises(DataError, match="window of 1 or more"):
        moving_average(values, 0)


def test_intervals_hold_the_truth_in_95_of_100_cases() -> None:
    found = mean_over_runs(np.random.default_rng(0).normal(3.0, 2.0, size=(6, 20_000)))
    assert found.interval is not None
    low, high = found.interval
    assert ((low < 3) & (high > 3)).mean() == pytest.approx(0.95, abs=0.005)
    values = np.array([1.0, 2.0, 4.0])
    mean = mean_over_runs(values)
    assert mean.interval is not None
    expected = scipy.stats.t.interval(0.95, 2, values.mean(), scipy.stats.sem(values))
    assert [float(end) for end in mean.interval] == pytest.approx(expected)


def test_a_single_run_has_no_interval() -> None:
    assert mean_over_runs(np.ones((1, 5))).interval is None
    axes = plot_rewards(np.ones((2, 1, 5)), ["a", "b"]).axes[0]
    assert not axes.collections


def test_lines_and_bands_are_those_of_the_runs() -> None:
    rewards = np.random.default_rng(0).normal(size=(3, 8, 50)) + np.array([0, 5, 2])[:, None, None]
    axes = plot_rewards(rewards, ["low", "high", "$mid$"], 10).axes[0]
    for i, line in enumerate(axes.lines):
        smooth = mean_over_runs(moving_average(rewards[i], 10))
        np.testing.assert_allclose(line.get_ydata(), smooth.mean)
        band = axes.collections[i].get_paths()[0].vertices
        assert smooth.interval is not None
        assert band[:, 1].max() == pytest.approx(smooth.interval[1].max())
        assert band[:, 1].min() == pytest.approx(smooth.interval[0].min())
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["high", "$mid$", "low"]


def test_truth_values_are_shares_and_no_window_leaves_them() -> None:
    axes = plot_rewards(np.array([[[True, False], [True, True]]]), ["a"], None).axes[0]
    assert axes.lines[0].get_ydata().tolist() == [1.0, 0.5]
    assert axes.yaxis.get_major_formatter()(0.5, 0) == "50%"


@pytest.mark.parametrize(
    ("rewards", "names", "message"),
    [
        (np.ones((2, 3)), ["a", "b"], r"shape \(agents, runs, steps\)"),
        (np.ones((1, 0, 3)), ["a"], "shape"),
        (np.ones((2, 2, 3)), ["a"], "2 agents, but 1 names"),
    ],
)
def test_arrays_that_cannot_be_drawn(rewards: np.ndarray, names: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        plot_rewards(rewards, names)
