"""Style of figures: a colour and a stroke for each arm, and matplotlib's settings; no pyplot.

Changes one setting for the whole process: matplotlib's own fonts go before the machine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.figure import Figure

from laurel.evaluation.arms import Group, groups_of, main_of
from laurel.params.arm_infos import ArmInfo


@dataclass(frozen=True, slots=True)
class ArmStyle:
    """Style of an arm in every figure."""

    color: str
    dash: Any = "-"
    width: float = 1.3
    alpha: float = 0.9
    order: int = 2
    """Arms with a higher number are drawn over others."""
    marker: str = "None"
    """Marker on the line, where a group has more arms than colours."""

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of matplotlib for a line of the arm, without its place above or below others."""
        return {"color": self.color, "ls": self.dash, "lw": self.width, "alpha": self.alpha}


@dataclass(frozen=True, slots=True)
class _GroupStyle:
    """Style of a group's arms: one colour after another, with a common stroke."""

    colors: tuple[str, ...]
    stroke: str
    look: ArmStyle


# colours after Okabe and Ito (https://jfly.uni-koeln.de/color/) and Tol (https://personal.sron.nl/~pault/),
# distinguishable with any form of colour vision
_GROUPS: Mapping[Group, _GroupStyle] = {
    "baseline": _GroupStyle(("#D55E00", "#882255", "#661100"), "solid", ArmStyle("", width=1.9, alpha=1.0, order=4)),
    "ours": _GroupStyle(
        ("#0072B2", "#009E73", "#332288", "#999933", "#AA4499"), "solid", ArmStyle("", width=1.5, order=3)
    ),
    "control": _GroupStyle(("#7A7A7A", "#B07C00", "#CC6677"), "dashed", ArmStyle("", (0, (4, 2)))),
    "contender": _GroupStyle(("#4BA3D3", "#44AA99", "#7B68C8"), "dashed", ArmStyle("", (0, (4, 2)))),
    "bound": _GroupStyle(("#C0609A", "#8C564B"), "dash-dotted", ArmStyle("", (0, (6, 2, 1.5, 2)))),
    "untrained": _GroupStyle(("#9A9A9A", "#5F6B7A"), "dotted", ArmStyle("", (0, (1, 1.6)), order=1)),
}
_MARKERS = ("None", "o", "s", "^", "D", "v")
_STROKES = {
    "solid": "methods and the environment's own reward",
    "dashed": "controls and other methods that they are compared with",
    "dash-dotted": "references with more information than a method may use, such as hand-written progress",
    "dotted": "agents that are not trained: their level on fresh episodes",
}
BAND = 0.18
"""Opacity of an interval."""


def styles(arms: Sequence[ArmInfo]) -> dict[str, ArmStyle]:
    """Return the style of each arm: a stroke for its group, and its own colour within the group."""
    groups, main = groups_of(arms), main_of(arms)
    looks: dict[str, ArmStyle] = {}
    for group, style in _GROUPS.items():
        for place, name in enumerate(name for name in groups if groups[name] == group):
            cycle, color = divmod(place, len(style.colors))
            looks[name] = replace(style.look, color=style.colors[color], marker=_MARKERS[cycle % len(_MARKERS)])
    if main is not None:
        looks[main.name] = replace(looks[main.name], width=2.7, alpha=1.0, order=5)
    return looks


def strokes(arms: Sequence[ArmInfo]) -> str:
    """Say in a sentence what the strokes of these arms mean."""
    shown = {_GROUPS[group].stroke for group in groups_of(arms).values()}
    parts = [f"{stroke}: {meaning}" for stroke, meaning in _STROKES.items() if stroke in shown]
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
    "#9a9a9a": "#8a8f96", "#1f77b4": "#5fb4e5", "#882255": "#d277a3", "#661100": "#c98a70", "#332288": "#9d90e8",
    "#999933": "#c9c96a", "#aa4499": "#d98acb", "#cc6677": "#e698a4", "#44aa99": "#7fd0c3", "#7b68c8": "#b3a6ee",
    "#8c564b": "#c99a90", "#5f6b7a": "#a3afbd",
}  # fmt: skip
"""Colour of a figure -> the same on a dark page."""

FONT = "DejaVu Sans"
"""It comes with matplotlib, so figures are the same on all machines."""
_RC: dict[str, Any] = {
    "font.family": FONT,
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


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure to draw into, and settle its layout.

    Without this, the layout moves a little each time a figure is written, so that the bytes differ.
    """
    with settings():
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        layout = figure.get_layout_engine()
        assert layout is not None, "as the figure was made"
        for _ in range(2):
            layout.execute(figure)
        figure.set_layout_engine("none")


@contextmanager
def settings() -> Iterator[None]:
    """Draw with Laurel's settings on top of matplotlib's own defaults, whatever the user's matplotlibrc says."""
    _own_fonts_first()
    parameters: dict[Any, Any] = {**mpl.rcParamsDefault, **_RC, "backend": "agg"}
    with mpl.rc_context(parameters):
        yield


def _own_fonts_first() -> None:
    """Make matplotlib prefer its own copy of FONT to the machine's, whose glyphs have other numbers in SVG."""
    data_path, manager = Path(mpl.get_data_path()), font_manager.fontManager
    first = next((font.fname for font in manager.ttflist if font.name == FONT), "")
    if data_path not in Path(first).parents:
        fonts, manager.ttflist = manager.ttflist, []
        for file in sorted((data_path / "fonts" / "ttf").glob("DejaVuSans*.ttf")):
            manager.addfont(file)
        manager.ttflist += fonts
