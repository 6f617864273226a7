"""Reward hacking: periods of training in which learned reward rises while performance falls, and the captions that
earned it.

An agent is flagged where, between two tenths of its training, the learned reward's pay for an episode rises while the
task's success, or the return where success has no meaning, falls; both by more than noise, and
what fell has not recovered by the end of training. An arm is flagged where a quarter of its agents are.

For a language model whose divergence from its base is known, a fall that lasts for LASTS tenths counts even if the
return recovers: far from the base, the return of its texts also contains errors of their judge (the
over-optimisation curve of Gao et al. 2022, arXiv 2210.10760, looks for the peak over the divergence).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from laurel.data.parquet import read_table
from laurel.evaluation.formats import counted, number
from laurel.params.resolved_arms import Arm
from laurel.seeding import seed_folder
from laurel.training.credit import CREDIT, SCHEMA, THIRDS
from laurel.training.curve import KL as DIVERGENCE

PARTS = 10
"""Parts into which a training run is divided; pay and success are averaged within each."""
LEAST_FALL, LEAST_RISE = 0.15, 0.1
"""Smallest fall of success and smallest rise of pay, as shares of the range of the run's returns and of its pay."""
ROUNDING = 1e-5
"""Range of pay, as a share of the highest, up to which pay counts as constant: it is summed in single precision."""
LASTS = 2
"""Tenths of a language model's training for which a fall must last."""
LEAST_AGENTS = 0.25
"""Share of an arm's agents that must be flagged."""
SHOWN = 8
"""Captions of an arm that are shown."""


@dataclass(frozen=True)
class Period:
    """A period of an agent's training in which its pay rose and its success fell."""

    seed: int
    start: int
    """Environment steps."""
    end: int
    paid: tuple[float, float]
    """Mean pay of an episode at the start and at the end, before the reward's weight."""
    true: tuple[float, float]
    """Success rate, or return."""


@dataclass(frozen=True)
class Episode:
    """An example episode."""

    command: str
    paid: float
    total: float
    """The environment's return."""
    solved: bool | None
    steps: int


@dataclass(frozen=True)
class Earner:
    """A caption, and the share of all pay that it earned in each third of the training; None where nothing was paid.

    The last one of a list may stand for all captions that are not listed.
    """

    caption: str
    shares: tuple[float | None, ...]


@dataclass(frozen=True)
class Hacked:
    """An arm whose agents earn its reward without solving the task."""

    arm: str
    measure: str
    """The measure that fell: success or return."""
    periods: Sequence[Period]
    agents: int
    """Number of the arm's agents."""
    earners: Sequence[Earner]
    episodes: Sequence[Episode] = ()


def periods(curves: pd.DataFrame, low: float, high: float) -> tuple[str, list[Period]]:
    """Return the measure, and the worst period of each agent that has one.

    Args:
        curves: learning curves of one arm, as train-agents writes them, with its seeds.
        low: lowest return of the run, where success has no meaning.
        high: highest return of the run.
    """
    has_success = bool(curves["success_rate"].notna().any())
    column, span = ("success_rate", 1.0) if has_success else ("return_mean", high - low)
    hacked_periods = []
    for seed, curve in curves.groupby("seed", sort=True):
        paid = curve["shaped_reward"] * curve["length_mean"]
        known = curve.assign(paid=paid)[paid.notna() & curve[column].notna()]
        if len(known) >= PARTS and span > 0:
            period = _worst(int(str(seed)), known, column, span)
            hacked_periods += [period] if period else []
    return "success" if has_success else "return", hacked_periods


def _worst(seed: int, curve: pd.DataFrame, column: str, span: float) -> Period | None:
    """Return the period in which success fell most while pay rose; None if that never happened."""
    parts = np.array_split(np.arange(len(curve)), PARTS)
    steps = curve["env_steps"].to_numpy()
    paid, true = (
        np.array([curve[name].to_numpy(dtype=np.float64)[part].mean() for part in parts]) for name in ("paid", column)
    )
    if np.ptp(paid) <= ROUNDING * np.abs(paid).max():
        return None
    least = LEAST_RISE * float(np.ptp(paid))
    diverges = DIVERGENCE in curve and bool(curve[DIVERGENCE].notna().all())
    pairs = [
        (true[i] - true[j], i, j)
        for i in range(PARTS)
        for j in range(i + 1, PARTS)
        if paid[j] - paid[i] > least
        and true[i] - (true[j : j + LASTS].max() if diverges else max(true[j], true[-1])) >= LEAST_FALL * span
    ]
    if not pairs:
        return None
    _, i, j = max(pairs)
    start, end = (int(steps[parts[k][-1]]) for k in (i, j))
    return Period(seed, start, end, (float(paid[i]), float(paid[j])), (float(true[i]), float(true[j])))


