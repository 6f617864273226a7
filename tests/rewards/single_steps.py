"""Rewards asked about single steps, each of an environment of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from laurel.arrays import FloatArray, IntArray
from laurel.envs.base import Transitions
from laurel.rewards.base import Reward, Steps


def nowhere(n: int) -> Transitions:
    """Return transitions that a reward of captions does not look at."""
    flags = np.zeros(n, np.bool_)
    return Transitions(np.zeros((n, 1)), np.zeros(n, np.int64), np.zeros(n, np.float32), np.zeros((n, 1)), flags, flags)


def pay(reward: Reward, transitions: Transitions, ids: IntArray, texts: Sequence[str]) -> FloatArray:
    """Return what N steps with caption ids (N,) are paid (N,)."""
    none = np.zeros((1, len(ids)), np.bool_)
    return reward.pay(Steps(transitions, ids[None], texts, ~none, none, none))[0]


def pay_captions(reward: Reward, texts: Sequence[str]) -> FloatArray:
    """Return what captions are paid, each met once (N,)."""
    return pay(reward, nowhere(len(texts)), np.arange(len(texts)), texts)
