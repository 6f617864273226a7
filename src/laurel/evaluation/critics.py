"""Critics of language models against values by dynamic programming (`laurel.agents.language_model.calibration`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure
from safetensors import safe_open

from laurel.agents.language_model.calibration import KEPT, Calibration
from laurel.evaluation.formats import number
from laurel.evaluation.style import POSITIVE, drawing
from laurel.training.checkpoint import OPTIMIZER

_ACROSS = 4


def read_calibration(agent: Path) -> Calibration | None:
    """Return how a trained agent's critic valued states; None for an agent without such a critic."""
    with safe_open(agent / OPTIMIZER, framework="np") as kept:
        names = [f"{KEPT}{name}" for name in Calibration._fields]
        return Calibration(*map(kept.get_tensor, names)) if set(names) <= set(kept.keys()) else None


def critic_figure(critics: Mapping[str, Calibration]) -> Figure:
    """Draw the values of states by their critics over those by dynamic programming, a panel for each arm."""
    n_columns = min(_ACROSS, len(critics))
    n_rows = -(-len(critics) // n_columns)
    with drawing(max(3.2, 2.5 * n_columns), 3.0 * n_rows) as figure:
        panels = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True).reshape(-1)
        for axes, (arm, calibration) in zip(panels, critics.items(), strict=False):
            ends = [calibration.values.min(), calibration.values.max()]
            axes.plot(ends, ends, color="#9aa0a8", lw=1.0, ls=(0, (3, 2)))
            axes.scatter(calibration.values, calibration.critic, s=14, color=POSITIVE, alpha=0.65, lw=0, zorder=3)
            axes.set_title(arm.replace("_", " "), size=9.5)
            axes.set_xlabel(
                f"by dynamic programming\nmean error {number(calibration.error)}, tau {number(calibration.rank)}",
                size=8,
            )
        panels[0].set_ylabel("by the critic")
        for axes in panels[len(critics) :]:
            axes.set_visible(False)
        return figure
