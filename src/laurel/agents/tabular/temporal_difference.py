"""One-step temporal-difference control: SARSA, expected SARSA, Q-learning.

They differ in the value of the next state. A terminal state has value 0; the last state of an episode that was cut
short has its value in the table.
"""

from __future__ import annotations

import numpy as np

from laurel.agents.agent import Experience
from laurel.agents.tabular.agent import TabularAgent
from laurel.arrays import DoubleArray, IntArray


class ExpectedSarsa(TabularAgent):
    """Expected SARSA (Sutton & Barto 2018, equation 6.9).

    Q(S, A) ← Q(S, A) + α (R + γ Σ_a π(a|S') Q(S', a) - Q(S, A))
    """

    def observe(self, experience: Experience) -> None:
        envs = np.flatnonzero(experience.valid)
        after = self.index(experience.next_observation)[envs]
        bootstrap = np.where(experience.terminated[envs], 0.0, self._state_values(envs, after))
        states = self.index(experience.observation)[envs]
        targets = experience.reward[envs] + self.gamma * bootstrap
        self._learn(envs, states, experience.action[envs], targets)

    def _state_values(self, envs: IntArray, states: IntArray) -> DoubleArray:
        """Return the values (n,) of states (n,)."""
        return self._expected(envs, states)


class QLearning(ExpectedSarsa):
    """Q-learning (Watkins 1989; Sutton & Barto 2018, equation 6.8).

    Q(S, A) ← Q(S, A) + α (R + γ max_a Q(S', a) - Q(S, A))
    """

    def _state_values(self, envs: IntArray, states: IntArray) -> DoubleArray:
        return self._values(envs, states).max(axis=1)


class Sarsa(TabularAgent):
    """SARSA (Sutton & Barto 2018, equation 6.7 and the box in section 6.4).

        Q(S, A) ← Q(S, A) + α (R + γ Q(S', A') - Q(S, A))

    A' is the action that is taken next, so the update of a step waits for the next one. A truncated episode has no
    next action: its last step learns from the mean over π, as in expected SARSA.
    """

    def reset(self, seed: int, n_envs: int = 1) -> None:
        super().reset(seed, n_envs)
        self._waiting = np.zeros(n_envs, dtype=np.bool_)
        self._state = np.zeros(n_envs, dtype=np.int64)
        self._action = np.zeros(n_envs, dtype=np.int64)
        self._reward = np.zeros(n_envs)

    def observe(self, experience: Experience) -> None:
        states, actions = self.index(experience.observation), experience.action
        after = self.index(experience.next_observation)
        rows = np.flatnonzero(experience.valid & self._waiting)
        bootstrap = self._values(rows, states[rows])[np.arange(len(rows)), actions[rows]]
        self._learn(rows, self._state[rows], self._action[rows], self._reward[rows] + self.gamma * bootstrap)

        ended = np.flatnonzero(experience.valid & (experience.terminated | experience.truncated))
        bootstrap = np.where(experience.terminated[ended], 0.0, self._expected(ended, after[ended]))
        self._learn(ended, states[ended], actions[ended], experience.reward[ended] + self.gamma * bootstrap)

        np.copyto(self._state, states, where=experience.valid)
        np.copyto(self._action, actions, where=experience.valid)
        np.copyto(self._reward, experience.reward, where=experience.valid)
        self._waiting[experience.valid] = True
        self._waiting[ended] = False
