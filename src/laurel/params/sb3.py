"""The section `agent.sb3`: an algorithm of Stable-Baselines3 and its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from laurel.params.algorithms import LearnerParams
from laurel.params.fields import Count, NonNegative

SB3Algorithm = Literal["A2C", "DDPG", "DQN", "PPO", "SAC", "TD3", "CrossQ", "QRDQN", "TQC", "TRPO"]
UNFIT: Mapping[str, str] = {
    "ARS": "it has no gradients or optimiser to checkpoint",
    "MaskablePPO": "Laurel's environments provide no action masks",
    "RecurrentPPO": "Laurel's agents with this engine have no recurrent state",
}
"""Unsupported algorithms -> reason."""
RESERVED: Mapping[str, str] = {
    "_init_setup_model": "Laurel's own",
    "action_noise": "agent.sb3.noise",
    "device": "agent.device",
    "env": "env",
    "policy": "agent.sb3.policy",
    "replay_buffer_class": "Laurel's own",
    "replay_buffer_kwargs": "Laurel's own",
    "rollout_buffer_class": "Laurel's own",
    "rollout_buffer_kwargs": "Laurel's own",
    "seed": "agent.seeds",
    "stats_window_size": "Laurel's own",
    "tensorboard_log": "tracking",
    "verbose": "Laurel's own",
}
"""Arguments that `kwargs` may not set -> the parameter that sets them."""


def _trainable(name: Any) -> Any:
    """Refuse an algorithm that exists but is not supported, and say why."""
    if isinstance(name, str) and name in UNFIT:
        raise ValueError(f"is {name}, which is not supported: {UNFIT[name]}. Choose another.")
    return name


def _left_to_kwargs(content: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse arguments that are set elsewhere."""
    for key in content:
        if key in RESERVED:
            raise ValueError(f"has {key}, which is not set here; see {RESERVED[key]}.")
    return content


class SB3Params(LearnerParams):
    searched: ClassVar[tuple[str, ...]] = ("kwargs.learning_rate=log:0.0001:0.01",)
    """The only argument that all of these algorithms have."""
    algorithm: Annotated[SB3Algorithm, BeforeValidator(_trainable)] = "SAC"
    """A class of stable_baselines3 or sb3_contrib, by name: SAC, TD3, DQN, QRDQN, TQC, CrossQ, TRPO and others."""
    policy: Literal["MlpPolicy"] = "MlpPolicy"
    """Policy class: agents see rows of features, as MlpPolicy expects."""
    n_envs: Count = 8
    noise: NonNegative = 0.0
    """Standard deviation of the Gaussian noise on actions scaled to [-1, 1], for algorithms with the argument
    action_noise."""
    kwargs: Annotated[dict[str, JsonValue], AfterValidator(_left_to_kwargs)] = Field(default_factory=dict)
    """Arguments of the class; the others keep Stable-Baselines3's defaults."""

    @property
    def trainer_name(self) -> str:
        return f"{self.algorithm} (sb3)"

    @property
    def learned_discount(self) -> float:
        return float(self.kwargs.get("gamma", 0.99))  # type: ignore[arg-type]
