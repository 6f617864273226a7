"""Shaping: from a caption's normalised reward to the agent's reward.

The form `bonus` adds to the environment's reward

    r = extrinsic * r_env + intrinsic * max(r_hat - eps, 0) / N(caption)^beta

after Motif (Klissarov et al. 2023, arXiv 2310.00166, sec. 3): eps is a quantile over distinct captions and
N counts the caption's occurrences in the episode so far, this one included. Motif uses r_hat itself above eps. Rewards
are normalised to a mean of 0, so eps is often negative; captions between eps and 0 would then earn less than worse
ones, which earn 0. By using the excess over eps, a better caption never earns less than a worse one.

The form `potential` adds

    F = gamma * Phi(s') - Phi(s),  Phi = max(r_hat - eps, 0) of the last caption in the episode

and so does not change which policies are optimal (Ng, Harada and Russell 1999; Devlin and Kudenko 2012 for a Phi that
depends on more than the state). Phi is 0 where an episode begins and where it is terminated, not where it is truncated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from laurel.arrays import BoolArray, FloatArray, IntArray


class Ends(NamedTuple):
    """Which rows are steps, and where episodes end with them; all (T, N)."""

    valid: BoolArray
    """False where the environment was reset instead of stepped."""
    terminated: BoolArray
    truncated: BoolArray


def shape(reward: FloatArray, count: IntArray, *, threshold: float, beta: float) -> FloatArray:
    """Return the excess of rewards over the threshold, divided by count^beta; arrays of equal shape, counts from 1.

    >>> shape(np.float32([2, 2, -1, -3]), np.array([1, 2, 1, 1]), threshold=-2.0, beta=3.0).tolist()
    [4.0, 0.5, 1.0, 0.0]
    """
    paid = np.maximum(reward - np.float32(threshold), 0)
    with np.errstate(over="ignore"):  # a reward divided by infinity is correctly 0
        return (paid / np.power(count, beta, dtype=np.float32)).astype(np.float32)


class Bonus:
    """Rewards captions, decreasing with their count in the episode."""

    def __init__(self, beta: float, n_envs: int) -> None:
        self._beta = beta
        self._counts = EpisodeCounts(n_envs)

    def __call__(self, raw: FloatArray, threshold: float, ids: IntArray, ends: Ends) -> FloatArray:
        """Shape the rewards of T steps of N environments, which continue those of the last call; all (T, N)."""
        counts = self._counts.update(ids, ends.valid, ends.terminated | ends.truncated)
        return np.where(ends.valid, shape(raw, counts, threshold=threshold, beta=self._beta), 0)


class Potential:
    """Rewards the change of a potential, the excess over the threshold of the last caption's reward.

    Args:
        gamma: discount of the agent that learns from it.
        n_envs: N.
    """

    def __init__(self, gamma: float, n_envs: int) -> None:
        self._gamma = gamma
        self._potential = np.zeros(n_envs, dtype=np.float32)

    def __call__(self, raw: FloatArray, threshold: float, ids: IntArray, ends: Ends) -> FloatArray:
        """Shape the rewards of T steps of N environments, which continue those of the last call; all (T, N)."""
        paid = np.zeros(raw.shape, dtype=np.float32)
        for t in range(len(raw)):
            scored = ends.valid[t] & np.isfinite(raw[t])
            after = np.where(scored, np.maximum(raw[t] - np.float32(threshold), 0), self._potential)
            change = self._gamma * np.where(ends.terminated[t], 0, after) - self._potential
            paid[t] = np.where(ends.valid[t], change, 0)
            self._potential = np.where(ends.terminated[t] | ends.truncated[t], 0, after).astype(np.float32)
        return paid


class EpisodeCounts:
    """Counts of each caption in each environment's current episode."""

    def __init__(self, n_envs: int) -> None:
        self._counts = np.zeros((n_envs, 64), dtype=np.int64)

    def update(self, ids: IntArray, valid: BoolArray, ended: BoolArray) -> IntArray:
        """Count T steps of N environments in order.

        Args:
            ids: (T, N) caption ids; negative ones are not counted.
            valid: (T, N) False where a step was a reset and is not counted.
            ended: (T, N) True where an episode ended with that step.

        Returns:
            (T, N) occurrences so far, each step included; 1 where a step was not counted.
        """
        n_envs = self._counts.shape[0]
        if ids.max(initial=0) >= self._counts.shape[1]:
            grown = np.zeros((n_envs, 2 * int(ids.max()) + 1), dtype=np.int64)
            grown[:, : self._counts.shape[1]] = self._counts
            self._counts = grown
        counted = valid & (ids >= 0)
        flat = self._counts.reshape(-1)  # a view
        places = np.where(counted, ids, 0) + self._counts.shape[1] * np.arange(n_envs)
        added, ends = counted.astype(np.int64), set(np.nonzero(ended)[0].tolist())
        seen = np.empty_like(ids)
        for t in range(len(ids)):
            place = places[t]
            count = np.add(flat[place], added[t], out=seen[t])
            flat[place] = count
            if t in ends:
                self._counts[ended[t]] = 0
        seen[~counted] = 1
        return seen
