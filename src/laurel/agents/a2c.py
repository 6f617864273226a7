"""Advantage actor-critic: the synchronous form of A3C (Mnih et al. 2016, arXiv 1602.01783, section 4 and algorithm S3).

    θ ← θ + α mean[∇ log π(A|S) (G - V(S)) + c_H ∇ H(π(·|S))];   V(S) moves towards G

One step on all rows of a rollout, by Adam where the paper has RMSProp. G are the n-step returns of the paper: the
rewards up to the rollout's end and the value of what comes then. Below λ = 1 they are those of generalised advantage
estimates. Truncation bootstraps, termination does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from laurel.agents.collecting import Collecting, descend
from laurel.agents.learner import Rollout, adam_state, restore_adam, set_learning_rate
from laurel.agents.policy import ActorCritic
from laurel.agents.ppo import gae
from laurel.envs.base import Array
from laurel.params.algorithms import A2CParams


class A2C(Collecting):
    """An actor-critic, its optimiser and its random generator."""

    name = "a2c"
    policy: ActorCritic

    def __init__(self, policy: ActorCritic, params: A2CParams, rng: np.random.Generator) -> None:
        super().__init__(policy, params.n_steps, rng)
        self.params = params
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=params.learning_rate, eps=1e-5, fused=True)

    def learn(self, rollout: Rollout) -> Mapping[str, float]:
        rows = np.flatnonzero(rollout.valid.reshape(-1))
        if len(rows) == 0:
            return {}
        p, device = self.params, self.policy.device
        features = self.features(rollout.observation)
        value = self.policy.evaluate(features.reshape(-1, features.shape[-1])).reshape(features.shape[:2])
        advantage = gae(
            np.where(rollout.valid, rollout.reward, 0),
            value,
            rollout.terminated,
            rollout.truncated,
            gamma=p.gamma,
            lam=p.gae_lambda,
        )

        def batch_of(array: Array) -> Tensor:
            """Flatten time and environments (T, N, ...) and keep the valid rows."""
            return torch.from_numpy(array.reshape(-1, *array.shape[2:])[rows]).to(device)

        advantages = batch_of(advantage)
        returns = advantages + batch_of(value[:-1])
        losses = actor_critic_losses(self.policy, batch_of(features[:-1]), batch_of(rollout.action), returns)
        policy_loss, value_loss, entropy = losses
        loss = policy_loss + p.value_coef * value_loss - p.entropy_coef * entropy
        descend(self.optimizer, self.policy, loss, p.max_grad_norm)
        variance = float(returns.var(correction=0))
        return {
            "policy": float(policy_loss.detach()),
            "value": float(value_loss.detach()),
            "entropy": float(entropy.detach()),
            "explained_variance": 1 - float(advantages.var(correction=0)) / variance if variance > 0 else math.nan,
        }

    def schedule(self, done: float) -> None:
        """Lower the learning rate where it is to be annealed."""
        if self.params.anneal:
            set_learning_rate(self.optimizer, self.params.learning_rate * (1 - done))

    def state(self) -> dict[str, Tensor]:
        return adam_state(self.optimizer, self.policy)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        restore_adam(self.optimizer, self.policy, state)


def actor_critic_losses(
    policy: ActorCritic, features: Tensor, action: Tensor, returns: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses of policy and value, and the entropy, each a mean over rows.

    Args:
        policy: whose values are the baseline, too; that does not move them.
        features: (B, F).
        action: (B,) or (B, A).
        returns: (B,) what the actions led to.
    """
    log_prob, entropy, value = policy(features, action)
    policy_loss = -(log_prob * (returns - value.detach())).mean()
    return policy_loss, 0.5 * (value - returns).square().mean(), entropy.mean()
