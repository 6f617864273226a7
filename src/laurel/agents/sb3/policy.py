"""A Stable-Baselines3 policy as a policy of Laurel: loaded from a description and weights, never from a pickle.

Stable-Baselines3's own files contain pickles, which can run arbitrary code when loaded. Here the name of a known
algorithm, plain arguments of its policy and the weights are saved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from laurel.agents.learner import PolicyNetwork
from laurel.agents.sb3.catalog import ACTIVATIONS, algorithm_class, policy_options
from laurel.arrays import Array, FloatArray

PLAIN = (bool, int, float, str)


class SB3Policy(PolicyNetwork):
    """Acts as the algorithm's `predict` does, on features.

    Args:
        algorithm: name of a class of the catalog.
        policy: alias of its policy class.
        n_features: F.
        n_actions: number of discrete actions, or the dimension of continuous ones.
        continuous: which of the two.
        low: (A,) lower bounds of continuous actions.
        high: (A,) upper bounds.
        epsilon: probability of a uniform action, for algorithms that explore in this way.

    Raises:
        ParamsError: Stable-Baselines3 is not installed.
        KeyError: there is no such algorithm or policy.
    """

    kind = "sb3"

    def __init__(
        self,
        algorithm: str,
        policy: str,
        n_features: int,
        n_actions: int,
        *,
        continuous: bool,
        low: Sequence[float],
        high: Sequence[float],
        epsilon: float,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.algorithm, self.alias, self.epsilon = algorithm, policy, epsilon
        self.n_features, self.n_actions, self.continuous = n_features, n_actions, continuous
        self.low, self.high, self.options = tuple(low), tuple(high), dict(options)
        bounds = np.array(low, dtype=np.float32), np.array(high, dtype=np.float32)
        space = gym.spaces.Box(*bounds) if continuous else gym.spaces.Discrete(n_actions)
        factory = algorithm_class(algorithm).policy_aliases[policy]
        with torch.random.fork_rng(devices=[]):
            self.policy = factory(
                feature_space(n_features), space, lambda _: 0.0, **policy_options(_lists(self.options))
            )
        self.policy.set_training_mode(False)

    @classmethod
    def of(cls, model: Any, algorithm: str, policy: str) -> SB3Policy:
        """Copy the policy of an algorithm in training."""
        space = model.action_space
        continuous = isinstance(space, gym.spaces.Box)
        copy = cls(
            algorithm,
            policy,
            model.observation_space.shape[0],
            space.shape[0] if continuous else int(space.n),
            continuous=continuous,
            low=space.low.tolist() if continuous else (),
            high=space.high.tolist() if continuous else (),
            epsilon=float(getattr(model, "exploration_rate", 0.0)),
            options=_plain(model.policy._get_constructor_parameters()),
        )
        copy.policy.load_state_dict(model.policy.state_dict())
        return copy

    def config(self) -> dict[str, Any]:
        return {**super().config(), "policy": self.alias}

    @torch.no_grad()
    def act(
        self, features: FloatArray, rng: np.random.Generator, *, greedy: bool = False
    ) -> tuple[Array, FloatArray, FloatArray]:
        """Draw actions for features (N, F): actions (N,) or (N, A); log-probabilities and values (N,) are NaN."""
        n = len(features)
        by_value = hasattr(self.policy, "q_net") or hasattr(self.policy, "quantile_net")
        with torch.random.fork_rng(devices=[]):
            if not by_value:
                torch.manual_seed(int(rng.integers(2**63)))
            if getattr(self.policy, "use_sde", False) and not greedy:
                self.policy.reset_noise(n)
            action, _ = self.policy.predict(features, deterministic=greedy or by_value)
        if by_value and not greedy and self.epsilon > 0:
            explores = rng.random(n) < self.epsilon
            action = np.where(explores, rng.integers(self.n_actions, size=n), action)
        unknown = np.full(n, np.nan, dtype=np.float32)
        return action.astype(self.action_dtype), unknown, unknown

    def log_prob(self, features: FloatArray, action: Array) -> FloatArray:
        """Return NaN (N,): not every algorithm's policy has a density."""
        return np.full(len(features), np.nan, dtype=np.float32)


def feature_space(n_features: int) -> gym.spaces.Box:
    """Return the observation space of agents: rows of features without bounds."""
    return gym.spaces.Box(-math.inf, math.inf, (n_features,), np.float32)


def _plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """Keep values that JSON can represent, activations by name. Others keep the class's default."""
    stored = {}
    for key, value in content.items():
        if key == "activation_fn":
            assert value.__name__ in ACTIVATIONS
            stored[key] = value.__name__
        elif isinstance(value, PLAIN) or key == "net_arch":
            stored[key] = value
    return stored


def _lists(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert tuples in options back to lists."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
