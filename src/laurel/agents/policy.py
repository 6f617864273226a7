"""The actor-critic network: separate bodies, orthogonal initialisation, tanh (as CleanRL's ppo.py).

Actions are drawn by NumPy with one uniform number each, which on small networks costs less than a distribution object.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from laurel.agents.actions import action_form
from laurel.agents.learner import PolicyNetwork
from laurel.arrays import Array, FloatArray


class ActorCritic(PolicyNetwork):
    """Policy and value of a batch of features.

    Args:
        n_features: F, width of a feature row.
        n_actions: number of discrete actions, or the dimension of continuous ones.
        continuous: a Gaussian with a state-independent deviation instead of a categorical policy.
        hidden: widths of the hidden layers of both bodies.
    """

    kind = "actor_critic"
    ppo_class: ClassVar[str] = "laurel.agents.stacked_ppo:StackedPPO"
    """Module and class of its PPO learner; imported when the learner is made."""

    def __init__(self, n_features: int, n_actions: int, *, continuous: bool, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.n_features = n_features
        self.n_actions = n_actions
        self.continuous = continuous
        self.hidden = hidden
        self.actor = mlp((n_features, *hidden, n_actions), gain=0.01)
        self.critic = mlp((n_features, *hidden, 1), gain=1.0)
        self.log_std = nn.Parameter(torch.zeros(n_actions)) if continuous else None

    @torch.inference_mode()
    def act(
        self, features: FloatArray, rng: np.random.Generator, *, greedy: bool = False
    ) -> tuple[Array, FloatArray, FloatArray]:
        """Draw actions for features (N, F): actions (N,) or (N, A), their log-probabilities and values (N,)."""
        x = torch.from_numpy(features).to(self.device)
        output, value = self.actor(x).cpu(), self.critic(x)[:, 0].cpu().numpy()
        if self.log_std is not None:
            noise = (
                torch.zeros_like(output) if greedy else torch.from_numpy(rng.standard_normal(output.shape, np.float32))
            )
            log_std = self.log_std.cpu()
            action = output + noise * log_std.exp()
            return action.numpy(), _gaussian_log_prob(output, log_std, action).numpy(), value
        log_probs = torch.log_softmax(output, dim=1).numpy()
        if greedy:
            choice = log_probs.argmax(axis=1)
        else:  # invert the cumulative distribution at one uniform draw a row
            cumulative = np.exp(log_probs).cumsum(axis=1)
            draw = rng.random((len(features), 1), dtype=np.float32) * cumulative[:, -1:]
            choice = (cumulative <= draw).sum(axis=1).clip(max=self.n_actions - 1)
        return choice, log_probs[np.arange(len(choice)), choice], value

    @torch.inference_mode()
    def evaluate(self, features: FloatArray) -> FloatArray:
        """Return the values (N,) of features (N, F)."""
        values: FloatArray = self.critic(torch.from_numpy(features).to(self.device))[:, 0].cpu().numpy()
        return values

    @torch.inference_mode()
    def log_prob(self, features: FloatArray, action: Array) -> FloatArray:
        """Return the log-probabilities (N,) of given actions."""
        log_probs: FloatArray = self(torch.from_numpy(features), torch.from_numpy(action))[0].numpy()
        return log_probs

    def forward(self, features: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities of the actions, entropies and values, each (N,)."""
        output, value = self.actor(features), self.critic(features)[:, 0]
        if self.log_std is not None:
            entropy = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum().expand(len(features))
            return _gaussian_log_prob(output, self.log_std, action), entropy, value
        log_probs = torch.log_softmax(output, dim=1)
        entropy = -(log_probs.exp() * log_probs).sum(dim=1)
        return log_probs.gather(1, action[:, None])[:, 0], entropy, value


def make_network(n_features: int, action_space: gym.Space[Any], hidden: tuple[int, ...]) -> ActorCritic:
    """Make the network for an action space.

    Raises:
        EnvError: the space is neither Discrete from 0 on nor a flat Box.
    """
    n_actions, continuous = action_form(action_space)
    return ActorCritic(n_features, n_actions, continuous=continuous, hidden=hidden)


def _gaussian_log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    z = (action - mean) / log_std.exp()
    return (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(dim=1)


@torch.no_grad()
def orthogonal_(weight: Tensor, gain: float) -> None:
    """Initialise as `torch.nn.init.orthogonal_`, to the same single-precision numbers on every CPU.

    The last digits of a QR decomposition depend on the CPU, and training amplifies such differences.
    """
    precise = torch.empty(weight.shape, dtype=torch.float64)
    nn.init.orthogonal_(precise, gain)
    weight.copy_(precise)


def mlp(sizes: tuple[int, ...], gain: float) -> nn.Sequential:
    """Make layers of these widths, with tanh between them; `gain` is for the initialisation of the last layer."""
    layers: list[nn.Module] = []
    for i, (n_in, n_out) in enumerate(pairwise(sizes)):
        last = i == len(sizes) - 2
        linear = nn.Linear(n_in, n_out)
        orthogonal_(linear.weight, gain if last else math.sqrt(2))
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, nn.Tanh()]
    return nn.Sequential(*layers)
