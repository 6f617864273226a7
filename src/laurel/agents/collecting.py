"""Learners that collect a plain rollout: a step at a time with the policy as it stands."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from laurel.agents.learner import Learner, PolicyNetwork, Rollout
from laurel.envs.base import Array, EnvAdapter, FloatArray
from laurel.envs.vector import VectorEnv


class Collecting(Learner):
    """Acts; what is learned from that is for subclasses to say.

    Args:
        policy: what acts.
        n_steps: T of a rollout.
        rng: draws actions.
    """

    adapter: EnvAdapter

    def __init__(self, policy: PolicyNetwork, n_steps: int, rng: np.random.Generator) -> None:
        self.policy = policy
        self.n_steps = n_steps
        self.rng = rng

    def rollout(self, envs: VectorEnv) -> Rollout:
        self.adapter = envs.adapter
        return Rollout(**Rollout.shapes(self.n_steps, envs, self.policy))

    def collect(self, envs: VectorEnv, observation: Array, rollout: Rollout) -> Array:
        rollout.observation[0] = observation
        for t in range(self.n_steps):
            action = self._act(envs.adapter.features(rollout.observation[t]))
            rollout.record(t, action, envs.step(action))
        rollout.reward[:] = rollout.extrinsic
        return rollout.observation[-1].copy()

    def features(self, observation: Array) -> FloatArray:
        """Turn packed observations (..., D) into what the policy sees (..., F)."""
        rows = self.adapter.features(observation.reshape(-1, observation.shape[-1]))
        return rows.reshape(*observation.shape[:-1], rows.shape[1])

    def _act(self, features: FloatArray) -> Array:
        """Choose actions (N,) or (N, A) for features (N, F)."""
        return self.policy.act(features, self.rng)[0]


def descend(optimizer: torch.optim.Optimizer, network: nn.Module, loss: Tensor, max_grad_norm: float) -> None:
    """Take a gradient step on a loss, no longer than `max_grad_norm` allows."""
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(network.parameters(), max_grad_norm)
    optimizer.step()
