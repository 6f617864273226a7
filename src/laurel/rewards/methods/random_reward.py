"""Control: a fixed standard normal draw for each caption."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from laurel.arrays import FloatArray
from laurel.envs.base import EnvAdapter
from laurel.params.rewards import RewardParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import ScoredCaptions
from laurel.rewards.method import Inputs, Method, RewardContext
from laurel.seeding import generator


class RandomReward(Method[RewardParams]):
    """Draws by the agent's seed and the caption."""

    kind = "random_reward"
    role = "control"
    summary = "a random reward for each caption"
    reads = ("captions",)
    per_seed = True

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.data.captions import read_vocabulary

        texts = list(read_vocabulary(inputs.captions).texts)
        ScoredCaptions.of(texts, drawn(texts, seed)).save(place, seed=seed)

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        scored, config = ScoredCaptions.load(place)
        return scored.reward(quantile, lambda texts: drawn(texts, config["seed"]))


def drawn(texts: list[str], seed: int) -> FloatArray:
    """Return a draw for each text, before normalisation."""
    return np.array([generator(seed, "random_reward", text).standard_normal() for text in texts], dtype=np.float32)


METHOD = RandomReward
