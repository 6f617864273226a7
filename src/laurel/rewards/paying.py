"""Pays steps: captions, their counts in the episode, the raw reward and the shaped one.

The one place where that happens, for training, Stable-Baselines3, roll-outs and films.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laurel.arrays import BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.captioner import Captioner
from laurel.params.training import ShapingParams
from laurel.rewards.base import UNPAID, Reward, Steps
from laurel.rewards.shaping import Bonus, Ends, Potential


@dataclass(frozen=True, slots=True)
class Pay:
    """What T steps of N environments are paid, before the weights of the parameters; all (T, N)."""

    captions: IntArray
    """Ids; NOTHING (-1) where a step has no caption, or where a row is not a step."""
    raw: FloatArray
    """UNPAID where the reward does not score the step."""
    shaped: FloatArray
    """0 where a row is not a step."""
    scored: BoolArray
    """Where a step has a raw reward."""


class RewardCalculator:
    """Computes the rewards of N environments' steps, in order; counts the captions that each episode has met.

    Args:
        reward: what is paid before shaping; it is reset here (`begin`).
        n_envs: N.
        captioner: to share its ids and texts with the caller; None: a new one.
    """

    def __init__(
        self,
        adapter: EnvAdapter,
        reward: Reward,
        shaping: ShapingParams,
        n_envs: int,
        captioner: Captioner | None = None,
    ) -> None:
        self._reward = reward
        self._captioner = captioner or Captioner(adapter)
        self._shaping = shaping
        self._shape = shaper(shaping, n_envs)
        reward.begin(n_envs)

    @property
    def texts(self) -> Sequence[str]:
        """texts[id] is the caption."""
        return self._captioner.texts

    def restore(self, texts: Sequence[str]) -> None:
        """Give ids to captions that were met before, in this order."""
        self._captioner.restore(texts)

    def pay(self, transitions: Transitions, valid: BoolArray, terminated: BoolArray, truncated: BoolArray) -> Pay:
        """Pay T steps: T * N transitions, those of a step side by side; the other arguments (T, N)."""
        captions = self._captioner.ids_of(transitions, valid.reshape(-1)).reshape(valid.shape)
        raw = self._reward.pay(Steps(transitions, captions, self._captioner.texts, valid, terminated, truncated))
        shaped = self._shape(raw, self._reward.threshold, captions, Ends(valid, terminated, truncated))
        return Pay(captions, raw, shaped, valid & (raw > UNPAID))

    def mixed(self, extrinsic: FloatArray, shaped: FloatArray) -> FloatArray:
        """Return the reward that agents learn from: the weighted sum of the environment's and the shaped one."""
        return self._shaping.extrinsic * extrinsic + self._shaping.intrinsic * shaped

    def abandon(self, transitions: Transitions, which: BoolArray) -> None:
        """Forget running episodes (N,) that are left before their end; the transitions (N,) only give the shape."""
        nowhere = np.zeros((1, len(which)), np.bool_)
        self.pay(transitions, nowhere, nowhere, which[None])


def shaper(shaping: ShapingParams, n_envs: int) -> Bonus | Potential:
    """Return the shaper that turns raw rewards of N environments' steps into pay."""
    return Potential(shaping.discount, n_envs) if shaping.form == "potential" else Bonus(shaping.beta, n_envs)
