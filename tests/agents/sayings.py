"""An environment adapter with few captions, and hand-written rollouts in it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from laurel.agents.ppo import OnPolicyRollout
from laurel.arrays import IntArray
from laurel.envs.base import EnvAdapter, Transitions


class Sayings(EnvAdapter):
    """The caption depends on the action: "", "good", "bad" or "fine"."""

    words = ("", "good", "bad", "fine")

    def __init__(self) -> None:
        super().__init__("Sayings-v0", gym.spaces.Discrete(4), gym.spaces.Discrete(4))

    def encode(self, transitions: Transitions) -> IntArray:
        return transitions.action

    def describe(self, event: int) -> str:
        return self.words[event]


def rollout_of(
    action: Any, *, extrinsic: Any = None, terminated: Any = None, truncated: Any = None, valid: Any = None
) -> OnPolicyRollout:
    action = np.array(action, dtype=np.int64)
    t, n = action.shape

    def flags(values: Any, otherwise: bool) -> np.ndarray:
        return np.full((t, n), otherwise) if values is None else np.array(values, dtype=np.bool_)

    return OnPolicyRollout(
        observation=np.zeros((t + 1, n, 1), dtype=np.int64),
        features=np.zeros((t + 1, n, 4), dtype=np.float32),
        action=action,
        log_prob=np.zeros((t, n), dtype=np.float32),
        value=np.zeros((t + 1, n), dtype=np.float32),
        extrinsic=np.zeros((t, n), np.float32) if extrinsic is None else np.array(extrinsic, dtype=np.float32),
        reward=np.full((t, n), np.nan, dtype=np.float32),
        terminated=flags(terminated, False),
        truncated=flags(truncated, False),
        valid=flags(valid, True),
    )
