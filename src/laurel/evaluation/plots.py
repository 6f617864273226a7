"""The figures of the report and the README, drawn from tables and written with the same bytes each time."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from laurel.arrays import DoubleArray
from laurel.data.quality import REFERENCES
from laurel.evaluation.arms import arms_of, main_of, ordered
from laurel.evaluation.divergence import divergence_curve
from laurel.evaluation.formats import in_scale, steps
from laurel.evaluation.label_report import calibrations
from laurel.evaluation.statistics import areas, curve_band, return_range, seed_scores
from laurel.evaluation.style import BAND, INK, MUTED, POSITIVE, ArmStyle, drawing, mark, settings, styles
from laurel.params.arm_infos import ArmInfo

LOG = "_log"
"""Suffix of the names of curves over a logarithmic axis, which only the report has."""
MAX_POINTS = 200
"""Episodes of an arm shown in the scatter; more are thinned evenly."""


def draw(
    results: pd.DataFrame,
    curves: pd.DataFrame,
    metrics: Mapping[str, Any],
    *,
    calibration: Sequence[Mapping[str, float]] = (),
    draws: int = 1000,
    seed: int = 0,
) -> dict[str, Figure]:
    """Draw every figure that the data allows.

    Returns:
        name -> figure, of `success_curve`, `return_curve` (with LOG after the name: over the logarithm of steps),
        `arms`, `calibration`, `label_calibration`, `divergence`, `reward_vs_return`.
    """
    arms, infos = metrics["arms"], arms_of(metrics)
    figures: dict[str, Figure] = {}
    if len(curves):
        for name, column, measure in (
            ("success_curve", "success_rate", "success"),
            ("return_curve", "return_mean", "return"),
        ):
            if curves[column].notna().any():
                levels = {arm: entry[measure]["mean"] for arm, entry in arms.items() if _has_no_curve(entry, measure)}
                for suffix, log in (("", False), (LOG, True)):
                    figures[f"{name}{suffix}"] = learning_curves(
                        curves, column, infos, levels=levels, draws=draws, seed=seed, log=log
                    )
    figures["arms"] = forest(arms, infos, results, curves)
    if calibration:
        figures["calibration"] = calibration_curve(
            {"": calibration},
            low=0.0,
            title="Calibration on held-out pairs",
            xlabel="predicted probability (area: predictions)",
            ylabel="mean label",
        )
    if references := calibrations(metrics.get("annotation", {})):
        figures["label_calibration"] = calibration_curve(
            {f"according to {REFERENCES[name]}": bins for name, bins in references.items()},
            low=0.5,
            title="Calibration of the labels",
            xlabel="confidence of the label (area: pairs)",
            ylabel="share that is right",
        )
    if "reference_kl" in curves:
        figures["divergence"] = divergence_curve(curves, infos)
    if results["shaped_reward"].notna().any():
        figures["reward_vs_return"] = reward_scatter(results, infos)
    return figures


def _has_no_curve(entry: Mapping[str, Any], measure: str) -> bool:
    return not entry["env_steps"] and bool(entry[measure]) and entry[measure]["mean"] is not None


def learning_curves(
    curves: pd.DataFrame,
    column: str,
    arms: Sequence[ArmInfo],
    *,
    levels: Mapping[str, float] | None = None,
    draws: int = 1000,
    seed: int = 0,
    log: bool = False,
) -> Figure:
    """Draw each arm's mean over seeds of the last episodes over environment steps, and 95% intervals.

    Intervals of many arms over each other cannot be read: all but the main arm's are marked as `hidden`. `save` leaves
    them out, and the report shows them on request.

    Args:
        curves: one row per update of a training run.
        column: `success_rate` or `return_mean`.
        levels: arms that did not train -> their level, drawn as a horizontal line.
        draws: of the intervals.
        log: environment steps on a logarithmic axis.
    """
    is_rate = column == "success_rate"
    low, high = (0.0, 1.0) if is_rate else return_range(curves)
    looks, main = styles(arms), main_of(arms)
    with drawing(5.9, 3.9) as figure:
        axes = figure.subplots()
        ends: list[tuple[str, float]] = []
        for info in ordered(arms):
            runs = curves[curves["arm"] == info.name]
            if runs[column].notna().any():
                band = curve_band(runs, column, low, high, draws=draws, seed=seed)
                ends += _draw_curve(axes, info.name, looks[info.name], band, hides_band=info is not main)
        for arm, level in (levels or {}).items():
            look = looks[arm]
            line = axes.axhline(level, color=look.color, ls=look.dash, lw=look.width, zorder=look.order)
            line.set_gid(mark(arm, "line"))
            ends.append((arm, level))
        axes.set_title("Success rate while training" if is_rate else "Return while training")
        _scale_steps(axes, curves["env_steps"], log=log)
        if is_rate:
            axes.set_ylim(-0.03, 1.03)
            axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0, decimals=0))
        _label_ends(axes, ends, looks, main.name if main else None)
    axes.set_gid(_scale(figure, axes, is_rate=is_rate, log=log))
    return figure


def _draw_curve(
    axes: Axes, arm: str, look: ArmStyle, band: Mapping[str, DoubleArray], *, hides_band: bool
) -> list[tuple[str, float]]:
    """Draw an arm's mean and its intervals; return the arm with its last value, if there is any."""
    x, known = band["env_steps"], band["mean"][np.isfinite(band["mean"])]
    shade = axes.fill_between(x, band["low"], band["high"], color=look.color, alpha=BAND, lw=0, zorder=look.order)
    shade.set_gid(mark(arm, "band hidden" if hides_band else "band"))
    (line,) = axes.plot(
        x, band["mean"], **look.line, zorder=look.order + 5, marker=look.marker, markersize=3.5, markevery=0.1
    )
    line.set_gid(mark(arm, "line"))
    if len(known) == 1:  # invisible in a line plot
        line.set(marker="o", markersize=4, markevery=None, clip_on=False)
    return [(arm, float(known[-1]))] if len(known) else []


