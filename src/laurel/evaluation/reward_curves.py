"""Reward curves of the classics: means over runs with 95% intervals, from arrays (agents, runs, steps or episodes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from laurel.arrays import DoubleArray
from laurel.errors import DataError
from laurel.evaluation.style import drawing

COLORS = ("#0072B2", "#D55E00", "#009E73", "#C0609A", "#B07C00", "#4BA3D3", "#000000", "#7A7A7A")
"""After Okabe and Ito (https://jfly.uni-koeln.de/color/), distinguishable with any form of colour vision."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Means over runs, with intervals."""

    mean: DoubleArray
    interval: tuple[DoubleArray, DoubleArray] | None
    """95% interval; None with a single run."""


def moving_average(values: npt.ArrayLike, window: int) -> DoubleArray:
    """Average the last axis over the last `window` values, or as many as there are at the beginning."""
    array = np.asarray(values, dtype=np.float64)
    if window < 1:
        raise DataError(f"A moving average needs a window of 1 or more, not {window}.")
    n = array.shape[-1]
    total = np.concatenate([np.zeros((*array.shape[:-1], 1)), array.cumsum(axis=-1)], axis=-1)
    begin = np.maximum(np.arange(1, n + 1) - window, 0)
    return (total[..., 1:] - total[..., begin]) / (np.arange(1, n + 1) - begin)


def mean_over_runs(values: npt.ArrayLike) -> Estimate:
    """Return the mean over the first axis, with Student's 95% interval."""
    array = np.asarray(values, dtype=np.float64)
    mean, runs = array.mean(axis=0), len(array)
    if runs < 2:
        return Estimate(mean, None)
    half = scipy.stats.t.ppf(0.975, runs - 1) * array.std(axis=0, ddof=1) / np.sqrt(runs)
    return Estimate(mean, (mean - half, mean + half))


def plot_rewards(rewards: npt.ArrayLike, names: Sequence[str], moving_avg_window: int | None = 15) -> Figure:
    """Draw the rewards of agents, a line each; the legend begins with the highest at the end.

    Args:
        rewards: (agents, runs, steps); truth values are drawn as shares.
        moving_avg_window: steps over which each run is averaged; None no averaging.

    Raises:
        DataError: the array is not of that shape, or has another number of agents than names.
    """
    with drawing(6.4, 3.7) as figure:
        draw_rewards(figure.subplots(), rewards, names, moving_avg_window, title="Reward")
        return figure


def draw_rewards(
    axes: Axes,
    rewards: npt.ArrayLike,
    names: Sequence[str],
    moving_avg_window: int | None,
    *,
    title: str,
    xlabel: str = "step",
    legend: bool = True,
) -> None:
    """Draw as `plot_rewards` does, into a panel of another figure."""
    array = np.asarray(rewards)
    if array.ndim != 3 or 0 in array.shape:
        raise DataError(f"Rewards have the shape (agents, runs, steps), not {array.shape}.")
    if len(array) != len(names):
        raise DataError(f"There are rewards of {len(array)} agents, but {len(names)} names.")
    x = np.arange(1, array.shape[2] + 1)
    lines = []
    for i, of_agent in enumerate(array):
        smooth = of_agent if moving_avg_window is None else moving_average(of_agent, moving_avg_window)
        estimate, color = mean_over_runs(smooth), COLORS[i % len(COLORS)]
        if estimate.interval is not None:
            axes.fill_between(x, *estimate.interval, color=color, alpha=0.15, lw=0)
        dash = "-" if i < len(COLORS) else "--"
        (line,) = axes.plot(x, estimate.mean, color=color, ls=dash, lw=1.4, label=names[i])
        lines.append((float(estimate.mean[-1]), line))
    axes.set_title(title)
    axes.set_xlabel(xlabel)
    axes.set_xlim(0, array.shape[2])
    if array.dtype == np.bool_:
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0, decimals=0))
    if legend:
        ordered = [line for _, line in sorted(lines, key=lambda entry: -entry[0])]
        axes.legend(
            handles=ordered, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, labelcolor="linecolor"
        )
