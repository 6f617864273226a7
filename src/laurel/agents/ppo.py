"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347) over vectorised environments.

The choices are those of "The 37 Implementation Details of PPO" (Huang et al. 2022) for flat observations.
Knows rewards only as an array that the caller fills in between `collect` and `learn`; knows nothing about
captions, files or the time limit of a run.

Environments reset on the step after an episode's end (see `laurel.envs.vector`), so the value of a
truncated episode's last observation is simply the next value in the rollout: truncation bootstraps,
termination does not, and rows that are resets are left out of the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from laurel.agents.policy import ActorCritic
from laurel.envs.base import Array, BoolArray, FloatArray, Transitions
from laurel.envs.vector import Step, VectorEnv
from laurel.params.training import PPOParams


@dataclass
class Rollout:
    """T steps of N environments, preallocated once and filled again and again."""

    observation: Array
    """(T + 1, N, D) packed observations; row T is where the next rollout begins."""
    features: FloatArray
    """(T + 1, N, F) what the network saw."""
    action: Array
    """(T, N) or (T, N, A)."""
    log_prob: FloatArray
    value: FloatArray
    """(T + 1, N)."""
    extrinsic: FloatArray
    """(T, N) the environment's reward."""
    reward: FloatArray
    """(T, N) what is learned from; `collect` fills in the environment's, the caller may mix in more."""
    terminated: BoolArray
    truncated: BoolArray
    valid: BoolArray
    """(T, N) False where the step was a reset."""

    def record(self, t: int, action: Array, step: Step) -> None:
        """Keep what the environments answered to an action at step t."""
        self.action[t] = action
        self.observation[t + 1] = step.observation
        self.extrinsic[t] = step.reward
        self.terminated[t], self.truncated[t], self.valid[t] = step.terminated, step.truncated, step.valid

    @property
    def transitions(self) -> Transitions:
        """All T * N steps as a batch, row (t, n) at t * N + n; those not `valid` are not transitions."""
        flat = self.action.shape[0] * self.action.shape[1]
        return Transitions(
            self.observation[:-1].reshape(flat, -1),
            self.action.reshape(flat, *self.action.shape[2:]),
            self.extrinsic.reshape(flat),
            self.observation[1:].reshape(flat, -1),
            self.terminated.reshape(flat),
            self.truncated.reshape(flat),
        )


@dataclass(frozen=True)
class Losses:
    """Means over the minibatches of one `learn`; NaN where there was nothing to learn from."""

    policy: float
    value: float
    entropy: float
    approx_kl: float
    """Schulman's estimate E[(r - 1) - log r] (http://joschu.net/blog/kl-approx.html)."""
    clip_fraction: float
    explained_variance: float
    """1 - Var[return - value] / Var[return]; 1 is a perfect critic, below 0 worse than a constant; NaN if
    all returns are alike."""


