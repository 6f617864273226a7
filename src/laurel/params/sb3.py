"""The section `agent.sb3`: an algorithm of Stable-Baselines3 and its arguments."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from laurel.params.fields import Count, NonNegative, Section


class SB3Params(Section):
    algorithm: str = "SAC"
    """A class of stable_baselines3 or sb3_contrib, by name: SAC, TD3, DQN, QRDQN, TQC, CrossQ, TRPO and others."""
    policy: Literal["MlpPolicy"] = "MlpPolicy"
    """What its network is: agents see rows of features, for which MlpPolicy is the one."""
    n_envs: Count = 8
    noise: NonNegative = 0.0
    """Standard deviation of the Gaussian noise on actions scaled to [-1, 1], where the algorithm takes action_noise."""
    kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the class; what is left out is as Stable-Baselines3 has it."""
