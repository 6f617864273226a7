"""A Q-table as a policy, and the tabular agents as learners of an arm.

The agents of `laurel.agents.tabular` learn step by step; here they process the steps of a rollout in order, once its
rewards are computed, and all environments share one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from laurel.agents.agent import Experience
from laurel.agents.choice import act_on_values, epsilon_greedy
from laurel.agents.collecting import Collecting
from laurel.agents.learner import PolicyNetwork, Rollout
from laurel.agents.tabular import (
    ExpectedSarsa,
    MonteCarlo,
    NStepSarsa,
    QLearning,
    Sarsa,
    TabularAgent,
    TreeBackup,
)
from laurel.agents.tabular.states import table_form
from laurel.arrays import Array, FloatArray, IntArray
from laurel.envs.base import EnvAdapter
from laurel.params.algorithms import TabularParams

METHODS: dict[str, Callable[..., TabularAgent]] = {
    "q_learning": QLearning,
    "sarsa": Sarsa,
    "expected_sarsa": ExpectedSarsa,
    "monte_carlo": MonteCarlo,
    "n_step_sarsa": NStepSarsa,
    "tree_backup": TreeBackup,
}
UPDATES = "updates"


class Table(PolicyNetwork):
    """Action values of states; acts ε-greedily on them.

    Args:
        shape: number of values of each part of an observation; features are its concatenated one-hot encodings.
        n_actions: A.
        initial: initial value of every entry.
        epsilon: probability of a random action, unless `greedy`.
    """

    kind = "table"
    continuous = False
    q: Tensor

    def __init__(self, shape: tuple[int, ...], n_actions: int, *, initial: float, epsilon: float) -> None:
        super().__init__()
        self.shape = shape
        self.n_features = sum(shape)
        self.n_actions = n_actions
        self.initial = initial
        self.epsilon = epsilon
        self.register_buffer("q", torch.full((int(np.prod(shape)), n_actions), initial, dtype=torch.float64))

    def act(
        self, features: FloatArray, rng: np.random.Generator, *, greedy: bool = False
    ) -> tuple[Array, FloatArray, FloatArray]:
        """Draw actions for features (N, F): actions, their log-probabilities and the policy's values (N,)."""
        return act_on_values(self._values_of(features), self.epsilon, rng, greedy=greedy)

    def log_prob(self, features: FloatArray, action: Array) -> FloatArray:
        policy = epsilon_greedy(self._values_of(features), self.epsilon)
        with np.errstate(divide="ignore"):
            return np.log(policy[np.arange(len(action)), action]).astype(np.float32)

    def states(self, features: FloatArray) -> IntArray:
        """Return the number (N,) of each row's state; features are (N, F)."""
        ends = np.cumsum(self.shape)
        parts = [features[:, end - n : end].argmax(axis=1) for n, end in zip(self.shape, ends, strict=True)]
        return np.ravel_multi_index(tuple(parts), self.shape).astype(np.int64)

    def _values_of(self, features: FloatArray) -> Array:
        return self.q.cpu().numpy()[self.states(features)]


def make_table(adapter: EnvAdapter, settings: TabularParams) -> Table:
    """Make the table for an environment.

    Raises:
        EnvError: its observations or actions are not finite or too many, or its adapter computes its own features.
    """
    index, n_actions = table_form(adapter)
    return Table(index.shape, n_actions, initial=settings.initial, epsilon=settings.epsilon)


class Tabular(Collecting):
    """One of the tabular agents, with one table for all environments."""

    name = "tabular"
    policy: Table

    def __init__(self, policy: Table, params: TabularParams, rng: np.random.Generator) -> None:
        super().__init__(policy, params, rng)
        options: dict[str, Any] = {"n": params.backup_steps} if params.method in ("n_step_sarsa", "tree_backup") else {}
        self.agent = METHODS[params.method](
            gym.spaces.Discrete(len(policy.q)),
            gym.spaces.Discrete(policy.n_actions),
            gamma=params.gamma,
            epsilon=params.epsilon,
            step_size=params.step_size or None,
            initial=params.initial,
            shared=True,
            **options,
        )
        self.agent.reset(0, params.n_envs)  # its own generator is never used: the policy acts
        self.agent.q[0] = policy.q.cpu().numpy()

    def learn(self, rollout: Rollout) -> Mapping[str, float]:
        states = self._observe(rollout)
        self.policy.q.copy_(torch.from_numpy(self.agent.q[0]))
        if not rollout.valid.any():
            return {"epsilon": self.policy.epsilon}
        taken = self.agent.q[0][states[:-1], rollout.action][rollout.valid]
        return {"q_value": float(taken.mean()), "epsilon": self.policy.epsilon}

    def replayed(self, rollout: Rollout) -> None:
        """Process the steps again, to restore the agent's pending steps, and undo the changes to the table."""
        q, updates = self.agent.q.copy(), self.agent.updates.copy()
        self._observe(rollout)
        self.agent.q[:], self.agent.updates[:] = q, updates

    def _observe(self, rollout: Rollout) -> IntArray:
        """Pass a rollout to the agent step by step; return its states (T + 1, N)."""
        n_rows, n_envs = rollout.observation.shape[:2]
        features = self.features(rollout.observation)
        states = self.policy.states(features.reshape(n_rows * n_envs, -1)).reshape(n_rows, n_envs)
        for t in range(n_rows - 1):
            self.agent.observe(
                Experience(
                    states[t],
                    rollout.action[t],
                    rollout.reward[t].astype(np.float64),
                    states[t + 1],
                    rollout.terminated[t],
                    rollout.truncated[t],
                    rollout.valid[t],
                )
            )
        return states

    def state(self) -> dict[str, Tensor]:
        return {UPDATES: torch.from_numpy(self.agent.updates[0].copy())}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.agent.q[0] = self.policy.q.cpu().numpy()
        self.agent.updates[0] = state[UPDATES].numpy()