def _scale_steps(axes: Axes, env_steps: pd.Series, *, log: bool) -> None:
    """Scale the x axis to environment steps."""
    axes.set_xlabel("environment steps")
    if log:
        axes.set_xscale("log")
        axes.set_xlim(float(env_steps.min()), float(env_steps.max()) * 1.0001)
        axes.xaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    else:
        axes.set_xlim(left=0, right=float(env_steps.max()))
        axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(5))
    axes.xaxis.set_major_formatter(lambda value, _: steps(value))


def _scale(figure: Figure, axes: Axes, *, is_rate: bool, log: bool) -> str:
    """Return an SVG id with the scale of the axes, from which pages compute the values at positions.

    Four positions in points (left, right, bottom, top), the four values there, whether x is logarithmic, and whether y
    is a rate.
    """
    width, height = 72 * figure.get_size_inches()
    box = axes.get_position()
    places = [box.x0 * width, box.x1 * width, (1 - box.y0) * height, (1 - box.y1) * height]
    numbers = [*places, *axes.get_xlim(), *axes.get_ylim(), int(log), int(is_rate)]
    return f"scale {' '.join(f'{number:.6g}' for number in numbers)}"


def _label_ends(axes: Axes, ends: Sequence[tuple[str, float]], looks: Mapping[str, ArmStyle], main: str | None) -> None:
    """Name each line at its right end, moving names apart where they would overlap."""
    low, high = axes.get_ylim()
    gap = 0.058
    ordered = sorted(ends, key=lambda end: end[1])
    places = [(value - low) / (high - low) for _, value in ordered]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    top = 1.0
    for i in reversed(range(len(places))):  # those pushed out at the top push the others back down
        places[i] = min(places[i], top)
        top = places[i] - gap
    for (arm, _), place in zip(ordered, places, strict=True):
        name = axes.text(
            1.015,
            place,
            arm.replace("_", " "),
            color=looks[arm].color,
            weight="bold" if arm == main else "normal",
            size=9,
            va="center",
            transform=axes.transAxes,
        )
        name.set_gid(mark(arm, "name"))


