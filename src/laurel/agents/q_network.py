"""The network of action values, and its ε-greedy policy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from laurel.agents.actions import discrete_actions
from laurel.agents.choice import act_on_values, epsilon_greedy
from laurel.agents.learner import PolicyNetwork
from laurel.arrays import Array, FloatArray


class QNetwork(PolicyNetwork):
    """Action values of a batch of features; acts ε-greedily on them.

    Args:
        n_features: F, width of a feature row.
        n_actions: A.
        hidden: widths of the hidden layers.
        epsilon: probability of a random action after training, unless `greedy`.
        layer_norm: apply layer normalisation to hidden layers (Ba et al. 2016, arXiv 1607.06450).
    """

    kind = "q_network"
    continuous = False

    def __init__(
        self, n_features: int, n_actions: int, *, hidden: tuple[int, ...], epsilon: float, layer_norm: bool = False
    ) -> None:
        super().__init__()
        self.n_features = n_features
        self.n_actions = n_actions
        self.hidden = hidden
        self.epsilon = epsilon
        self.layer_norm = layer_norm
        sizes = (n_features, *hidden, n_actions)
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(sizes):
            layers += [nn.Linear(n_in, n_out), *([nn.LayerNorm(n_out)] if layer_norm else []), nn.ReLU()]
        self.values = nn.Sequential(*layers[: -2 if layer_norm else -1])  # gain of the output layer: action values

    def act(
        self, features: FloatArray, rng: np.random.Generator, *, greedy: bool = False
    ) -> tuple[Array, FloatArray, FloatArray]:
        """Draw actions for features (N, F): actions, their log-probabilities and the policy's values (N,)."""
        return act_on_values(self._values_of(features), self.epsilon, rng, greedy=greedy)

    def explore(self, features: FloatArray, rng: np.random.Generator, epsilon: float) -> Array:
        """Draw actions (N,) with another ε."""
        return act_on_values(self._values_of(features), epsilon, rng)[0]

    def log_prob(self, features: FloatArray, action: Array) -> FloatArray:
        policy = epsilon_greedy(self._values_of(features).astype(np.float64), self.epsilon)
        with np.errstate(divide="ignore"):
            return np.log(policy[np.arange(len(action)), action]).astype(np.float32)

    def forward(self, features: Tensor) -> Tensor:
        """Return action values (B, A) of features (B, F)."""
        return self.values(features)

    @torch.inference_mode()
    def _values_of(self, features: FloatArray) -> FloatArray:
        values: FloatArray = self(torch.from_numpy(features).to(self.device)).cpu().numpy()
        return values


def make_q_network(n_features: int, action_space: gym.Space[Any], **shape: Any) -> QNetwork:
    """Make the network for an action space; `shape` has the other arguments of `QNetwork`.

    Raises:
        EnvError: the space is not Discrete from 0 on.
    """
    return QNetwork(n_features, discrete_actions(action_space, "dqn"), **shape)
