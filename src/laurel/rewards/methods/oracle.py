"""Upper bound: the environment's hand-written progress as reward."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from laurel.envs.base import EnvAdapter
from laurel.params.rewards import RewardParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import CaptionReward
from laurel.rewards.method import Method, RewardContext


class Oracle(Method[RewardParams]):
    """The environment's progress, looked up by caption."""

    kind = "oracle"
    role = "bound"
    summary = "hand-written progress as reward"

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        return f"{adapter.env_id} has no hand-written progress." if adapter.oracle("") is None else None

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        return CaptionReward(
            {}, 0.0, lambda texts: np.array([adapter.oracle(text) or 0 for text in texts], dtype=np.float32)
        )


METHOD = Oracle