def forest(
    arms: Mapping[str, Mapping[str, Any]], infos: Sequence[ArmInfo], results: pd.DataFrame, curves: pd.DataFrame
) -> Figure:
    """Draw every seed of each arm as a dot, above their mean with its 95% interval."""
    shown, looks = [info.name for info in infos], styles(infos)
    main_info = main_of(infos)
    main = main_info.name if main_info else None
    scores = seed_scores(results).merge(areas(curves), on=["arm", "seed"], how="left")
    measures = [("success", "Success rate"), ("return", "Return"), ("area", "Return while training")]
    measures = [(key, title) for key, title in measures if any(arms[arm][key] for arm in shown)]
    with drawing(2.2 + 2.6 * len(measures), 0.9 + 0.42 * len(shown)) as figure:
        panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
        for axes, (key, title) in zip(panels, measures, strict=True):
            for row, arm in enumerate(shown):
                entry, look = arms[arm][key], looks[arm]
                if arm == main:
                    axes.axhspan(row - 0.5, row + 0.5, color=look.color, alpha=0.07, lw=0)
                if not entry or entry["mean"] is None:
                    continue
                known = scores[(scores["arm"] == arm) & scores[key].notna()].sort_values([key, "seed"])
                dots = known[key].to_numpy(dtype=np.float64)
                drawn = axes.scatter(dots, row - 0.2 + _apart(dots), s=13, color=look.color, alpha=0.65, lw=0, zorder=5)
                values = (in_scale(value, entry) for value in dots)
                seeds = (f"{seed}={value}" for seed, value in zip(known["seed"], values, strict=True))
                drawn.set_gid(mark(arm, f"dots {' '.join(seeds)}"))
                if entry["ci95"]:
                    axes.plot(entry["ci95"], [row + 0.24] * 2, color=look.color, lw=1.6, alpha=0.8, zorder=4)
                axes.plot(entry["mean"], row + 0.24, "D", color=look.color, ms=5.5, mec="white", mew=0.8, zorder=6)
                axes.text(
                    1.02,
                    row,
                    in_scale(entry["mean"], entry),
                    va="center",
                    size=8.5,
                    color=look.color if arm == main else MUTED,
                    weight="bold" if arm == main else "normal",
                    transform=axes.get_yaxis_transform(),
                )
            axes.set_title(title)
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0)
            if key == "success":
                axes.set_xlim(-0.04, 1.04)
                axes.xaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0, decimals=0))
            else:
                axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(4))
        panels[0].set_yticks(range(len(shown)), [arm.replace("_", " ") for arm in shown], color=INK)
        panels[0].set_ylim(len(shown) - 0.5, -0.5)
        for label, arm in zip(panels[0].get_yticklabels(), shown, strict=True):
            label.set_weight("bold" if arm == main else "normal")
        return figure


def _apart(ordered: DoubleArray) -> DoubleArray:
    """Return how far each dot is moved up or down, so that seeds with one score are all seen."""
    span = float(ordered[-1] - ordered[0])
    crowded = np.diff(ordered, prepend=-np.inf) <= 0.04 * max(span, 1e-9)
    place = np.zeros(len(ordered))
    for i in np.flatnonzero(crowded):
        place[i] = (place[i - 1] + 1) % 4
    return 0.085 * (place - 1.5)


def calibration_curve(
    series: Mapping[str, Sequence[Mapping[str, Any]]], *, low: float, title: str, xlabel: str, ylabel: str
) -> Figure:
    """Draw how often something is true against its predicted probability.

    Args:
        series: name -> bins, each with `p`, the mean probability, the share `observed` that is true, how many `pairs`
            there are, and maybe the share's interval `ci95`. Series with a name are in the legend.
        title: of the figure, as xlabel and ylabel.
    """
    looks = [(POSITIVE, "o"), ("#C0609A", "D")]
    with drawing(4.6, 3.9) as figure:
        axes = figure.subplots()
        axes.plot([low, 1], [low, 1], color="#9aa0a8", lw=1.0, ls=(0, (3, 2)))
        largest = max((entry["pairs"] for bins in series.values() for entry in bins), default=1)
        for place, (name, bins) in enumerate(series.items()):
            kept, (color, marker) = [entry for entry in bins if entry["pairs"]], looks[place]
            aside = 0.007 * (place - (len(series) - 1) / 2)  # so that neither covers the other
            p, observed = [entry["p"] + aside for entry in kept], [entry["observed"] for entry in kept]
            if all("ci95" in entry for entry in kept):
                bounds = np.array([entry["ci95"] for entry in kept]).reshape(-1, 2)
                axes.vlines(p, *bounds.T, color=color, lw=1.3, alpha=0.55, zorder=3)
            else:
                axes.plot(p, observed, color=color, lw=1.4, zorder=3)
            area = [14 + 110 * entry["pairs"] / largest for entry in kept]
            look: dict[str, Any] = {"color": color, "marker": marker, "alpha": 0.9, "ec": "white", "lw": 0.8}
            axes.scatter(p, observed, s=area, zorder=4, label=name or None, **look)
        margin = 0.04 * (1 - low)
        axes.set(xlim=(low - margin, 1 + margin), ylim=(-0.03, 1.03), title=title, xlabel=xlabel, ylabel=ylabel)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(mpl.ticker.PercentFormatter(1.0, decimals=0))
        if any(series):
            figure.legend(frameon=False, loc="outside lower center", fontsize=8.5)
        return figure


