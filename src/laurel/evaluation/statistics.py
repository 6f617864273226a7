"""Statistics of each arm over a few seeds: means, intervals, solved seeds, steps to a threshold.

A seed is one sample: episodes are first averaged within their seed, then seeds are compared (Agarwal et al.
2021, arXiv 2108.13264). An interval needs at least two seeds, and a return that differs from the others of the run;
without them it is None and never made up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from laurel.agents.episodes import WINDOW
from laurel.arrays import DoubleArray
from laurel.errors import DataError
from laurel.evaluation.arms import described, ordered
from laurel.evaluation.comparison import compare_arms
from laurel.evaluation.intervals import mean_intervals, median_interval, wilson
from laurel.evaluation.summary import FURTHER
from laurel.params.arm_infos import ArmInfo

LOW_TAU = 0.3
"""Rank agreement below which the report warns of a learned reward that misses the task."""
TAU_DRAWS = 200
"""Draws for the interval of Kendall's tau, which only decides about a warning."""
ROUNDING = 1e-6
"""Relative difference of returns that counts as none: curves are in single precision."""
CURVE_DRAWS = 1000
"""Most draws for the interval at a point of a curve, where the second digit does not matter."""

_RESULTS = ("arm", "seed", "episode", "return", "success", "shaped_reward")
_CURVES = ("arm", "seed", "env_steps", "window", "return_mean", "success_rate")


def summarise(
    results: pd.DataFrame,
    curves: pd.DataFrame,
    arms: Sequence[ArmInfo],
    *,
    success_threshold: float,
    reward_threshold: float | None,
    draws: int,
    seed: int,
) -> dict[str, Any]:
    """Return the statistics of all arms and the comparisons between them, free of NaN.

    Args:
        results: one row per evaluation episode: arm, seed, episode, return, success (None where it has no meaning).
        curves: one row per update of a training run: arm, seed, env_steps, window, return_mean, success_rate
            (the last three as `laurel.agents.episodes` has them).
        arms: all that the results hold, and maybe others, which are left out.
        success_threshold: success rate over the last WINDOW episodes that counts as solved.
        reward_threshold: the mean return that counts as solved where success has no meaning, if any.
        draws: of each interval of a mean.

    Returns:
        `order`, in which arms are shown. `arms`: the role, label and rewards of each, the `return` and `success` of
        fresh episodes and the `area` under the learning curve, each as `estimate` gives it, how many seeds `solved` the
        task, `steps_to_threshold` (unknown where no agent finished WINDOW episodes, or where a curriculum chose the
        tasks), `env_steps`, `episodes` and `seeds`; what does not apply or is unknown is None. `comparisons`, as
        `laurel.evaluation.comparison.compare_arms` gives them, of `return` and `area`.

    Raises:
        DataError: a column is missing, or there are no episodes.
    """
    _require(results, _RESULTS, "evaluation results")
    _require(curves, _CURVES, "training curves")
    if results.empty:
        raise DataError("evaluation results: no episodes. Run `laurel evaluate` again with evaluate.episodes above 0.")
    by_seed = seed_scores(results).merge(areas(curves), on=["arm", "seed"], how="left")
    has_success = bool(by_seed["success"].notna().any())
    threshold, column, measure = (
        (success_threshold, "success_rate", "success") if has_success else (reward_threshold, "return_mean", "return")
    )
    bounds = return_range(curves, results)
    timed = bool((curves["window"] >= WINDOW).any())
    summary: dict[str, dict[str, Any]] = {}
    scores: dict[str, dict[str, DoubleArray]] = {"return": {}, "area": {}}
    played = {str(name) for name in by_seed["arm"]}
    shown = ordered(info for info in arms if info.name in played)
    for info in shown:
        arm = info.name
        of_arm = by_seed[by_seed["arm"] == arm]
        runs = curves[curves["arm"] == arm]
        returns, success, area = (of_arm[name].to_numpy(dtype=np.float64) for name in ("return", "success", "area"))
        scores["return"][arm] = returns
        if len(runs):
            scores["area"][arm] = area
        summary[arm] = {
            **described(info),
            "return": estimate(returns, *bounds, draws=draws, seed=seed),
            "success": estimate(success, 0.0, 1.0, draws=draws, seed=seed) if has_success else None,
            "area": estimate(area, *bounds, draws=draws, seed=seed) if len(runs) else None,
            "solved": None if threshold is None else solved(of_arm[measure].to_numpy(dtype=np.float64), threshold),
            "steps_to_threshold": (
                steps_to_threshold(runs, column, threshold)
                if threshold is not None and timed and len(runs) and not info.draws_tasks
                else None
            ),
            "env_steps": int(runs["env_steps"].max()) if len(runs) else 0,
            "episodes": int((results["arm"] == arm).sum()),
            "seeds": [int(value) for value in of_arm["seed"]],
        }
    return {"order": [info.name for info in shown], "arms": summary, "comparisons": compare_arms(scores, shown)}


