"""A reward method that pays per step: `arms: {forward: {reward: forward}}`, `rewards: {forward: {bonus: 2}}`."""

import numpy as np

from laurel.params.rewards import RewardParams
from laurel.rewards.base import UNPAID
from laurel.rewards.method import Method


class ForwardParams(RewardParams):
    """The settings, `rewards.forward`."""

    bonus: float = 1.0
    """Reward of a step forward."""


class Ahead:
    """Pays the action 2, which is forward in MiniGrid."""

    threshold, unseen = 0.0, 0

    def __init__(self, bonus):
        self.bonus = bonus

    def begin(self, n_envs):
        """Do nothing: a step has the same reward in all episodes."""

    def pay(self, steps):
        """Return the reward of each step (T, N), UNPAID for steps it does not score."""
        action = steps.transitions.action.reshape(steps.valid.shape)
        return np.where(steps.valid & (action == 2), self.bonus, UNPAID).astype(np.float32)


class Forward(Method):
    """Needs no data and fits nothing, so it loads without an artefact."""

    kind = "forward"
    summary = "a bonus for each step forward"
    Settings = ForwardParams

    def load(self, place, adapter, quantile):
        return Ahead(self.settings.bonus)


METHOD = Forward
