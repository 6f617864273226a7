"""A reward method that rewards whole episodes, at their end: `arms: {arrived: {reward: arrived}}`."""

import numpy as np

from laurel.params.rewards import RewardParams
from laurel.rewards.base import UNPAID
from laurel.rewards.method import Method


class ArrivedParams(RewardParams):
    """The settings, `rewards.arrived`."""

    bonus: float = 1.0
    """Reward of an episode that terminates at once; it falls linearly to 0 at `limit` steps."""
    limit: int = 100
    """Episode length from which the reward is 0."""


class Haste:
    """Counts the steps of each episode; the last step is rewarded, more for shorter episodes."""

    threshold, unseen = 0.0, 0

    def __init__(self, bonus, limit):
        self.bonus, self.limit = bonus, limit

    def begin(self, n_envs):
        """Reset the counters: all environments begin new episodes."""
        self.length = np.zeros(n_envs, dtype=np.int64)

    def pay(self, steps):
        """Return the reward of each step (T, N), UNPAID for steps that it does not score."""
        paid = np.full(steps.valid.shape, UNPAID)
        for t, valid in enumerate(steps.valid):
            self.length += valid
            saved = np.maximum(self.limit - self.length, 0) / self.limit
            paid[t] = np.where(steps.terminated[t], self.bonus * saved, UNPAID)
            self.length[steps.terminated[t] | steps.truncated[t]] = 0
        return paid


class Arrived(Method):
    """Needs neither data nor training."""

    kind = "arrived"
    summary = "a bonus at the end of an episode for finishing quickly"
    Settings = ArrivedParams

    def load(self, place, adapter, quantile):
        return Haste(self.settings.bonus, self.settings.limit)


METHOD = Arrived
