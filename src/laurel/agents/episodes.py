"""Returns, lengths and successes of the episodes that end while an agent trains.

Works on rollouts of any length, whoever collected them. Knows nothing about algorithms or learned rewards.
"""

from __future__ import annotations

import numpy as np

from laurel.agents.learner import Rollout
from laurel.envs.base import FloatArray, Room


class Episodes:
    """Follows N environments through rollouts; episodes may cross from one into the next."""

    def __init__(self, room: Room, n_envs: int) -> None:
        self._room = room
        self._returns = np.zeros(n_envs, dtype=np.float32)
        self._lengths = np.zeros(n_envs, dtype=np.int64)

    def finished(self, rollout: Rollout) -> dict[str, float | None]:
        returns: list[FloatArray] = []
        lengths, terminated = [], []
        paid, over, start = rollout.extrinsic * rollout.valid, rollout.terminated | rollout.truncated, 0
        for t in sorted({*np.flatnonzero(over.any(axis=1)).tolist(), len(paid) - 1}):  # steps up to an end are one sum
            steps, ended = slice(start, t + 1), over[t]
            self._returns = np.add.reduce(np.concatenate([self._returns[None], paid[steps]]))
            self._lengths += rollout.valid[steps].sum(axis=0)
            if ended.any():
                returns.append(self._returns[ended])
                lengths.append(self._lengths[ended])
                terminated.append(rollout.terminated[t][ended])
                self._returns[ended] = 0
                self._lengths[ended] = 0
            start = t + 1
        if not returns:
            return {"episodes": 0, "return_mean": None, "success_rate": None, "length_mean": None}
        all_returns = np.concatenate(returns)
        success = self._room.succeeded(all_returns, np.concatenate(terminated))
        return {
            "episodes": len(all_returns),
            "return_mean": float(all_returns.mean()),
            "success_rate": None if success is None else float(success.mean()),
            "length_mean": float(np.concatenate(lengths).mean()),
        }
