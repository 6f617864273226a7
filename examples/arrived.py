"""A reward method that pays per episode, at its end: `arms: {arrived: {reward: arrived}}`."""

import numpy as np

from laurel.params.rewards import RewardParams
from laurel.rewards.base import UNPAID
from laurel.rewards.method import Method


class ArrivedParams(RewardParams):
    """The settings, `rewards.arrived`."""

    bonus: float = 1.0
    """Pay of an episode that the task's own rules ended, per step that it was short of `limit`."""
    limit: int = 100
    """Steps after which an episode is paid nothing."""


class Haste:
    """Counts the steps of each environment's episode, and pays the last one by how few they were."""

    threshold, unseen = 0.0, 0

    def __init__(self, bonus, limit):
        self.bonus, self.limit = bonus, limit

    def begin(self, n_envs):
        """Forget what came before: all environments begin new episodes."""
        self.length = np.zeros(n_envs, dtype=np.int64)

    def pay(self, steps):
        """Return what steps are paid (T, N), UNPAID where there is nothing to say."""
        paid = np.full(steps.valid.shape, UNPAID)
        for t, valid in enumerate(steps.valid):
            self.length += valid
            saved = np.maximum(self.limit - self.length, 0) / self.limit
            paid[t] = np.where(steps.terminated[t], self.bonus * saved, UNPAID)
            self.length[steps.terminated[t] | steps.truncated[t]] = 0
        return paid


class Arrived(Method):
    """Needs no data and fits nothing."""

    kind = "arrived"
    summary = "a bonus at the end of an episode for having been quick"
    Settings = ArrivedParams

    def load(self, place, adapter, quantile):
        return Haste(self.settings.bonus, self.settings.limit)


METHOD = Arrived
