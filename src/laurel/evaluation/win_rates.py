"""Language models compared by their completions of the same prompts: win rates over the base, and Elo.

The text with the higher return wins, and equal ones half a win each, so the judge is the environment's own reward. Elo
is the Bradley-Terry model's, 400 points for odds of ten to one, with the base at 0:

    P(i beats j) = 1 / (1 + 10^((E_j - E_i) / 400))

Several agents of an arm are a sample of its agents, so intervals are over their seeds. Those of a single agent are over
prompts, and say nothing about other agents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from laurel.arrays import DoubleArray, IntArray
from laurel.evaluation.intervals import mean_intervals
from laurel.feedback.rates import Rate, grouped_rate
from laurel.params.resolved_arms import Arm
from laurel.rewards.logistic import logistic
from laurel.seeding import generator

POINTS = 400 / math.log(10)
"""Elo of a logit."""
PRIOR = 1000 / POINTS
"""Standard deviation of the prior of a strength, in logits: an arm that never lost keeps a finite one."""
DRAWS = 200
"""Draws of the weights of seeds, or of prompts."""
WIN_DRAWS = 2000
"""Draws of the weights of seeds' win rates."""
SHOWN = 3
"""Prompts shown with what each arm wrote."""
BASE = "writer"
"""The actor of the arm that others are compared with."""
LAST = 0.1
"""Share of a training at its end, over which divergence is averaged."""


def win_rates(
    results: pd.DataFrame, curves: pd.DataFrame, arms: Mapping[str, Arm], seed: int
) -> dict[str, dict[str, Any]]:
    """Compare the arms that trained a language model with each other and with their base.

    Args:
        results: an episode a row; episodes of the same seed and number have the same prompt in all arms.
        arms: by name.

    Returns:
        Arm -> `elo` and `words` (of a text); of a trained one also `kl`, its divergence from the frozen model in nats a
        completion at the end of its training, and `wins` over the base, a rate with its interval. Empty where no
        language model was trained, or no arm has the untrained one as its actor.
    """
    base = next((name for name, arm in arms.items() if arm.actor == BASE), None)
    if base is None or "reference_kl" not in curves or "text" not in results:
        return {}
    trained = [name for name in arms if curves.loc[curves["arm"] == name, "reference_kl"].notna().any()]
    names = [base, *trained]
    returns = results.pivot_table("return", ["seed", "episode"], "arm")[names].dropna()
    asked = results[results["arm"] == base].set_index(["seed", "episode"]).loc[returns.index, "prompt"]
    by_seed, seeds = pd.factorize(returns.index.get_level_values("seed"))
    group = by_seed if len(seeds) > 1 else pd.factorize(asked)[0]
    elo = _elo(returns.to_numpy(), group, seed)
    found = {}
    for number, name in enumerate(names):
        texts = results.loc[results["arm"] == name, "text"]
        entry: dict[str, Any] = {"elo": elo[number], "words": float(texts.str.split().str.len().mean())}
        if name != base:
            won = 0.5 + 0.5 * np.sign((returns[name] - returns[base]).to_numpy(dtype=np.float64))
            wins = _seeds_rate(won, group, seed) if len(seeds) > 1 else grouped_rate(won, group)
            entry |= {"kl": _divergence(curves[curves["arm"] == name]), "wins": wins}
        found[name] = entry
    return found


def _seeds_rate(won: DoubleArray, by_seed: IntArray, seed: int) -> Rate:
    """Return the mean of the seeds' win rates, from N episodes' wins, and its interval over seeds."""
    rates = np.bincount(by_seed, weights=won) / np.bincount(by_seed)
    low, high = mean_intervals(rates[None], 0.0, 1.0, draws=WIN_DRAWS, seed=seed)
    return {"value": float(rates.mean()), "ci95": [float(low[0]), float(high[0])], "of": len(won)}


def _elo(returns: DoubleArray, group: IntArray, seed: int) -> list[dict[str, Any]]:
    """Return the strength of each of K arms by their returns (N, K), of episodes in groups (N,), and its interval.

    As in `laurel.evaluation.intervals.mean_intervals`, groups are reweighted together with one more, unseen group,
    in which the arm loses to all others for the lower bound and wins for the upper: an arm that won every time has an
    interval, too.
    """
    n, k = returns.shape
    distinct = int(group.max()) + 1
    values = _strengths(returns, np.ones((1, n)))[:, 0]
    drawn = (distinct + 1) * generator(seed, "elo").dirichlet(np.ones(distinct + 1), size=DRAWS)
    weights = np.column_stack([drawn[:, group], drawn[:, -1] * n / distinct])
    found = [{"value": 0.0, "ci95": [0.0, 0.0]}]
    for arm in range(1, k):
        bounds = []
        for end, percent in ((-math.inf, 2.5), (math.inf, 97.5)):
            unseen = np.where(np.arange(k) == arm, end, 0.0)
            bounds.append(float(np.percentile(_strengths(np.vstack([returns, unseen]), weights)[arm], percent)))
        found.append({"value": float(values[arm]), "ci95": bounds})
    return found


def _strengths(returns: DoubleArray, weights: DoubleArray) -> DoubleArray:
    """Return the Elo of each of K arms (K, D), for D weightings (D, N) of the rows of their returns (N, K)."""
    n, k = returns.shape
    pairs = list(combinations(range(k), 2))
    rows = np.zeros((len(pairs) * n, k), dtype=np.float64)
    targets = np.zeros(len(rows))
    for number, (i, j) in enumerate(pairs):
        part = slice(number * n, (number + 1) * n)
        rows[part, i], rows[part, j] = 1.0, -1.0
        targets[part] = np.where(returns[:, i] == returns[:, j], 0.5, returns[:, i] > returns[:, j])
    counted = np.tile(weights, (1, len(pairs))).T
    ridges = 1 / (2 * PRIOR**2 * np.maximum(counted.sum(axis=0), 1))
    return np.concatenate([np.zeros((1, len(weights))), logistic(rows[:, 1:], targets, counted, ridges) * POINTS])


def _divergence(curves: pd.DataFrame) -> float:
    """Return the mean divergence at the end of training."""
    last = curves["env_steps"] > (1 - LAST) * curves["env_steps"].max()
    return float(curves.loc[last, "reference_kl"].mean())


def examples(results: pd.DataFrame, names: list[str]) -> list[tuple[str, list[tuple[str, str, float]]]]:
    """Return some prompts, with each arm's completion and its return."""
    first = results[results["seed"] == results["seed"].min()]
    found = []
    for episode in sorted(first["episode"].unique())[:SHOWN]:
        of_episode = first[first["episode"] == episode].set_index("arm")
        own = [(name, str(of_episode.loc[name, "text"]), float(of_episode.loc[name, "return"])) for name in names]
        found.append((str(of_episode.loc[names[0], "prompt"]), own))
    return found
