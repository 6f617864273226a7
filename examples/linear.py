"""An algorithm that trains arms: a linear policy by REINFORCE. `agent: {algorithm: linear, linear: {step_size: 0.1}}`.

    θ ← θ + α mean[(G_t - mean G) ∇ log π(A_t|S_t)],  π(·|s) = softmax(θ s)      (Williams 1992)

where G_t sums the discounted rewards until the episode or the rollout ends.
"""

from typing import ClassVar

import numpy as np
import torch

from laurel.agents.actions import discrete_actions
from laurel.agents.algorithm import Algorithm
from laurel.agents.collecting import Collecting
from laurel.agents.learner import PolicyNetwork
from laurel.params.algorithms import AlgorithmParams
from laurel.params.fields import Count, Positive, Probability


class LinearParams(AlgorithmParams):
    """The section `agent.linear`."""

    algorithm: ClassVar[str] = "linear"
    n_envs: Count = 8
    n_steps: Count = 64
    step_size: Positive = 0.1
    gamma: Probability = 0.99


class LinearPolicy(PolicyNetwork):
    """A weight for each feature and action."""

    kind = "linear"
    continuous = False

    def __init__(self, n_features, n_actions):
        super().__init__()
        self.n_features, self.n_actions = n_features, n_actions
        self.weight = torch.nn.Parameter(torch.zeros(n_actions, n_features), requires_grad=False)

    def logs(self, features):
        """Return log-probabilities (N, A)."""
        logits = features @ self.weight.numpy().T
        return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)

    def act(self, features, rng, *, greedy=False):
        logs = self.logs(features)
        noise = 0 if greedy else rng.gumbel(size=logs.shape)  # the largest sum is a draw from the softmax
        action = (logs + noise).argmax(axis=1)
        return action, np.take_along_axis(logs, action[:, None], 1)[:, 0], np.zeros(len(action), dtype=np.float32)

    def log_prob(self, features, action):
        return np.take_along_axis(self.logs(features), action[:, None], 1)[:, 0]


class LinearLearner(Collecting):
    """Takes one gradient step after each rollout."""

    name = "linear"

    def learn(self, rollout):
        after, returns = np.zeros(rollout.reward.shape[1]), np.zeros(rollout.reward.shape)
        for t in reversed(range(len(returns))):
            ended = rollout.terminated[t] | rollout.truncated[t]
            returns[t] = after = rollout.reward[t] + self.params.gamma * np.where(ended, 0, after)
        valid = rollout.valid.reshape(-1)
        if not valid.any():
            return {}
        features = self.features(rollout.observation[:-1]).reshape(len(valid), -1)[valid]
        action, returns = rollout.action.reshape(-1)[valid], returns.reshape(-1)[valid]
        logs = self.policy.logs(features)
        advantage = (returns - returns.mean())[:, None]
        gradient = (advantage * (np.eye(self.policy.n_actions)[action] - np.exp(logs))).T @ features / len(features)
        self.policy.weight += torch.from_numpy(self.params.step_size * gradient).float()
        return {"policy": float(-(advantage[:, 0] * logs[np.arange(len(action)), action]).mean())}

    def state(self):
        return {"weight": self.policy.weight.clone()}

    def restore(self, state):
        self.policy.weight.copy_(state["weight"])


class Linear(Algorithm):
    """Fits environments with Discrete actions."""

    Params = LinearParams
    Network = LinearPolicy

    def check(self, adapter):
        discrete_actions(adapter.action_space, "linear")

    def policy(self, adapter):
        return LinearPolicy(adapter.n_features, discrete_actions(adapter.action_space, "linear"))

    def learner(self, policy, rng):
        return LinearLearner(policy, self.settings, rng)


ALGORITHM = Linear
