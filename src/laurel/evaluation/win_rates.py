"""Language models compared by their completions of the same prompts: win rates over the base, and Elo.

The text with the higher return wins, and ties count as half a win, so the judge is the environment's own reward. Elo
is the Bradley-Terry model's, 400 points for odds of ten to one, with the base at 0:

    P(i beats j) = 1 / (1 + 10^((E_j - E_i) / 400))

An arm is compared with another in the episodes of the seeds that both have. Several agents of an arm are a sample of
its agents, so intervals are over their seeds. Those of a single agent are over prompts, and say nothing about other
agents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import permutations
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
        results: one row per episode; episodes of the same seed and number have the same prompt in all arms.
        arms: by name.

    Returns:
        Arm -> `elo` and `words` (of a text); of a trained one also `kl`, its divergence from the frozen model in nats a
        completion at the end of its training, and `wins` over the base, a rate with its interval. Wins and Elo of an
        arm that has no seed in common with the base are None. Empty if no language model was trained, or no arm has the
        untrained one as its actor.
    """
    base = next((name for name, arm in arms.items() if arm.actor == BASE), None)
    if base is None or "reference_kl" not in curves or "text" not in results:
        return {}
    trained = [name for name in arms if curves.loc[curves["arm"] == name, "reference_kl"].notna().any()]
    returns = results.pivot_table("return", ["seed", "episode"], "arm")[[base, *trained]]
    prompts = results.drop_duplicates(["seed", "episode"]).set_index(["seed", "episode"])["prompt"]
    pairs = {name: returns[[base, name]].dropna() for name in trained}
    met = [name for name in trained if len(pairs[name])]
    several = any(_n_seeds(pairs[name]) > 1 for name in met)
    compared = returns[[base, *met]].dropna(thresh=2)
    group = _groups(compared, prompts, by_seed=several)
    elo = dict(zip([base, *met], _elo(compared.to_numpy(), group, seed), strict=True))
    by_arm = {}
    for name in (base, *trained):
        texts = results.loc[results["arm"] == name, "text"]
        entry: dict[str, Any] = {"elo": elo.get(name), "words": float(texts.str.split().str.len().mean())}
        if name != base:
            wins = _wins(pairs[name], prompts, seed) if name in met else None
            entry |= {"kl": _divergence(curves[curves["arm"] == name]), "wins": wins}
        by_arm[name] = entry
    return by_arm


def _n_seeds(returns: pd.DataFrame) -> int:
    return returns.index.get_level_values("seed").nunique()


def _groups(returns: pd.DataFrame, prompts: pd.Series[str], *, by_seed: bool) -> IntArray:
    """Return the number of each episode's seed, or else of its prompt."""
    index = returns.index
    return pd.factorize(index.get_level_values("seed") if by_seed else prompts.loc[index])[0]


def _wins(returns: pd.DataFrame, prompts: pd.Series[str], seed: int) -> Rate | None:
    """Return the share of wins by the returns (N, 2) of the base and of another arm."""
    base, trained = returns.to_numpy(dtype=np.float64).T
    won = 0.5 + 0.5 * np.sign(trained - base)
    several = _n_seeds(returns) > 1
    group = _groups(returns, prompts, by_seed=several)
    return _seeds_rate(won, group, seed) if several else grouped_rate(won, group)


def _seeds_rate(won: DoubleArray, by_seed: IntArray, seed: int) -> Rate:
    """Return the mean of the seeds' win rates, from N episodes' wins, and its interval over seeds."""
    rates = np.bincount(by_seed, weights=won) / np.bincount(by_seed)
    low, high = mean_intervals(rates[None], 0.0, 1.0, draws=WIN_DRAWS, seed=seed)
    return {"value": float(rates.mean()), "ci95": [float(low[0]), float(high[0])], "of": len(won)}


def _elo(returns: DoubleArray, group: IntArray, seed: int) -> list[dict[str, Any]]:
    """Return the strength of each of K arms by their returns (N, K), of episodes in groups (N,), and its interval.

    A return is NaN where an arm did not play the episode.
    As in `laurel.evaluation.intervals.mean_intervals`, groups are reweighted together with one more, unseen group,
    in which the arm loses to all others for the lower bound and wins for the upper: an arm that won every time has an
    interval, too.
    """
    n, k = returns.shape
    ratings = [{"value": 0.0, "ci95": [0.0, 0.0]}]
    if k == 1:
        return ratings
    distinct = int(group.max()) + 1
    values = _strengths(returns, np.ones((1, n)))[:, 0]
    drawn = (distinct + 1) * generator(seed, "elo").dirichlet(np.ones(distinct + 1), size=DRAWS)
    weights = np.column_stack([drawn[:, group], drawn[:, -1] * n / distinct])
    for arm in range(1, k):
        bounds = []
        for end, percent in ((-math.inf, 2.5), (math.inf, 97.5)):
            unseen = np.where(np.arange(k) == arm, end, 0.0)
            bounds.append(float(np.percentile(_strengths(np.vstack([returns, unseen]), weights)[arm], percent)))
        ratings.append({"value": float(values[arm]), "ci95": bounds})
    return ratings


def _strengths(returns: DoubleArray, weights: DoubleArray) -> DoubleArray:
    """Return the Elo of each of K arms (K, D), for D weightings (D, N) of the rows of their returns (N, K).

    Only the total weight of the rows in which one arm beats another matters; ties count half.
    """
    k = returns.shape[1]
    rows, wins = [], []
    for winner, loser in permutations(range(k), 2):
        won = 0.5 + 0.5 * np.sign(returns[:, winner] - returns[:, loser])
        wins.append(weights @ np.nan_to_num(won))
        rows.append(np.eye(k)[winner] - np.eye(k)[loser])
    counts = np.array(wins)
    ridges = 1 / (2 * PRIOR**2 * np.maximum(counts.sum(axis=0), 1))
    fitted = logistic(np.array(rows)[:, 1:], np.ones(len(rows)), counts, ridges)
    return np.concatenate([np.zeros((1, len(weights))), fitted * POINTS])


def _divergence(curves: pd.DataFrame) -> float:
    """Return the mean divergence at the end of training."""
    last = curves["env_steps"] > (1 - LAST) * curves["env_steps"].max()
    return float(curves.loc[last, "reference_kl"].mean())


def examples(results: pd.DataFrame, names: list[str]) -> list[tuple[str, list[tuple[str, str, float]]]]:
    """Return some prompts of the first seed that most arms have, with these arms' completions and returns."""
    by_seed = results[results["arm"].isin(names)].groupby("seed")["arm"].nunique()
    first = results[results["seed"] == by_seed.idxmax()]
    chosen = []
    for episode in sorted(first["episode"].unique())[:SHOWN]:
        of_episode = first[first["episode"] == episode].set_index("arm")
        written = [
            (name, str(of_episode.loc[name, "text"]), float(of_episode.loc[name, "return"]))
            for name in names
            if name in of_episode.index
        ]
        chosen.append((str(of_episode.loc[written[0][0], "prompt"]), written))
    return chosen
