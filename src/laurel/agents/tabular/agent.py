"""Base of agents with a table of action values: the table, its policy, and how an entry is updated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.agents import choice
from laurel.agents.agent import Agent
from laurel.agents.tabular.states import StateIndex
from laurel.arrays import DoubleArray, IntArray
from laurel.errors import EnvError


class TabularAgent(Agent):
    """Acts ε-greedily on a table of action values Q(s, a).

        Q(s, a) ← Q(s, a) + α (target - Q(s, a))

    Args:
        observation_space: finite; see `StateIndex`.
        action_space: Discrete from 0 on.
        epsilon: ε, the probability of a random action.
        step_size: α; None is 1/n, the average of an entry's n targets.
        initial: initial value of every entry; optimistic values make the agent explore.
        shared: learn one table from all environments instead of one per environment.

    Raises:
        EnvError: a space is not finite.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        gamma: float = 0.99,
        epsilon: float = 0.1,
        step_size: float | None = 0.1,
        initial: float = 0.0,
        shared: bool = False,
    ) -> None:
        if not (isinstance(action_space, gym.spaces.Discrete) and action_space.start == 0):
            raise EnvError(f"Action space {action_space} is not supported: tables need Discrete, from 0 on.")
        self.index = StateIndex(observation_space)
        self.n_states, self.n_actions = self.index.n_states, int(action_space.n)
        self.gamma = gamma
        self.epsilon = epsilon
        self.step_size = step_size
        self.initial = initial
        self.shared = shared

    def reset(self, seed: int, n_envs: int = 1) -> None:
        super().reset(seed, n_envs)
        tables = 1 if self.shared else n_envs
        self.q: DoubleArray = np.full((tables, self.n_states, self.n_actions), float(self.initial))
        self.updates: IntArray = np.zeros(self.q.shape, dtype=np.int64)
        self._table: IntArray = np.zeros(n_envs, dtype=np.int64) if self.shared else np.arange(n_envs)

    @property
    def greedy(self) -> IntArray:
        """(tables, S) the best action in each state, the first where several are equal."""
        return self.q.argmax(axis=2)

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        return choice.sample(self.policy(self._values(np.arange(self.n_envs), self.index(observation))), self.rng)

    def policy(self, values: DoubleArray) -> DoubleArray:
        """Return π (N, A), the agent's action probabilities, for action values (N, A)."""
        return choice.epsilon_greedy(values, self.epsilon)

    def _values(self, envs: IntArray, states: IntArray) -> DoubleArray:
        """Return the action values (n, A) of states (n,) in the tables of some environments (n,)."""
        return self.q[self._table[envs], states]

    def _expected(self, envs: IntArray, states: IntArray) -> DoubleArray:
        """Return Σ_a π(a|s) Q(s, a) (n,)."""
        values = self._values(envs, states)
        return (self.policy(values) * values).sum(axis=1)

    def _learn(self, envs: IntArray, states: IntArray, actions: IntArray, targets: DoubleArray) -> None:
        """Move an entry of each environment's table towards its target; all arguments are (n,)."""
        if self.shared:  # sequentially: several environments may have targets for the same entry
            for i in range(len(envs)):
                self._move(self._table[envs[i : i + 1]], states[i : i + 1], actions[i : i + 1], targets[i : i + 1])
        else:
            self._move(self._table[envs], states, actions, targets)

    def _move(self, tables: IntArray, states: IntArray, actions: IntArray, targets: DoubleArray) -> None:
        index = tables, states, actions
        self.updates[index] += 1
        step = 1 / self.updates[index] if self.step_size is None else self.step_size
        self.q[index] += step * (targets - self.q[index])
