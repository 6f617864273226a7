"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347) over vectorised environments.

    ρ = π(A|S) / π_old(A|S);   θ ← θ + α ∇ mean[min(ρ Â, clip(ρ, 1 - ε, 1 + ε) Â) - c_V (V(S) - G)² / 2 + c_H H(π(·|S))]

Equations 7 and 9 there. Â are generalised advantage estimates, normalised in each minibatch; G = Â + V_old(S). The
choices are those of "The 37 Implementation Details of PPO" (Huang et al. 2022) for flat observations.
The caller fills in rewards between `collect` and `learn`.

Environments reset on the step after an episode's end (see `laurel.envs.vector`), so the value of a
truncated episode's last observation is simply the next value in the rollout: truncation bootstraps,
termination does not, and rows that are resets are left out of the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from laurel.agents.learner import AdamLearner, Rollout
from laurel.agents.policy import ActorCritic
from laurel.arrays import Array, BoolArray, FloatArray
from laurel.envs.base import EnvAdapter
from laurel.envs.vector import VectorEnv
from laurel.params.algorithms import A2CParams, ClippedParams

Rows = TypeVar("Rows", FloatArray, Tensor)
FIGURES = ("policy", "value", "entropy", "approx_kl", "clip_fraction")
"""Means over an update's minibatches; approx_kl is Schulman's E[(r - 1) - log r]
(http://joschu.net/blog/kl-approx.html)."""


@dataclass
class OnPolicyRollout(Rollout):
    """A rollout with the features, log-probabilities and values of the behaviour policy, including hints."""

    features: FloatArray
    """(T + 1, N, F) input of the network."""
    log_prob: FloatArray
    value: FloatArray
    """(T + 1, N)."""
    hints: FloatArray | None = None
    """(T, N, A) added to the network's logits; None without hints."""


class PPO(AdamLearner):
    """PPO with autograd: for CNNs, and as reference for `laurel.agents.stacked_ppo`."""

    name = "ppo"
    policy: ActorCritic
    params: ClippedParams

    def rollout(self, envs: VectorEnv) -> OnPolicyRollout:
        steps, n_envs = self.params.n_steps, envs.n_envs
        hinted = self.hints is not None
        return OnPolicyRollout(
            **Rollout.shapes(steps, envs, self.policy),
            features=np.zeros((steps + 1, n_envs, self.policy.n_features), dtype=np.float32),
            log_prob=np.zeros((steps, n_envs), dtype=np.float32),
            value=np.zeros((steps + 1, n_envs), dtype=np.float32),
            hints=np.zeros((steps, n_envs, self.policy.n_actions), dtype=np.float32) if hinted else None,
        )

    def collect(self, envs: VectorEnv, observation: Array, rollout: OnPolicyRollout) -> Array:
        adapter = envs.adapter
        rollout.observation[0] = observation
        for t in range(self.params.n_steps):
            features = self.features(adapter, rollout.observation[t])
            action, log_prob, value = self.policy.act(features, self.rng)
            rollout.features[t], rollout.log_prob[t], rollout.value[t] = features, log_prob, value
            rollout.record(t, action, envs.step(action))
        rollout.features[-1] = self.features(adapter, rollout.observation[-1])
        rollout.value[-1] = self.policy.evaluate(rollout.features[-1])
        rollout.reward[:] = rollout.extrinsic
        return rollout.observation[-1].copy()

    def features(self, adapter: EnvAdapter, observation: Array) -> FloatArray:
        """Turn packed observations (N, D) into the policy's features (N, F)."""
        return adapter.features(observation)

    def learn(self, rollout: OnPolicyRollout) -> dict[str, float]:
        p, n_rows = self.params, int(rollout.valid.sum())
        if n_rows == 0:
            return dict.fromkeys((*FIGURES, "explained_variance"), math.nan)
        advantage = gae_of(p, rollout, rollout.value)
        rows = [rollout.rows(array) for array in (advantage, advantage + rollout.value[:-1])]
        arrays = (rollout.features[:-1], rollout.action, rollout.log_prob)
        features, action, old_log_prob = (self.tensor(rollout.rows(array)) for array in arrays)
        advantages, returns = map(self.tensor, rows)
        sums = torch.zeros(5, device=self.device)
        n_batches = min(minibatches(p, rollout.valid.size), n_rows)
        for _ in range(p.n_epochs):
            for batch in np.array_split(self.rng.permutation(n_rows), n_batches):
                index = self.tensor(batch)
                log_prob, entropy, value = self.policy(features[index], action[index])
                loss, figures = clipped_loss(
                    p, log_prob, entropy, value, old_log_prob[index], advantages[index], returns[index]
                )
                self.descend(loss)
                sums += figures
        means = dict(zip(FIGURES, (sums / (p.n_epochs * n_batches)).tolist(), strict=True))
        return {**means, "explained_variance": explained_variance(*rows)}


