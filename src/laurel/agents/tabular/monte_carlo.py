"""Monte Carlo: learning from the returns of whole episodes, on-policy or off-policy.

There is no bootstrapping, with one exception: the return of a truncated episode ends with the table's value of its last
state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.agents import choice
from laurel.agents.agent import Experience
from laurel.agents.tabular.agent import TabularAgent
from laurel.arrays import DoubleArray, IntArray


class MonteCarlo(TabularAgent):
    """On-policy first-visit Monte Carlo (Sutton & Barto 2018, sections 5.1 to 5.4).

        G ← γ G + R backwards through the episode;  Q(S, A) ← average of the G of its first visits

    Args:
        policy: (S, A) probabilities of a policy to evaluate; None improves its own, ε-greedy on Q.
        exploring_starts: begin every episode with a uniformly random action (section 5.3; with ε = 0 the box "Monte
            Carlo ES"). The environment must itself start in random states.
        options: of `TabularAgent`; `step_size` is None by default.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        policy: DoubleArray | None = None,
        exploring_starts: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **{"step_size": None, **options})
        self.fixed = policy
        self.exploring_starts = exploring_starts

    def reset(self, seed: int, n_envs: int = 1) -> None:
        super().reset(seed, n_envs)
        self._starts = np.ones(n_envs, dtype=np.bool_)
        self._episodes: list[list[tuple[int, int, float]]] = [[] for _ in range(n_envs)]

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        states = self.index(observation)
        values = self._values(np.arange(self.n_envs), states)
        policy = self.policy(values) if self.fixed is None else self.fixed[states]
        if self.exploring_starts:
            policy = np.where(self._starts[:, None], 1.0, policy)
        return choice.sample(policy, self.rng)

    def observe(self, experience: Experience) -> None:
        states, after = self.index(experience.observation), self.index(experience.next_observation)
        ended = experience.valid & (experience.terminated | experience.truncated)
        for i in np.flatnonzero(experience.valid):
            self._episodes[i].append((int(states[i]), int(experience.action[i]), float(experience.reward[i])))
        for i in np.flatnonzero(ended):
            g = 0.0 if experience.terminated[i] else self._state_value(int(i), int(after[i]))
            self._learn_episode(int(i), self._episodes[i], g)
            self._episodes[i] = []
        self._starts[experience.valid] = False
        self._starts[ended] = True

    def _state_value(self, env: int, state: int) -> float:
        """Return the value of a state under the target policy."""
        values = self.q[self._table[env], state]
        policy = self.policy(values) if self.fixed is None else self.fixed[state]
        return float(policy @ values)

    def _learn_episode(self, env: int, episode: list[tuple[int, int, float]], g: float) -> None:
        table = self._table[env]
        q, updates = self.q[table], self.updates[table]
        first: dict[tuple[int, int], float] = {}
        for state, action, reward in reversed(episode):
            g = self.gamma * g + reward
            first[state, action] = g  # earlier visits overwrite later ones
        for pair, g in first.items():
            updates[pair] += 1
            q[pair] += (g - q[pair]) / updates[pair] if self.step_size is None else self.step_size * (g - q[pair])


class OffPolicyMonteCarlo(TabularAgent):
    """Off-policy Monte Carlo with weighted importance sampling (Sutton & Barto 2018, sections 5.6 and 5.7).

        G ← γ G + R;  C(S, A) ← C(S, A) + W;  Q(S, A) ← Q(S, A) + W / C(S, A) (G - Q(S, A));  W ← W π(A|S) / b(A|S)

    backwards through the episode, while W > 0. b, which acts, is ε-greedy on Q; π is the target policy.

    Args:
        policy: (S, A) probabilities of π to evaluate; None is the policy that is greedy on Q.
        behaviour: (S, A) probabilities of b; None is ε-greedy on Q.
        options: of `TabularAgent`, except `step_size`.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        policy: DoubleArray | None = None,
        behaviour: DoubleArray | None = None,
        **options: Any,
    ) -> None:
        super().__init__(observation_space, action_space, step_size=None, **options)
        self.fixed = policy
        self.behaviour = behaviour

    def reset(self, seed: int, n_envs: int = 1) -> None:
        super().reset(seed, n_envs)
        self.weights: DoubleArray = np.zeros(self.q.shape)
        self._episodes: list[list[tuple[int, int, float, float]]] = [[] for _ in range(n_envs)]

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        return choice.sample(self._acting(np.arange(self.n_envs), self.index(observation)), self.rng)

    def observe(self, experience: Experience) -> None:
        states, after = self.index(experience.observation), self.index(experience.next_observation)
        envs = np.flatnonzero(experience.valid)
        chances = self._acting(envs, states[envs])[np.arange(len(envs)), experience.action[envs]]
        for i, b in zip(envs, chances, strict=True):
            step = int(states[i]), int(experience.action[i]), float(experience.reward[i]), float(b)
            self._episodes[i].append(step)
        for i in np.flatnonzero(experience.valid & (experience.terminated | experience.truncated)):
            bootstrap = 0.0 if experience.terminated[i] else self._state_value(int(i), int(after[i]))
            self._learn_episode(int(i), self._episodes[i], bootstrap)
            self._episodes[i] = []

    def _acting(self, envs: IntArray, states: IntArray) -> DoubleArray:
        """Return b (n, A)."""
        return self.policy(self._values(envs, states)) if self.behaviour is None else self.behaviour[states]

    def _state_value(self, env: int, state: int) -> float:
        values = self.q[self._table[env], state]
        return float(values.max() if self.fixed is None else self.fixed[state] @ values)

    def _learn_episode(self, env: int, episode: list[tuple[int, int, float, float]], g: float) -> None:
        table = self._table[env]
        q, c = self.q[table], self.weights[table]
        w = 1.0
        for state, action, reward, b in reversed(episode):
            g = self.gamma * g + reward
            c[state, action] += w
            q[state, action] += w / c[state, action] * (g - q[state, action])
            chosen = float(q[state].argmax() == action) if self.fixed is None else self.fixed[state, action]
            w *= chosen / b
            if w == 0:
                break
