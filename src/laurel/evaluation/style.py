"""How figures look: a colour and a stroke for each arm, and matplotlib's settings.

Knows nothing about what is drawn. Uses matplotlib's figures directly: no pyplot, no global state, any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class ArmStyle:
    """How an arm looks in every figure."""

    color: str
    dash: Any = "-"
    width: float = 1.3
    alpha: float = 0.9
    order: int = 2
    """Arms with a higher number are drawn over others."""


DASHED, DASH_DOTTED, DOTTED = (0, (4, 2)), (0, (6, 2, 1.5, 2)), (0, (1, 1.6))
STYLES: Mapping[str, ArmStyle] = {
    # colours after Okabe and Ito (https://jfly.uni-koeln.de/color/), told apart with any colour vision
    "extrinsic": ArmStyle("#D55E00", width=1.9, alpha=1.0, order=4),
    "preference": ArmStyle("#0072B2", width=2.7, alpha=1.0, order=5),
    "intrinsic_only": ArmStyle("#009E73", width=1.5, order=3),
    "random_reward": ArmStyle("#7A7A7A", DASHED),
    "shuffled_labels": ArmStyle("#B07C00", DASHED),
    "similarity": ArmStyle("#4BA3D3", DASHED),
    "oracle": ArmStyle("#C0609A", DASH_DOTTED),
    "random_policy": ArmStyle("#9A9A9A", DOTTED, order=1),
}
_OTHER = ArmStyle("#000000", DASHED)
LINES = (
    ("solid", ("extrinsic", "preference", "intrinsic_only"), "learned rewards and the environment's own"),
    ("dashed", ("random_reward", "shuffled_labels", "similarity"), "controls"),
    ("dash-dotted", ("oracle",), "hand-written progress, for reference"),
    ("dotted", ("random_policy",), "random actions, which are not trained: their level on fresh episodes"),
)
"""Stroke -> arms that have it, and what they have in common."""
BAND = 0.18
"""Opacity of an interval."""


def strokes(arms: Iterable[str]) -> str:
    """Say in a sentence what the strokes of these arms mean."""
    shown = set(arms)
    parts = [f"{stroke}: {what}" for stroke, those, what in LINES if shown & set(those)]
    return f"Lines are {'; '.join(parts)}." if parts else ""


def mark(arm: str, part: str) -> str:
    """Return the id of a part of an arm in a figure, which pages find it by."""
    return f"arm:{arm} {part}"


INK, MUTED, GRID = "#26292e", "#6b7280", "#e4e6ea"
POSITIVE, NEGATIVE = "#0072B2", "#D55E00"

DARK: Mapping[str, str] = {
    "#ffffff": "#1d2024", "#000000": "#e6e4df", "#26292e": "#e6e4df", "#6b7280": "#9ea5af", "#e4e6ea": "#31353b",
    "#c4c8ce": "#4a5058", "#9aa0a8": "#737a84", "#d5d8dd": "#3d4249", "#d55e00": "#f0894a", "#0072b2": "#5fb4e5",
    "#009e73": "#3fcfa3", "#7a7a7a": "#a8a8a8", "#b07c00": "#dcae45", "#4ba3d3": "#8fcdf0", "#c0609a": "#e08cc0",
    "#9a9a9a": "#8a8f96", "#1f77b4": "#5fb4e5",
}  # fmt: skip
"""Colour of a figure -> the same on a dark page."""

_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures are alike on all machines
    "font.size": 9.5,
    "text.parse_math": False,  # captions are data: a dollar sign is a dollar sign
    "text.color": INK,
    "axes.edgecolor": "#c4c8ce",
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": "#c4c8ce",
    "ytick.color": "#c4c8ce",
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "lines.solid_capstyle": "round",
    "lines.dash_capstyle": "butt",
    "svg.hashsalt": "laurel",
    "svg.fonttype": "path",
    "path.simplify": True,
}


def style(arm: str) -> ArmStyle:
    """Return how an arm looks; arms that are not Laurel's own are black."""
    return STYLES.get(arm, _OTHER)


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure to draw into, and settle its layout.

    Left to itself the layout moves a little each time a figure is written, and with it the bytes.
    """
    with settings():
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        for _ in range(2):
            figure.draw_without_rendering()
        figure.set_layout_engine("none")


@contextmanager
def settings() -> Iterator[None]:
    """Draw with Laurel's settings on top of matplotlib's own defaults, whatever the user's matplotlibrc says."""
    parameters: dict[Any, Any] = {**mpl.rcParamsDefault, **_RC, "backend": "agg"}
    with mpl.rc_context(parameters):
        yield
