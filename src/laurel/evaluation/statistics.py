"""What a handful of seeds allow one to say: interquartile means, intervals, improvement, steps to a threshold.

Works on tables of evaluation episodes and training curves; knows nothing about files, plots or captions.

A seed is one sample: episodes are first averaged within their seed, then seeds are compared (Agarwal et al.
2021, arXiv 2108.13264). An interval needs at least two seeds; with one it is None and never made up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.stats
from rliable import library, metrics

from laurel.agents.episodes import WINDOW
from laurel.errors import DataError
from laurel.evaluation.summary import BASELINE, in_order
from laurel.seeding import derive_seed, generator

Floats = npt.NDArray[np.float64]

_RESULTS = ("arm", "seed", "episode", "return", "success", "shaped_reward")
_CURVES = ("arm", "seed", "env_steps", "window", "return_mean", "success_rate")


def summarise(
    results: pd.DataFrame,
    curves: pd.DataFrame,
    *,
    success_threshold: float,
    reward_threshold: float | None,
    resamples: int,
    seed: int,
    baseline: str = BASELINE,
) -> dict[str, dict[str, Any]]:
    """Return the statistics of each arm, free of NaN, in the order in which arms are shown.

    Args:
        results: an evaluation episode a row: arm, seed, episode, return, success (None where it has no meaning).
        curves: an update of a training run a row: arm, seed, env_steps, window, return_mean, success_rate
            (the last three as `laurel.agents.episodes` has them).
        success_threshold: success rate over the last WINDOW episodes that counts as solved.
        reward_threshold: the mean return that counts as solved where success has no meaning; None if there is none.
        resamples: bootstrap resamples of each interval.
        seed: of the resampling.
        baseline: the arm over which the probability of improvement is taken.

    Raises:
        DataError: a column is missing, or there are no episodes.
    """
    _require(results, _RESULTS, "evaluation results")
    _require(curves, _CURVES, "training curves")
    if results.empty:
        raise DataError("evaluation results: no episodes. Run `laurel evaluate` again with evaluate.episodes above 0.")
    scores = seed_scores(results)
    has_success = bool(scores["success"].notna().any())
    threshold = success_threshold if has_success else reward_threshold
    column = "success_rate" if has_success else "return_mean"
    returns = {str(arm): rows["return"].to_numpy() for arm, rows in scores.groupby("arm")}
    summary: dict[str, dict[str, Any]] = {}
    for arm in in_order(returns):
        of_arm = scores[scores["arm"] == arm]
        runs = curves[curves["arm"] == arm]
        named = {"resamples": resamples, "seed": derive_seed(seed, arm)}
        summary[arm] = {
            "return": estimate(returns[arm], **named),
            "success": estimate(of_arm["success"].to_numpy(), **named) if has_success else None,
            "steps_to_threshold": (
                steps_to_threshold(runs, column, threshold) if threshold is not None and len(runs) else None
            ),
            "probability_of_improvement": (
                {"over": baseline, **improvement(returns[arm], returns[baseline], **named)}
                if baseline in returns and arm != baseline
                else None
            ),
            "env_steps": int(runs["env_steps"].max()) if len(runs) else 0,
            "episodes": int((results["arm"] == arm).sum()),
            "seeds": [int(value) for value in of_arm["seed"]],
        }
    return summary


def seed_scores(results: pd.DataFrame) -> pd.DataFrame:
    """Average episodes within their seed: arm, seed, return, success (NaN where it has no meaning); sorted."""
    numeric = results.assign(success=pd.to_numeric(results["success"].astype("object")).astype("float64"))
    return numeric.groupby(["arm", "seed"], sort=True)[["return", "success"]].mean().reset_index()


def estimate(scores: Floats, *, resamples: int, seed: int) -> dict[str, Any]:
    """Return the interquartile mean of the seeds' scores (S,) and its 95% stratified-bootstrap interval.

    With fewer than four seeds nothing is trimmed, and the interquartile mean is the mean.

    >>> estimate(np.array([0.0, 4.0, 5.0, 6.0, 100.0]), resamples=200, seed=0)["iqm"]
    5.0
    """
    interval = None
    if len(scores) > 1:
        interval = _interval(scores[:, None], lambda s: np.array([metrics.aggregate_iqm(s)]), resamples, seed)
    return {"iqm": _finite(metrics.aggregate_iqm(scores)), "ci95": interval}


def improvement(scores: Floats, baseline: Floats, *, resamples: int, seed: int) -> dict[str, Any]:
    """Return the probability that a seed of ours beats a seed of the baseline, with its 95% interval."""
    interval = None
    if min(len(scores), len(baseline)) > 1:
        pair = [scores[:, None], baseline[:, None]]
        interval = _interval(pair, lambda x, y: np.array([probability_of_improvement(x, y)]), resamples, seed)
    return {"value": _finite(probability_of_improvement(scores, baseline)), "ci95": interval}


def probability_of_improvement(x: Floats, y: Floats) -> float:
    """Return P(X > Y) over all pairs, ties counted half: the Mann-Whitney statistic, scaled.

    As `rliable.metrics.probability_of_improvement`, without the p-value that makes it slow to resample.

    >>> probability_of_improvement(np.array([1.0, 3.0]), np.array([1.0, 2.0]))
    0.625
    """
    difference = x.reshape(-1, 1) - y.reshape(1, -1)
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def steps_to_threshold(runs: pd.DataFrame, column: str, threshold: float) -> dict[str, Any]:
    """Return when each seed of an arm first held a mean of `column` over WINDOW episodes at the threshold.

    Returns:
        `per_seed` in the order of the seeds, None where a seed never got there; `median` counts such a seed as
        later than all others, and is None where half of them or more are.
    """
    per_seed: list[int | None] = []
    for _, run in runs.sort_values("env_steps").groupby("seed", sort=True):
        whole = run["window"].to_numpy() >= WINDOW
        solved = whole & (run[column].to_numpy(dtype=np.float64) >= threshold)  # NaN is not
        per_seed.append(int(run["env_steps"].to_numpy()[solved.argmax()]) if solved.any() else None)
    median = float(np.median([math.inf if steps is None else steps for steps in per_seed]))
    return {
        "median": _finite(median),
        "reached": sum(steps is not None for steps in per_seed),
        "of": len(per_seed),
        "per_seed": per_seed,
    }


def curve_band(runs: pd.DataFrame, column: str, *, resamples: int, seed: int) -> dict[str, Floats]:
    """Return an arm's learning curve: the interquartile mean over seeds and its 95% bootstrap interval.

    It begins where every seed's does: a mean over too few episodes is none.

    Whole runs are resampled, so that neighbouring points of the band belong together.

    Returns:
        `env_steps`, `iqm`, `low` and `high`, each (T,) with T at most 200; `low` and `high` are NaN for one seed.
    """
    ordered = runs.sort_values("env_steps")
    by_seed = [run for _, run in ordered.groupby("seed", sort=True)]
    length = min(len(run) for run in by_seed)
    points = np.unique(np.linspace(0, length - 1, min(length, 200)).astype(np.int64))
    values = np.stack([run[column].to_numpy(dtype=np.float64)[points] for run in by_seed])
    low = high = np.full(len(points), np.nan)
    if len(values) > 1:
        drawn = generator(seed, "curve_band", column).integers(len(values), size=(resamples, len(values)))
        resampled = interquartile_mean(values[drawn], axis=1)
        low, high = np.quantile(resampled, [0.025, 0.975], axis=0)
    return {
        "env_steps": by_seed[0]["env_steps"].to_numpy(dtype=np.float64)[points],
        "iqm": interquartile_mean(values, axis=0),
        "low": low,
        "high": high,
    }


def interquartile_mean(values: Floats, axis: int) -> Floats:
    """Return the mean without the lowest and the highest quarter along an axis; NaN where a value is NaN.

    As `rliable.metrics.aggregate_iqm` for each place, in one go.
    """
    n = values.shape[axis]
    ordered = np.sort(values, axis=axis)  # NaN goes last
    middle = np.take(ordered, np.arange(n // 4, n - n // 4), axis=axis).mean(axis=axis)
    return np.where(np.isnan(np.take(ordered, -1, axis=axis)), np.nan, middle)


def rank_agreement(results: pd.DataFrame) -> dict[str, Any] | None:
    """Return how the learned reward of whole episodes ranks them against their true return, as Kendall's tau-b.

    Returns:
        None where no episode has a learned reward; otherwise `tau` over all episodes (None where all are alike),
        the number of `episodes`, and `arms` with each arm's own tau.
    """
    known = results[results["shaped_reward"].notna()].astype({"shaped_reward": "float64"})
    if known.empty:
        return None
    by_arm = {str(arm): rows for arm, rows in known.groupby("arm")}
    return {
        "tau": _kendall_tau(known),
        "episodes": len(known),
        "arms": {arm: _kendall_tau(by_arm[arm]) for arm in in_order(by_arm)},
    }


def _kendall_tau(episodes: pd.DataFrame) -> float | None:
    if len(episodes) < 2:
        return None
    return _finite(scipy.stats.kendalltau(episodes["shaped_reward"], episodes["return"]).statistic)


def _interval(
    scores: Floats | Sequence[Floats], function: Callable[..., Floats], resamples: int, seed: int
) -> list[float | None] | None:
    """Return rliable's 95% percentile interval of a function of scores (S, 1)."""
    with _numpy_seeded(seed):
        _, intervals = library.get_interval_estimates({"scores": scores}, function, reps=resamples)
    low, high = (_finite(bound) for bound in intervals["scores"][:, 0])
    return None if low is None or high is None else [low, high]


@contextmanager
def _numpy_seeded(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator for a while: rliable 1.2 draws from it whatever `random_state` it is given."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)


def _finite(value: Any) -> float | None:
    """Return a plain float for JSON, None for NaN and infinities."""
    return float(value) if math.isfinite(value) else None


def _require(frame: pd.DataFrame, columns: Sequence[str] | Mapping[str, Any], what: str) -> None:
    missing = [column for column in columns if column not in frame]
    if missing:
        raise DataError(f"{what}: no column {', '.join(missing)}. Run the stage that writes them again.")
