"""Computes the rewards of steps: captions, their counts in the episode, the raw and the shaped reward.

Shared by training, Stable-Baselines3, roll-outs and films.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laurel.arrays import BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.captioner import NO_CAPTION, Captioner
from laurel.params.training import ShapingParams
from laurel.rewards.base import UNPAID, OutcomesReward, Reward, Steps, paid
from laurel.rewards.functions import parts_of
from laurel.rewards.shaping import Bonus, Ends, Potential


@dataclass(frozen=True, slots=True)
class Pay:
    """The rewards of T steps of N environments, before the weights of shaping; all (T, N)."""

    captions: IntArray
    """Ids; NO_CAPTION (-1) if a step has no caption, or a row is not a step."""
    raw: FloatArray
    """UNPAID if the reward does not score the step."""
    shaped: FloatArray
    """0 if a row is not a step."""
    scored: BoolArray
    """Whether a step has a raw reward, for each step."""


class RewardCalculator:
    """Computes the rewards of N environments' steps, in order; counts the captions that each episode has met, except
    for rewards of outcomes alone, which pay once an episode.

    Args:
        reward: the reward before shaping, which is reset here (`begin`).
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
        # the answer about an episode does not become less
        self._counts = not all(isinstance(part, OutcomesReward) for part in parts_of(reward))
        self._captioner = captioner or Captioner(adapter)
        self._shaping = shaping
        self._shape = shaper(shaping, n_envs)
        reward.begin(n_envs)

    @property
    def texts(self) -> Sequence[str]:
        """texts[id] is the caption."""
        return self._captioner.texts

    def restore(self, texts: Sequence[str]) -> None:
        """Assign ids to captions that were met before, in this order."""
        self._captioner.restore(texts)

    def pay(self, transitions: Transitions, valid: BoolArray, terminated: BoolArray, truncated: BoolArray) -> Pay:
        """Reward T steps: T * N transitions, with those of a step adjacent; the other arguments are (T, N).

        Raises:
            PluginError: another package's reward returned NaN, infinity, or an array of another shape.
        """
        captions = self._captioner.ids_of(transitions, valid.reshape(-1)).reshape(valid.shape)
        steps = Steps(transitions, captions, self._captioner.texts, valid, terminated, truncated)
        raw = paid(self._reward, steps)
        counted = captions if self._counts else np.full_like(captions, NO_CAPTION)
        shaped = self._shape(raw, self._reward.threshold, counted, Ends(valid, terminated, truncated))
        return Pay(captions, raw, shaped, valid & (raw > UNPAID))

    def mixed(self, extrinsic: FloatArray, shaped: FloatArray) -> FloatArray:
        """Return the reward that agents learn from: the weighted sum of the environment's and the shaped one."""
        return self._shaping.extrinsic * extrinsic + self._shaping.intrinsic * shaped

    def abandon(self, transitions: Transitions, mask: BoolArray) -> None:
        """Drop running episodes (N,) that are cut off before their end; the transitions (N,) only give the shape."""
        no_steps = np.zeros((1, len(mask)), np.bool_)
        self.pay(transitions, no_steps, no_steps, mask[None])


def shaper(shaping: ShapingParams, n_envs: int) -> Bonus | Potential:
    """Return the shaper of raw rewards of N environments' steps."""
    return Potential(shaping.discount, n_envs) if shaping.form == "potential" else Bonus(shaping.beta, n_envs)
