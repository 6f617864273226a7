"""Returns, lengths and successes of training episodes: the window that learning curves show.

The choice of episodes that a mean is taken over can bias it. In parallel environments, short episodes end first: if a
success ends an episode and a failure lasts until the time limit, the first hundred episodes to end may all be
successes of an agent that mostly fails, and this recurs with every time limit. Therefore episodes are ordered by their
start, and one counts only when every episode that began before it has ended, too. The start of an episode does not
depend on its outcome, so by Wald's identity no outcome is preferred: the bias of a mean over n episodes is at most 1/n
of their range, due to the one episode at which the count stops. Episodes that began in the same step are ordered by
environment. The price is delay: an episode, and every episode that began after it, counts only once it has ended, for a
failure at its time limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from laurel.arrays import DoubleArray, IntArray
from laurel.envs.base import EnvAdapter, Transitions

if TYPE_CHECKING:
    from laurel.agents.learner import Rollout

WINDOW = 100
"""Episodes of a training run over which its return and success rate are averaged."""
LEAST = 50
"""Minimum number of episodes for such a mean: with fewer, the last one would weigh too much."""

RETURN, LENGTH, SUCCESS = range(3)
Outcomes = DoubleArray
"""(episodes, 3) return, length and success; success is NaN if it is undefined."""


class Episodes:
    """Tracks the episodes of N environments over rollouts; an episode may span several."""

    def __init__(self, adapter: EnvAdapter, n_envs: int) -> None:
        self._adapter = adapter
        self._returns = np.zeros(n_envs)  # in double precision: a long episode sums many small rewards
        self._lengths = np.zeros(n_envs, dtype=np.int64)
        self._now = 0
        self._places = np.arange(n_envs, dtype=np.int64)
        """(N,) start order of the running episodes: step * N + environment."""
        self._ended_places = np.zeros(0, dtype=np.int64)
        """(E,) start order of episodes that have ended, but do not count yet."""
        self._ended = np.zeros((0, 3))
        self._window = np.zeros((0, 3))
        self._new = 0

    def follow(self, rollout: Rollout) -> None:
        """Add the next rollout."""
        returns: list[DoubleArray] = []
        lengths, last, places = [], [], []
        paid, done, start = rollout.extrinsic * rollout.valid, rollout.terminated | rollout.truncated, 0
        for t in sorted({*np.flatnonzero(done.any(axis=1)).tolist(), len(paid) - 1}):  # steps up to an end are one sum
            steps, ended = slice(start, t + 1), done[t]
            self._returns = np.add.reduce(np.concatenate([self._returns[None], paid[steps]]))
            self._lengths += rollout.valid[steps].sum(axis=0)
            if ended.any():
                returns.append(self._returns[ended])
                lengths.append(self._lengths[ended])
                last.append(t * len(ended) + np.flatnonzero(ended))
                places.append(self._places[ended])
                self._returns[ended] = 0
                self._lengths[ended] = 0
                self._places[ended] = (self._now + t + 1) * len(ended) + np.flatnonzero(ended)
            start = t + 1
        self._now += len(paid)
        if returns:
            ends = rollout.transitions[np.concatenate(last)]
            self._take_in(np.concatenate(returns), np.concatenate(lengths), ends, np.concatenate(places))

    def figures(self, *, at_least: int = LEAST) -> dict[str, float | None]:
        """Return the figures of the episodes so far, for the learning curve.

        Args:
            at_least: with fewer episodes in the window the means are None.

        Returns:
            `episodes`, how many have ended since the last call; `window`, how many the means are over: at most the last
            WINDOW of those that count; and their means `return_mean`, `success_rate` (None where success has no
            meaning) and `length_mean`.
        """
        new, self._new = self._new, 0
        figures: dict[str, float | None] = {"episodes": new, "window": len(self._window)}
        known = len(self._window) >= max(at_least, 1)
        for name, column in (("return_mean", RETURN), ("success_rate", SUCCESS), ("length_mean", LENGTH)):
            mean = float(self._window[:, column].mean()) if known else np.nan
            figures[name] = None if np.isnan(mean) else mean
        return figures

    def _take_in(
        self,
        returns: DoubleArray,
        lengths: IntArray,
        last: Transitions,
        places: IntArray,
    ) -> None:
        """Record episodes that have ended, and count those that began before every running one."""
        self._new += len(returns)
        success = self._adapter.succeeded(returns.astype(np.float32), last)
        outcomes = np.full((len(returns), 3), np.nan)
        outcomes[:, RETURN], outcomes[:, LENGTH] = returns, lengths
        if success is not None:
            outcomes[:, SUCCESS] = success
        self._ended_places = np.concatenate([self._ended_places, places])
        self._ended = np.concatenate([self._ended, outcomes])
        counts = self._ended_places < self._places.min()
        if not counts.any():
            return
        in_order = np.flatnonzero(counts)[np.argsort(self._ended_places[counts])]
        self._window = np.concatenate([self._window, self._ended[in_order]])[-WINDOW:]
        self._ended_places, self._ended = self._ended_places[~counts], self._ended[~counts]
