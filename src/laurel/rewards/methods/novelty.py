"""Control: every caption has reward 1, so that only its count matters.

With `shaping.beta` this is a count bonus, 1 / N(caption)^beta over each episode; with beta 0 it is a constant.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from laurel.envs.base import EnvAdapter
from laurel.params.rewards import RewardParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import CaptionReward
from laurel.rewards.method import Method


class Novelty(Method[RewardParams]):
    """Uses no data and fits nothing."""

    kind = "novelty"
    role = "control"
    summary = "1 for every caption"

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        return CaptionReward({}, 0.0, lambda texts: np.ones(len(texts), dtype=np.float32))


METHOD = Novelty
