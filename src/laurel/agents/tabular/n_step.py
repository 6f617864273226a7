"""Temporal-difference control over n steps: n-step SARSA and n-step tree backup.

A window has the last n steps of every environment; its oldest step is learned from when the window is full, and all of
them when the episode ends.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from laurel.agents import choice
from laurel.agents.agent import Experience
from laurel.agents.tabular.agent import TabularAgent
from laurel.arrays import BoolArray, DoubleArray, IntArray


class _Windowed(TabularAgent):
    """Keeps the last steps of every environment."""

    def __init__(
        self, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, n: int = 4, **options: Any
    ) -> None:
        super().__init__(observation_space, action_space, **options)
        self.n = n

    def reset(self, seed: int, n_envs: int = 1) -> None:
        super().reset(seed, n_envs)
        self._states = np.zeros((n_envs, self.n), dtype=np.int64)
        self._actions = np.zeros((n_envs, self.n), dtype=np.int64)
        self._rewards = np.zeros((n_envs, self.n))
        self._length = np.zeros(n_envs, dtype=np.int64)

    def _push(self, envs: IntArray, states: IntArray, actions: IntArray, rewards: DoubleArray) -> None:
        index = envs, self._length[envs]
        self._states[index], self._actions[index], self._rewards[index] = states, actions, rewards
        self._length[envs] += 1

    def _drop_oldest(self, envs: IntArray) -> None:
        for window in (self._states, self._actions, self._rewards):
            window[envs, :-1] = window[envs, 1:]
        self._length[envs] -= 1

    def _learn_oldest(self, envs: IntArray, targets: DoubleArray) -> None:
        self._learn(envs, self._states[envs, 0], self._actions[envs, 0], targets)
        self._drop_oldest(envs)


class NStepSarsa(_Windowed):
    """n-step SARSA (Sutton & Barto 2018, equations 7.4 and 7.5).

        G = R_1 + γ R_2 + … + γ^(n-1) R_n + γ^n Q(S_n, A_n)
        Q(S_0, A_0) ← Q(S_0, A_0) + α (G - Q(S_0, A_0))

    With n = 1 it is SARSA. For the last steps of an episode the sum stops at its end. If the episode was truncated, the
    mean over π replaces Q(S_n, A_n).

    Args:
        options: of `TabularAgent`, as the spaces.
    """

    def observe(self, experience: Experience) -> None:
        states, after = self.index(experience.observation), self.index(experience.next_observation)
        full = np.flatnonzero(experience.valid & (self._length == self.n))
        values = self._values(full, states[full])[np.arange(len(full)), experience.action[full]]
        self._learn_oldest(full, self._sum(full, values))

        envs = np.flatnonzero(experience.valid)
        self._push(envs, states[envs], experience.action[envs], experience.reward[envs])

        ended = np.flatnonzero(experience.valid & (experience.terminated | experience.truncated))
        worth = np.zeros(self.n_envs)
        worth[ended] = np.where(experience.terminated[ended], 0.0, self._expected(ended, after[ended]))
        while len(ended):
            self._learn_oldest(ended, self._sum(ended, worth[ended]))
            ended = ended[self._length[ended] > 0]

    def _sum(self, envs: IntArray, worth: DoubleArray) -> DoubleArray:
        """Return the discounted sum of each window, with the value of the state after it (n,)."""
        total = worth
        for k in reversed(range(self.n)):
            inside = k < self._length[envs]
            total = np.where(inside, self._rewards[envs, k] + self.gamma * total, total)
        return total


class TreeBackup(_Windowed):
    """n-step tree backup (Sutton & Barto 2018, equations 7.15 and 7.16): off-policy without importance sampling.

        G_t = R_{t+1} + γ Σ_{a ≠ A_{t+1}} π(a|S_{t+1}) Q(S_{t+1}, a) + γ π(A_{t+1}|S_{t+1}) G_{t+1}

    and the last G of a window is R + γ Σ_a π(a|S') Q(S', a). With n = 1 it is expected SARSA, or Q-learning where
    π is greedy.

    Args:
        target_epsilon: ε of the target policy π; that of the behaviour policy is `epsilon`.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        n: int = 4,
        target_epsilon: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(observation_space, action_space, n=n, **options)
        self.target_epsilon = target_epsilon

    def observe(self, experience: Experience) -> None:
        envs = np.flatnonzero(experience.valid)
        states, after = self.index(experience.observation), self.index(experience.next_observation)
        self._push(envs, states[envs], experience.action[envs], experience.reward[envs])
        ended = experience.terminated | experience.truncated
        ready = np.flatnonzero(experience.valid & ((self._length == self.n) | ended))
        while len(ready):
            self._learn_oldest(ready, self._back_up(ready, after[ready], experience.terminated[ready]))
            ready = ready[(self._length[ready] > 0) & ended[ready]]

    def _back_up(self, envs: IntArray, after: IntArray, terminated: BoolArray) -> DoubleArray:
        """Return G (n,) of each window's oldest step.

        Args:
            envs: (n,)
            after: (n,) states after the newest step.
            terminated: (n,) True where these states have value 0.
        """
        values = self._values(envs, after)
        worth = np.where(terminated, 0.0, (self._target(values) * values).sum(axis=1))
        total, rows = worth, np.arange(len(envs))
        for k in reversed(range(self.n)):
            inside = k < self._length[envs]
            total = np.where(inside, self._rewards[envs, k] + self.gamma * worth, total)
            values = self._values(envs, self._states[envs, k])
            policy = self._target(values)
            values[rows, self._actions[envs, k]] = total  # the action taken uses its return instead of an estimate
            worth = np.where(inside, (policy * values).sum(axis=1), worth)
        return total

    def _target(self, values: DoubleArray) -> DoubleArray:
        return choice.epsilon_greedy(values, self.target_epsilon)