def reward_scatter(results: pd.DataFrame, infos: Sequence[ArmInfo]) -> Figure:
    """Draw learned reward against true return, a panel for each arm, with the other arms in grey behind."""
    known = results[results["shaped_reward"].notna()].astype({"shaped_reward": "float64"})
    played, looks, main_info = set(known["arm"]), styles(infos), main_of(infos)
    arms = [info.name for info in ordered(infos) if info.name in played]
    main = main_info.name if main_info else None
    n_columns = min(4, len(arms))
    n_rows = -(-len(arms) // n_columns)
    thinned = {arm: _thin(known[known["arm"] == arm]) for arm in arms}
    with drawing(1.3 + 2.05 * n_columns, 0.75 + 1.75 * n_rows) as figure:
        panels = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes, arm in zip(panels, arms, strict=False):
            rest = pd.concat([rows for name, rows in thinned.items() if name != arm] or [known.head(0)])
            axes.scatter(rest["return"], rest["shaped_reward"], s=5, color="#d5d8dd", lw=0, rasterized=True)
            dots = thinned[arm]
            axes.scatter(
                dots["return"], dots["shaped_reward"], s=12, color=looks[arm].color, alpha=0.55, lw=0, zorder=3
            )
            axes.set_title(
                arm.replace("_", " "), size=9.5, color=looks[arm].color, weight="bold" if arm == main else "normal"
            )
            axes.margins(0.08)
            axes.locator_params(nbins=4)
        for axes in panels[len(arms) :]:
            axes.set_visible(False)
        for place, axes in enumerate(panels[: len(arms)]):
            axes.xaxis.set_tick_params(labelbottom=place + n_columns >= len(arms))
        figure.supxlabel("true return of the episode", size=9, color=MUTED)
        figure.supylabel("learned reward of the episode", size=9, color=MUTED)
        return figure


def _thin(rows: pd.DataFrame) -> pd.DataFrame:
    if len(rows) <= MAX_POINTS:
        return rows
    return rows.iloc[np.linspace(0, len(rows) - 1, MAX_POINTS).astype(np.int64)]


def svg(figure: Figure) -> str:
    """Return a figure as SVG; the same data gives the same text."""
    buffer = io.StringIO()
    with settings():
        figure.savefig(buffer, format="svg", metadata={"Date": None}, facecolor="white")
    return buffer.getvalue()


def save(figure: Figure, directory: Path, name: str) -> str:
    """Write `name`.png (twice the size) and `name`.svg into a directory; return the whole figure as `svg` does.

    Elements marked as `hidden` are left out of the files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    markup = svg(figure)
    (directory / f"{name}.svg").write_text(_HIDDEN.sub("", markup), encoding="utf-8")
    hidden = [artist for artist in figure.findobj(include_self=False) if "hidden" in str(artist.get_gid())]
    for artist in hidden:
        artist.set_visible(False)
    with settings():
        figure.savefig(directory / f"{name}.png", dpi=200, facecolor="white")
    for artist in hidden:
        artist.set_visible(True)
    return markup


_HIDDEN = re.compile(r'(?m)^( *)<g id="[^"]* hidden">\n(?:.*\n)*?\1</g>\n')
"""An element that is marked as hidden, as matplotlib writes it."""
