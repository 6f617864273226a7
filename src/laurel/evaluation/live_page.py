"""The page of learning curves while agents train: one file, which a browser reloads by itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from laurel.evaluation.arms import ordered
from laurel.evaluation.formats import number, steps
from laurel.evaluation.plots import learning_curves, svg
from laurel.evaluation.report import inline
from laurel.evaluation.run_page import in_words
from laurel.evaluation.style import DARK
from laurel.evaluation.words import key_in_words
from laurel.params.arm_infos import ArmInfo

DRAWS = 100
"""Bootstrap draws of an interval: fewer than in the report, since the page is written again and again."""
FIGURES = {"success_curve": "success_rate", "return_curve": "return_mean"}
MOVED = (
    '<!doctype html>\n<meta http-equiv="refresh" content="0; url=report.html">\n<a href="report.html">The report</a>\n'
)
"""The page that replaces this one once there is a report."""


@dataclass(frozen=True)
class Live:
    """The content of the page."""

    title: str
    """The environment's id."""
    arms: Sequence[ArmInfo]
    agents: Mapping[str, int]
    """Arm -> agents to train."""
    done: int
    """Environment steps, of all agents."""
    total: int
    seconds_left: float | None = None
    finished: Mapping[str, int] = field(default_factory=dict)
    """Arm -> agents that are trained."""
    every: int = 10
    """Seconds after which a browser loads the page again."""
    ended: bool = False


def curve_figures(live: Live, curves: pd.DataFrame) -> list[Markup]:
    """Draw the learning curves so far; one row per update of an agent, as `evaluate` gathers them."""
    places = {info.name: place for place, info in enumerate(live.arms)}
    return [
        inline(name, svg(learning_curves(curves, column, live.arms, draws=DRAWS)), places)
        for name, column in FIGURES.items()
        if curves[column].notna().any()
    ]


def render_live(live: Live, curves: pd.DataFrame, figures: Sequence[Markup]) -> str:
    """Return the page as one HTML document.

    Args:
        live: how far training is.
        curves: one row per update of an agent: arm, seed and the columns of CURVE_SCHEMA.
    """
    environment = Environment(loader=PackageLoader("laurel.evaluation"), autoescape=True, undefined=StrictUndefined)
    environment.filters.update(number=number, steps=steps, words=key_in_words)
    values: dict[str, Any] = {
        "title": live.title,
        "every": live.every,
        "ended": live.ended,
        "done": live.done,
        "total": live.total,
        "share": live.done / max(live.total, 1),
        "left": None if live.ended or live.seconds_left is None else in_words(live.seconds_left),
        "now": time.strftime("%H:%M:%S"),
        "rows": [_row(info.name, live, curves) for info in ordered(live.arms) if info.name in live.agents],
        "has_success": bool(len(curves)) and bool(curves["success_rate"].notna().any()),
        "figures": figures,
        "dark": {color[1:]: replacement for color, replacement in DARK.items()},
    }
    return environment.get_template("live.html.j2").render(values)


def _row(arm: str, live: Live, curves: pd.DataFrame) -> dict[str, Any]:
    """Return an arm's current figures: the mean of the last figures of its agents."""
    last = curves[curves["arm"] == arm].groupby("seed").last()
    known = {column: last[column].dropna() for column in ("return_mean", "success_rate")}
    mean = {column: float(values.mean()) if len(values) else None for column, values in known.items()}
    return {
        "arm": arm,
        "agents": live.agents[arm],
        "finished": live.finished.get(arm, 0),
        "steps": int(last["env_steps"].max()) if len(last) else 0,
        "returned": mean["return_mean"],
        "success": mean["success_rate"],
    }
