"""The over-optimisation curve: learned reward and return of a language model over its divergence from the base model.

Gao, Schulman and Hilton 2022, "Scaling Laws for Reward Model Overoptimization" (arXiv 2210.10760): as a model
diverges from the first one, its pay keeps rising after the true objective has begun to fall.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from laurel.agents.episodes import LEAST
from laurel.agents.episodes import WINDOW as WINDOW_OF_RETURNS
from laurel.evaluation.arms import ordered
from laurel.evaluation.style import drawing, mark, styles
from laurel.params.arm_infos import ArmInfo

WINDOW = 3
"""Number of updates averaged into one point; the return at an update is itself a mean over several."""


def divergence_curve(curves: pd.DataFrame, arms: Sequence[ArmInfo]) -> Figure:
    """Draw both over the square root of the divergence, in which Gao et al. found them to be smooth.

    Args:
        curves: learning curves of language models, with `reference_kl`; a line is the mean over the seeds of an arm.
    """
    looks = styles(arms)
    with drawing(7.6, 3.6) as figure:
        panels = figure.subplots(1, 2, sharex=True)
        titles = ("Pay of a completion (its arm's reward)", "Return (the environment's reward)")
        spans = ("an update's", f"the last {LEAST} to {WINDOW_OF_RETURNS}")  # so that returns lag behind the divergence
        columns = ("shaped_reward", "return_mean")
        for axes, column, title, window in zip(panels, columns, titles, spans, strict=True):
            for info in ordered(arms):
                curve = curves[curves["arm"] == info.name]
                curve = curve.groupby("env_steps")[["reference_kl", column]].mean().dropna()
                if curve.empty:
                    continue
                smooth = curve.rolling(WINDOW, min_periods=1).mean()
                x, look = smooth["reference_kl"].clip(lower=0) ** 0.5, looks[info.name]
                (line,) = axes.plot(x, smooth[column], **look.line, zorder=look.order)
                line.set_gid(mark(info.name, "line"))
                name = axes.annotate(
                    info.name.replace("_", " "), (x.iloc[-1], smooth[column].iloc[-1]), color=look.color, size=8
                )
                name.set_gid(mark(info.name, "name"))
            axes.set_title(title)
            axes.set_ylabel(f"mean of {window} completions")
            axes.set_xlabel("square root of KL(trained, frozen), nats a completion")
        return figure
