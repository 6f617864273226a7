"""Control: random network distillation (Burda et al. 2018, arXiv 1810.12894, section 2), novelty without captions.

    bonus(s') = |f(s') - t(s')|^2 / sd

The random network t is fixed, and f learns to predict it on visited observations, so that rare observations get a
higher bonus. Features are normalised by running statistics and clipped to [-5, 5]; sd is that of the discounted sums of
bonuses. Both networks are new for each training run, and f learns during the run; a resumed run replays the same steps.
Set `shaping: {beta: 0}` for its arms, since the bonus itself decreases with repetition.
"""

from __future__ import annotations

from pathlib import Path

from laurel.data.json_file import read_json, write_json
from laurel.envs.base import EnvAdapter
from laurel.params.fields import Count, Positive, Probability
from laurel.params.rewards import RewardParams
from laurel.rewards.base import Reward
from laurel.rewards.method import Inputs, Method, RewardContext


class RNDParams(RewardParams):
    """Settings of rnd."""

    width: Count = 64
    """Width of the hidden layer and of the output of both networks."""
    learning_rate: Positive = 1e-3
    batch_size: Count = 256
    gamma: Probability = 0.99
    """Discount of the sums of bonuses that are normalised to a standard deviation of 1."""


class RND(Method[RNDParams]):
    """Draws networks by the agent's seed; everything else is learned during training."""

    kind = "rnd"
    summary = "a bonus for observations that are hard to predict (random network distillation)"
    role = "control"
    stationary = False
    Settings = RNDParams
    per_seed = True

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        write_json(place / "config.json", {"seed": seed})

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        from laurel.rewards.distillation import Distillation

        settings = self.settings
        return Distillation(
            adapter.features,
            seed=read_json(place / "config.json")["seed"],
            width=settings.width,
            learning_rate=settings.learning_rate,
            batch_size=settings.batch_size,
            gamma=settings.gamma,
        )


METHOD = RND