def clipped_loss(
    params: ClippedParams,
    log_prob: Tensor,
    entropy: Tensor,
    value: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    returns: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the loss of a minibatch of B steps, and its FIGURES (5,).

    `laurel.agents.stacked_update` has a hand-written gradient, which is faster; a test compares them.

    Args:
        params: clip_range, advantage_epsilon and the coefficients.
        log_prob: (B,) of the actions under the policy; all that follow are (B,), too.
        value: the critic's predictions.
        old_log_prob: under the policy that acted.
        advantage: not yet normalised.
        returns: the critic's targets.
    """
    # policy loss: the lower of the plain and the clipped surrogate (eq. 7)
    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + params.advantage_epsilon)
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - params.clip_range, 1 + params.clip_range)
    policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    value_loss = 0.5 * (value - returns).square().mean()
    mean_entropy = entropy.mean()
    loss = policy_loss + params.value_coef * value_loss - params.entropy_coef * mean_entropy
    with torch.no_grad():
        kl = (ratio - 1 - log_ratio).mean()
        outside = ((ratio - 1).abs() > params.clip_range).float().mean()
        return loss, torch.stack([policy_loss, value_loss, mean_entropy, kl, outside])


def gae_of(params: ClippedParams | A2CParams, rollout: Rollout, value: FloatArray) -> FloatArray:
    """Return the advantages (T, N) of a rollout by the critic's values (T + 1, N); resets earn nothing."""
    reward = np.where(rollout.valid, rollout.reward, 0)
    if isinstance(params, ClippedParams) and not params.episodic:
        reward = non_episodic_reward(reward, value, rollout.terminated, rollout.valid, params.gamma)
    return gae(reward, value, rollout.terminated, rollout.truncated, gamma=params.gamma, lam=params.gae_lambda)


def non_episodic_reward(
    reward: FloatArray, value: FloatArray, terminated: BoolArray, valid: BoolArray, gamma: float
) -> FloatArray:
    """Add to the reward of a step that terminates an episode the discounted value of the next episode's first state.

    Non-episodic returns (Burda et al. 2018, "Exploration by random network distillation", arXiv 1810.12894, section
    2.3). The row after the end is a reset, and the next episode starts in the row after that. If the end is in the
    rollout's last row, that row is not in the rollout, and the value of the last observation is used instead.

    Args:
        reward: (..., T, N), like the flags.
        value: (..., T + 1, N).
    """
    begins = value[..., 1:, :].copy()
    begins[..., :-1, :] = np.where(valid[..., 1:, :], begins[..., :-1, :], value[..., 2:, :])
    return reward + gamma * begins * terminated


def explained_variance(advantage: FloatArray, returns: FloatArray) -> float:
    """Return 1 - Var[return - value] / Var[return] over rows (B,): 1 for a perfect critic; NaN for constant returns."""
    variance = float(returns.var()) if len(returns) else 0.0
    return 1 - float(advantage.var()) / variance if variance > 0 else math.nan


def gae(reward: Rows, value: Rows, terminated: Any, truncated: Any, *, gamma: float, lam: float) -> Rows:
    """Generalised advantage estimates (..., T, N) (Schulman et al. 2016, arXiv 1506.02438, eq. 16).

        δ_t = R_{t+1} + γ V(S_{t+1}) - V(S_t);   Â_t = δ_t + γ λ Â_{t+1}

    All arrays are NumPy's, or all are tensors.

    Args:
        reward: (..., T, N), like the flags.
        value: (..., T + 1, N) values of the observations before each step and after the last.
        terminated: the next state has value 0.
        truncated: the next state has its value, but later rewards do not belong to this episode.
    """
    arrays: Any = np if isinstance(reward, np.ndarray) else torch
    advantage = arrays.zeros_like(reward)
    delta = reward + gamma * value[..., 1:, :] * ~terminated - value[..., :-1, :]
    carry = gamma * lam * ~(terminated | truncated)
    following = arrays.zeros_like(reward[..., 0, :])
    for t in reversed(range(reward.shape[-2])):
        following = delta[..., t, :] + carry[..., t, :] * following
        advantage[..., t, :] = following
    return cast(Rows, advantage)


def minibatches(params: ClippedParams, n_steps: int) -> int:
    """Return how many minibatches an epoch of so many rows has; rows that are resets count, too."""
    return max(1, round(n_steps / params.batch_size))
