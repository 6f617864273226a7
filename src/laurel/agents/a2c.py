"""Advantage actor-critic: the synchronous form of A3C (Mnih et al. 2016, arXiv 1602.01783, section 4 and algorithm S3).

    θ ← θ + α mean[∇ log π(A|S) (G - V(S)) + c_H ∇ H(π(·|S))];   V(S) moves towards G

Each rollout gives one gradient step on all its rows, by Adam where the paper has RMSProp. G are the paper's n-step
returns: the rewards up to the rollout's end plus the value of the observation there. With λ below 1 they are the
returns of generalised advantage estimation. Truncation bootstraps, termination does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from laurel.agents.collecting import Collecting
from laurel.agents.learner import AdamLearner, Rollout
from laurel.agents.policy import ActorCritic
from laurel.agents.ppo import explained_variance, gae_of
from laurel.arrays import Array
from laurel.params.algorithms import A2CParams


class PolicyGradient(AdamLearner, Collecting):
    """An actor-critic that takes one step on all rows of a rollout."""

    policy: ActorCritic

    def step(self, features: Array, action: Array, returns: Array) -> dict[str, float]:
        """Take a gradient step on a batch: features (B, F), actions (B,) or (B, A), resulting returns (B,).

        The critic's values are the baseline; no gradient flows through them.
        """
        p, target = self.params, self.tensor(returns)
        log_prob, entropy, value = self.policy(self.tensor(features), self.tensor(action))
        policy_loss = -(log_prob * (target - value.detach())).mean()
        value_loss, mean_entropy = 0.5 * (value - target).square().mean(), entropy.mean()
        self.descend(policy_loss + p.value_coef * value_loss - p.entropy_coef * mean_entropy)
        losses = {"policy": policy_loss, "value": value_loss, "entropy": mean_entropy}
        return {name: float(loss.detach()) for name, loss in losses.items()}


class A2C(PolicyGradient):
    """Learns after each rollout, from all of its steps."""

    name = "a2c"
    params: A2CParams

    def learn(self, rollout: Rollout) -> Mapping[str, float]:
        if not rollout.valid.any():
            return {}
        features = self.features(rollout.observation)
        value = self.policy.evaluate(features.reshape(-1, features.shape[-1])).reshape(features.shape[:2])
        advantage = gae_of(self.params, rollout, value)
        advantages, value_then = rollout.rows(advantage), rollout.rows(value[:-1])
        returns = advantages + value_then
        losses = self.step(rollout.rows(features[:-1]), rollout.rows(rollout.action), returns)
        return {**losses, "explained_variance": explained_variance(advantages, returns)}