def seed_scores(results: pd.DataFrame) -> pd.DataFrame:
    """Average episodes within their seed: arm, seed, return, success (NaN where it has no meaning); sorted."""
    numeric = results.assign(success=pd.to_numeric(results["success"].astype("object")).astype("float64"))
    return numeric.groupby(["arm", "seed"], sort=True)[["return", "success"]].mean().reset_index()


def areas(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the area under each learning curve, as a mean return: arm, seed, area.

    The mean over a run's updates of the return of the last WINDOW episodes, beginning with the first update that has
    enough of them (see `laurel.agents.episodes`; NaN if none has). It measures how good agents are and how early.
    """
    rows = []
    for (arm, seed), run in curves.groupby(["arm", "seed"], sort=True):
        windows = run["return_mean"].to_numpy(dtype=np.float64)
        known = windows[np.isfinite(windows)]
        rows.append((str(arm), seed, float(known.mean()) if len(known) else np.nan))
    return pd.DataFrame(rows, columns=["arm", "seed", "area"]).astype({"seed": "int64", "area": "float64"})


def return_range(curves: pd.DataFrame, results: pd.DataFrame | None = None) -> tuple[float, float]:
    """Return the lowest and the highest mean return that any seed of any arm had, while training or in the end.

    It approximates the range of possible returns, which environments seldom declare: a seed that learns nothing is
    rarely worse than those at the start of training. If nothing was trained, it is the range of single episodes'
    returns, since an unseen seed's mean would often lie outside the range of the seeds' means.
    """
    known = curves["return_mean"].to_numpy(dtype=np.float64)
    known = known[np.isfinite(known)]
    if results is not None:
        played = results.groupby(["arm", "seed"])["return"].mean() if len(known) else results["return"]
        known = np.concatenate([known, played.to_numpy(dtype=np.float64)])
        known = known[np.isfinite(known)]
    return (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)


def estimate(scores: DoubleArray, low: float, high: float, *, draws: int, seed: int) -> dict[str, Any]:
    """Return the mean of the seeds' scores (S,), its 95% interval, and their interquartile mean.

    With fewer than four seeds nothing is trimmed, and the interquartile mean is the mean. It can hide one
    failing seed in four, so it is never shown without the mean.

    A seed scores between `low` and `high`; if they are equal, all seeds of the run scored the same, the spread of
    further seeds is unknown, and the interval is None. `draws` and `seed` are of the interval.

    >>> estimate(np.array([0.0, 4.0, 5.0, 6.0, 100.0]), 0.0, 100.0, draws=200, seed=0)["iqm"]
    5.0
    """
    from rliable import metrics

    interval = None
    bounded = not math.isclose(low, high, rel_tol=ROUNDING)
    if len(scores) > 1 and bounded and np.isfinite(scores).all():
        lower, upper = mean_intervals(scores[None], low, high, draws=draws, seed=seed)
        interval = [float(lower[0]), float(upper[0])]
    return {"mean": _finite(scores.mean()), "ci95": interval, "iqm": _finite(metrics.aggregate_iqm(scores))}


def further_measures(results: pd.DataFrame, *, draws: int, seed: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return for each further measure of the environment, and each arm, the agents' means as `estimate` has them.

    A measure ranges from 0 to 1, or to the highest mean of an agent if that is more. Episodes without the measure, such
    as those of other tasks, are left out, and so are agents and arms without such an episode.
    """
    estimates = {}
    for column in sorted(name for name in results.columns if name.startswith(FURTHER)):  # as they are stored
        means = results.groupby(["arm", "seed"], sort=False)[column].mean().dropna()
        high = max(1.0, float(means.max()))
        estimates[column.removeprefix(FURTHER)] = {
            str(arm): estimate(own_means.to_numpy(dtype=np.float64), 0.0, high, draws=draws, seed=seed)
            for arm, own_means in means.groupby("arm", sort=False)
        }
    return estimates


def solved(scores: DoubleArray, threshold: float) -> dict[str, Any] | None:
    """Return how many seeds score at least the threshold, and Wilson's interval of their share; None for NaN."""
    if not np.isfinite(scores).all():
        return None
    count, n_seeds = int((scores >= threshold).sum()), len(scores)
    return {"seeds": count, "of": n_seeds, "ci95": list(wilson(count / n_seeds, n_seeds)) if n_seeds > 1 else None}


def steps_to_threshold(runs: pd.DataFrame, column: str, threshold: float) -> dict[str, Any]:
    """Return when each seed of an arm first held a mean of `column` over WINDOW episodes at the threshold.

    Returns:
        `per_seed` in the order of the seeds, None where a seed never got there; `median` counts such a seed as
        later than all others, and is None if at least half of the seeds never got there; `ci95` is its interval, None
        with too few seeds; a bound later than the end of training is None.
    """
    per_seed: list[int | None] = []
    for _, run in runs.sort_values("env_steps").groupby("seed", sort=True):
        full_window = run["window"].to_numpy() >= WINDOW
        solved = full_window & (run[column].to_numpy(dtype=np.float64) >= threshold)  # NaN is not
        per_seed.append(int(run["env_steps"].to_numpy()[solved.argmax()]) if solved.any() else None)
    times = np.array([math.inf if steps is None else float(steps) for steps in per_seed])
    interval = median_interval(times)
    return {
        "median": _finite(np.median(times)),
        "ci95": None if interval is None else [_finite(bound) for bound in interval],
        "reached": sum(steps is not None for steps in per_seed),
        "of": len(per_seed),
        "per_seed": per_seed,
    }


def curve_band(
    runs: pd.DataFrame, column: str, low: float, high: float, *, draws: int, seed: int
) -> dict[str, DoubleArray]:
    """Return an arm's learning curve: the mean over seeds and its 95% interval at each point.

    `column` is `success_rate` or `return_mean`, which lies between `low` and `high`; `draws` and `seed` are of the
    intervals. The mean is NaN until every seed has a value. Seeds with values at other steps, as an algorithm that
    updates after each episode has, are interpolated linearly, up to the last step of the shortest run.

    Returns:
        `env_steps`, `mean`, `low` and `high`, each (T,) with T at most 200; `low` and `high` are NaN for one seed.
    """
    ordered = runs.sort_values("env_steps")
    by_seed = [run for _, run in ordered.groupby("seed", sort=True)]
    grids = [run["env_steps"].to_numpy(dtype=np.float64) for run in by_seed]
    steps = np.unique(np.concatenate(grids))
    steps = steps[
        (steps >= max(own_steps[0] for own_steps in grids)) & (steps <= min(own_steps[-1] for own_steps in grids))
    ]
    steps = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 200)).astype(np.int64))]
    if not len(steps):  # runs so short that they have no steps in common: their last values
        steps = np.array([max(own_steps[0] for own_steps in grids)])
    curves = [run[column].to_numpy(dtype=np.float64) for run in by_seed]
    values = np.stack([np.interp(steps, own_steps, curve) for own_steps, curve in zip(grids, curves, strict=True)])
    lower = upper = np.full(len(steps), np.nan)
    if len(values) > 1:
        lower, upper = mean_intervals(values.T, low, high, draws=min(draws, CURVE_DRAWS), seed=seed)
    return {
        "env_steps": steps,
        "mean": values.mean(axis=0),
        "low": lower,
        "high": upper,
    }