def earners(agents: Sequence[Path]) -> list[Earner]:
    """Return the SHOWN captions that earned most in the last third, and the rest of all captions together.

    A caption whose pay in a third sums to less than zero counts there as unpaid.

    Args:
        agents: their directories; agents of an engine that keeps no account of captions add nothing.

    Raises:
        DataError: a file is damaged.
    """
    files = [agent / CREDIT for agent in agents]
    tables = [read_table(file, SCHEMA, "train-agents").to_pandas() for file in files if file.exists()]
    if not tables:
        return []
    pay = pd.concat(tables).pivot_table("pay", "caption", "third", aggfunc="sum", fill_value=0.0)
    pay = pay.reindex(columns=list(THIRDS), fill_value=0.0).clip(lower=0.0)
    total = pay.sum()
    shares = pay.div(total.where(total > 0), axis=1).sort_values("late", ascending=False, kind="stable")
    rows = {str(caption) or "(steps without a caption)": row for caption, row in shares[:SHOWN].iterrows()}
    if (hidden := len(shares) - SHOWN) > 0:
        rows[f"({counted(hidden, 'other caption')})"] = shares[SHOWN:].sum(skipna=False)
    return [
        Earner(name, tuple(None if np.isnan(value) else float(value) for value in row.to_numpy()))
        for name, row in rows.items()
    ]


def hacked(curves: pd.DataFrame, arms: Sequence[str], agents: Path, bounds: tuple[float, float]) -> list[Hacked]:
    """Return the arms that are flagged, in order.

    Args:
        arms: the arms that are paid a reward besides the environment's, as a bonus: the sum of a potential over an
            episode is an artefact of where the episode ends, and cannot be earned.
        bounds: the lowest and the highest return of the run.
    """
    suspects = []
    for arm in arms:
        arm_curves = curves[curves["arm"] == arm]
        n = arm_curves["seed"].nunique()
        measure, flagged = periods(arm_curves, *bounds) if n else ("", [])
        if flagged and len(flagged) >= LEAST_AGENTS * n:
            places = [agents / arm / seed_folder(period.seed) for period in flagged]
            suspects.append(Hacked(arm, measure, flagged, n, earners(places)))
    return suspects


def misled(results: pd.DataFrame, arms: Sequence[Arm], bounds: tuple[float, float]) -> list[str]:
    """Return a warning for each arm whose reward is higher for a failed episode than for a solved one.

    Each caption may be paid correctly while their sum over an episode misleads: agents then learn to collect captions.
    Failed episodes are compared with successful ones of any arm; if there are none, there is no warning. Arms with a
    potential are skipped: its sum cannot be earned by collecting captions.

    Args:
        arms: those that were trained on the reward in `shaped_reward`.
        bounds: the lowest and the highest return of the run.
    """
    known = bool(results["success"].notna().all())
    middle = sum(bounds) / 2
    done = results["success"].astype(bool) if known else results["return"] > middle
    half_way = f"return more than {number(middle)}, half-way between the lowest and the highest mean return"
    aim = "solve the task" if known else half_way
    notes = []
    for arm in (arm for arm in arms if arm.shaping.form == "bonus"):
        weight = arm.shaping
        paid = weight.extrinsic * results["return"] + weight.intrinsic * results["shaped_reward"]
        mask = results["arm"] == arm.name
        failed = mask & ~done
        if not done.any() or 2 * failed.sum() <= mask.sum() or paid[failed].mean() <= paid[done].mean():
            continue
        worth = weight.extrinsic * (results["return"][done].mean() - results["return"][failed].mean())
        excess = results["shaped_reward"][failed].mean() - results["shaped_reward"][done].mean()
        remedy = "Give shaping.extrinsic a weight"
        if worth > 0:
            advice = f"shaping.intrinsic below {_rounded_down(worth / excess):g} (it is {weight.intrinsic:g})"
            remedy = f"Set {advice}, or shaping.form: potential"
        elif hasattr(arm.agent.settings, "episodic"):
            remedy = f"Set agent.{arm.agent.algorithm}.episodic: false, or give shaping.extrinsic a weight"
        notes.append(
            f"{arm.name}: {failed.sum()} of {mask.sum()} episodes do not {aim}, and earn {number(paid[failed].mean())} "
            f"on average; episodes of any arm that do would earn {number(paid[done].mean())}. Each caption may have "
            f"the right reward, but the sum over an episode misleads. {remedy}."
        )
    return notes


def _rounded_down(value: float) -> float:
    """Round a positive number down to two digits; rounded up, it would no longer be a safe bound."""
    place = 10.0 ** (1 - math.floor(math.log10(value)))
    return math.floor(value * place + 1e-9) / place
