"""The figures of a search: parameter importance, score over each parameter, and the best score so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from laurel.arrays import DoubleArray
from laurel.evaluation.style import INK, MUTED, NEGATIVE, POSITIVE, drawing
from laurel.params.search import Searched, Space
from laurel.seeding import generator
from laurel.tuning.importance import Importance
from laurel.tuning.trials import Trial, best, rounded_text

ACROSS = 3
BANDWIDTH = 0.12
"""Bandwidth of the trend, as a share of a parameter's range."""
TREND_TRIALS = 8
"""Minimum number of complete trials for trends and intervals of means."""
RESAMPLES = 1000
"""Resamples of the bootstrap."""


def draw(space: Space, trials: Sequence[Trial], importances: Mapping[str, Importance], score: str) -> dict[str, Figure]:
    """Draw every figure that the trials allow.

    Args:
        trials: all of them; at least one is complete.
        importances: of each parameter; none where they are not known.
        score: what the score is, for the axes.

    Returns:
        name -> figure, of `history`, `parameters`, `importance`.
    """
    figures = {"history": history(trials, score), "parameters": parameters(space, trials, score)}
    if importances:
        figures["importance"] = importance(importances)
    return figures


def importance(importances: Mapping[str, Importance]) -> Figure:
    """Draw how much each parameter matters for being among the best trials, with its interval."""
    names = list(importances)
    with drawing(5.9, 0.9 + 0.34 * len(names)) as figure:
        axes = figure.subplots()
        shares = [found.share for found in importances.values()]
        axes.barh(range(len(names)), shares, height=0.62, color=POSITIVE, alpha=0.6, zorder=3)
        for place, found in enumerate(importances.values()):
            axes.plot([found.low, found.high], [place, place], color=INK, lw=1.2, zorder=4)
        axes.set_yticks(range(len(names)), names, color=INK)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(0, 1)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_title("What the best trials have in common")
        axes.set_xlabel("importance (PED-ANOVA; sums to 1) · line: 95% interval")
        return figure


def history(trials: Sequence[Trial], score: str) -> Figure:
    """Draw the score of each trial and the best so far; pruned trials at the score at which they ended."""
    with drawing(5.9, 3.4) as figure:
        axes = figure.subplots()
        scored = [trial for trial in trials if trial.score is not None]
        pruned = [trial for trial in trials if trial.state == "pruned" and trial.reports]
        axes.scatter(
            [trial.number for trial in pruned],
            [trial.reports[-1][1] for trial in pruned],
            s=16,
            marker="x",
            color=MUTED,
            alpha=0.7,
            lw=0.9,
            label="pruned",
        )
        numbers = [trial.number for trial in scored]
        scores = np.array([trial.score for trial in scored], dtype=np.float64)
        axes.scatter(numbers, scores, s=20, color=POSITIVE, alpha=0.8, lw=0, zorder=3, label="complete")
        axes.step(numbers, np.maximum.accumulate(scores), where="post", color=NEGATIVE, lw=1.6, label="best so far")
        axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(6, integer=True))
        axes.set_title("Trials")
        axes.set_xlabel("trial")
        axes.set_ylabel(score)
        axes.legend(frameon=False, fontsize=8.5, labelcolor=MUTED, loc="best")
        return figure


def parameters(space: Space, trials: Sequence[Trial], score: str) -> Figure:
    """Draw the score over each parameter, a panel each: complete trials, their local mean, and the best one."""
    scored = [trial for trial in trials if trial.score is not None]
    chosen = best(trials)
    n_columns = min(ACROSS, len(space))
    n_rows = -(-len(space) // n_columns)
    with drawing(0.8 + 2.5 * n_columns, 0.5 + 2.2 * n_rows) as figure:
        panels = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False).ravel()
        for axes, (name, searched) in zip(panels, space.items(), strict=False):
            _panel(axes, name, searched, scored, chosen)
            ended = _places(searched, [trial.values[name] for trial in trials if trial.score is None])
            axes.plot(ended, np.full(len(ended), 0.015), "|", color=MUTED, ms=6, transform=axes.get_xaxis_transform())
        for axes in panels[len(space) :]:
            axes.set_visible(False)
        figure.supylabel(score, size=9, color=MUTED)
        remark = "circle: the best trial · band, bar: 95% interval of the mean · ticks below: pruned or failed"
        figure.supxlabel(remark, size=9, color=MUTED)
        return figure