class PPO:
    """An actor-critic, its optimiser and its random generator; everything that a checkpoint must hold."""

    def __init__(self, network: ActorCritic, params: PPOParams, rng: np.random.Generator) -> None:
        self.network = network
        self.params = params
        self.rng = rng
        self.optimizer = torch.optim.Adam(network.parameters(), lr=params.learning_rate, eps=1e-5, fused=True)

    def rollout(self, envs: VectorEnv) -> Rollout:
        """Allocate a rollout for these environments."""
        steps, n_envs, room = self.params.n_steps, envs.n_envs, envs.room
        shape = (steps, n_envs)
        action_shape, action_dtype = self.network.action_shape, self.network.action_dtype
        return Rollout(
            observation=np.zeros((steps + 1, n_envs, room.observation_size), dtype=room.observation_dtype),
            features=np.zeros((steps + 1, n_envs, self.network.n_features), dtype=np.float32),
            action=np.zeros((*shape, *action_shape), dtype=action_dtype),
            log_prob=np.zeros(shape, dtype=np.float32),
            value=np.zeros((steps + 1, n_envs), dtype=np.float32),
            extrinsic=np.zeros(shape, dtype=np.float32),
            reward=np.zeros(shape, dtype=np.float32),
            terminated=np.zeros(shape, dtype=np.bool_),
            truncated=np.zeros(shape, dtype=np.bool_),
            valid=np.zeros(shape, dtype=np.bool_),
        )

    def collect(self, envs: VectorEnv, observation: Array, rollout: Rollout) -> Array:
        """Fill the rollout, starting from `observation` (N, D); return where the next one begins."""
        room = envs.room
        rollout.observation[0] = observation
        for t in range(self.params.n_steps):
            features = room.features(rollout.observation[t])
            action, log_prob, value = self.network.act(features, self.rng)
            rollout.features[t], rollout.log_prob[t], rollout.value[t] = features, log_prob, value
            rollout.record(t, action, envs.step(action))
        rollout.features[-1] = room.features(rollout.observation[-1])
        rollout.value[-1] = self.network.evaluate(rollout.features[-1])
        rollout.reward[:] = rollout.extrinsic
        return rollout.observation[-1].copy()

    def learn(self, rollout: Rollout) -> Losses:
        """Improve the policy on `rollout.reward`; leaves the rollout as it was.

        What stands in rows that are not `valid` makes no difference, nor does a rollout without a valid row.
        """
        p = self.params
        rows = np.flatnonzero(rollout.valid.reshape(-1))
        if len(rows) == 0:
            return Losses(*[math.nan] * 6)
        reward = np.where(rollout.valid, rollout.reward, 0)
        advantage = gae(reward, rollout.value, rollout.terminated, rollout.truncated, gamma=p.gamma, lam=p.gae_lambda)
        device = self.network.device

        def batch_of(array: Array) -> Tensor:
            """Flatten time and environments (T, N, ...) and keep the valid rows."""
            return torch.from_numpy(array.reshape(-1, *array.shape[2:])[rows]).to(device)

        features, action = batch_of(rollout.features[:-1]), batch_of(rollout.action)
        old_log_prob, advantages = batch_of(rollout.log_prob), batch_of(advantage)
        returns = advantages + batch_of(rollout.value[:-1])

        sums = torch.zeros(5, device=device)
        n_batches = max(1, round(len(rows) / p.batch_size))
        for _ in range(p.n_epochs):
            for batch in np.array_split(self.rng.permutation(len(rows)), n_batches):
                index = torch.from_numpy(batch).to(device)
                log_prob, entropy, value = self.network(features[index], action[index])

                # policy loss: the pessimistic of the plain and the clipped surrogate (eq. 7)
                adv = advantages[index]
                adv = (adv - adv.mean()) / (adv.std(correction=0) + 1e-8)
                log_ratio = log_prob - old_log_prob[index]
                ratio = log_ratio.exp()
                clipped = ratio.clamp(1 - p.clip_range, 1 + p.clip_range)
                policy_loss = -torch.minimum(ratio * adv, clipped * adv).mean()

                value_loss = 0.5 * (value - returns[index]).square().mean()
                entropy = entropy.mean()
                loss = policy_loss + p.value_coef * value_loss - p.entropy_coef * entropy

                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.network.parameters(), p.max_grad_norm)
                self.optimizer.step()
                with torch.no_grad():
                    kl = (ratio - 1 - log_ratio).mean()
                    clip_fraction = ((ratio - 1).abs() > p.clip_range).float().mean()
                    sums += torch.stack([policy_loss, value_loss, entropy, kl, clip_fraction]).detach()
        policy, value_mean, entropy_mean, kl_mean, clipped_mean = (sums / (p.n_epochs * n_batches)).tolist()
        variance = float(returns.var(correction=0))
        explained = 1 - float(advantages.var(correction=0)) / variance if variance > 0 else math.nan
        return Losses(policy, value_mean, entropy_mean, kl_mean, clipped_mean, explained)

    def set_learning_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def gae(
    reward: FloatArray, value: FloatArray, terminated: BoolArray, truncated: BoolArray, *, gamma: float, lam: float
) -> FloatArray:
    """Generalised advantage estimates (T, N) (Schulman et al. 2016, arXiv 1506.02438, eq. 16).

    Args:
        reward: (T, N).
        value: (T + 1, N) values of the observations before each step and after the last.
        terminated: (T, N) what follows is worth nothing.
        truncated: (T, N) what follows is worth its value, but belongs to no episode of ours.
    """
    advantage = np.zeros_like(reward)
    delta = reward + gamma * value[1:] * ~terminated - value[:-1]
    carry = gamma * lam * ~(terminated | truncated)
    following = np.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        following = delta[t] + carry[t] * following
        advantage[t] = following
    return advantage