def rank_agreement(results: pd.DataFrame, doubtful: float = LOW_TAU) -> dict[str, Any] | None:
    """Return how the learned reward of whole episodes ranks them against their true return, as Kendall's tau-b.

    Returns:
        None where no episode has a learned reward; otherwise `tau` over all episodes (None if all are equal), its
        interval `ci95` by a bootstrap of agents (None for one agent, or if tau is not below `doubtful`), the number of
        `episodes`, and `arms` with each arm's own tau.
    """
    known = results[results["shaped_reward"].notna()].astype({"shaped_reward": "float64"})
    if known.empty:
        return None
    tau = _kendall_tau(_ranked(known))
    return {
        "tau": tau,
        "ci95": None if tau is None or tau >= doubtful else _tau_interval(known),
        "episodes": len(known),
        "arms": {str(arm): _kendall_tau(_ranked(rows)) for arm, rows in known.groupby("arm")},
    }


def _ranked(episodes: pd.DataFrame) -> DoubleArray:
    """Return (N, 2) what is compared of each episode."""
    return episodes[["shaped_reward", "return"]].to_numpy(dtype=np.float64)


def _kendall_tau(episodes: DoubleArray) -> float | None:
    if len(episodes) < 2:
        return None
    import scipy.stats

    return _finite(scipy.stats.kendalltau(episodes[:, 0], episodes[:, 1]).statistic)


def _tau_interval(episodes: pd.DataFrame) -> list[float] | None:
    """Return the percentile interval of tau over agents, whose episodes are drawn together."""
    agents = [_ranked(rows) for _, rows in episodes.groupby(["arm", "seed"])]
    if len(agents) < 2:
        return None
    rng = np.random.default_rng(0)
    draws = (np.concatenate([agents[i] for i in rng.integers(len(agents), size=len(agents))]) for _ in range(TAU_DRAWS))
    taus = [tau for drawn in draws if (tau := _kendall_tau(drawn)) is not None]
    return [float(end) for end in np.quantile(taus, (0.025, 0.975))] if taus else None


def _finite(value: Any) -> float | None:
    """Return a plain float for JSON, None for NaN and infinities."""
    return float(value) if math.isfinite(value) else None


def _require(frame: pd.DataFrame, columns: Sequence[str] | Mapping[str, Any], name: str) -> None:
    missing = [column for column in columns if column not in frame]
    if missing:
        raise DataError(f"{name}: no column {', '.join(missing)}. Run the stage that writes them again.")