def _panel(axes: Axes, name: str, searched: Searched, scored: Sequence[Trial], chosen: Trial) -> None:
    scores = np.array([trial.score for trial in scored], dtype=np.float64)
    x = _places(searched, [trial.values[name] for trial in scored])
    axes.scatter(x, scores, s=16, color=POSITIVE, alpha=0.55, lw=0, zorder=3, clip_on=False)
    (position,) = _places(searched, [chosen.values[name]])
    axes.scatter(
        [position], [chosen.score or 0.0], s=46, facecolor="none", edgecolor=NEGATIVE, lw=1.5, zorder=5, clip_on=False
    )
    if searched.choices is None:
        if searched.log:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1.0, 3.0) if _decades(searched) < 3 else (1.0,)))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")  # the default writes powers of ten
            axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        else:
            axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(4))
        axes.set_xlim(searched.low, searched.high)
        if len(scored) >= TREND_TRIALS:
            grid, weights = nearness(x, log=searched.log)
            trend, low, high = weighted_means(weights, scores)
            axes.fill_between(grid, low, high, color=POSITIVE, alpha=0.15, lw=0, zorder=2)
            axes.plot(grid, trend, color=POSITIVE, lw=1.8, zorder=4)
    else:
        axes.set_xticks(range(len(searched.choices)), [rounded_text(choice) for choice in searched.choices])
        axes.set_xlim(-0.5, len(searched.choices) - 0.5)
        for place in np.unique(x):
            of_choice = scores[x == place]
            (mean,), (low,), (high,) = weighted_means(np.ones((1, len(of_choice))), of_choice)
            axes.plot([place - 0.25, place + 0.25], [mean, mean], color=POSITIVE, lw=1.8, zorder=4)
            if len(of_choice) >= TREND_TRIALS:
                axes.bar(place, high - low, 0.5, low, color=POSITIVE, alpha=0.15, lw=0, zorder=2)
    axes.set_title(name, size=9)


def _decades(searched: Searched) -> float:
    assert searched.low is not None
    assert searched.high is not None
    return math.log10(searched.high / searched.low)


def _places(searched: Searched, values: Sequence[object]) -> DoubleArray:
    if searched.choices is None:
        return np.array(values, dtype=np.float64)
    return np.array([searched.choices.index(value) for value in values], dtype=np.float64)


def nearness(x: DoubleArray, *, log: bool) -> tuple[DoubleArray, DoubleArray]:
    """Return a grid over the range of points, (100,), and kernel weights of the points at each grid point, (100, N).

    A mean with these weights is a smooth curve through the points (Nadaraya-Watson regression with a Gaussian kernel).

    Args:
        x: (N,) places of the points.
        log: whether nearness is measured on a log scale.
    """
    place = np.log(x) if log else x
    grid = np.linspace(place.min(), place.max(), 100)
    width = max(BANDWIDTH * float(np.ptp(place)), 1e-12)
    weights = np.exp(-0.5 * ((grid[:, None] - place[None, :]) / width) ** 2)
    return np.exp(grid) if log else grid, weights


def weighted_means(weights: DoubleArray, values: DoubleArray) -> tuple[DoubleArray, DoubleArray, DoubleArray]:
    """Return means of values, and the ends of their 95% bootstrap intervals, each (M,).

    Args:
        weights: (M, N), above 0.
        values: (N,), of which each resample draws N with replacement.
    """
    n = len(values)
    times = generator(0, "tune", "figures").multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    drawn = (times * values) @ weights.T / (times @ weights.T)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return weights @ values / weights.sum(axis=1), low, high
