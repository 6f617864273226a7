"""The tabular agents once more, as the boxes of Sutton & Barto (2018) have them: one run, step by step, no arrays.

Each takes the steps of one run in order and returns Q as state -> action values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from laurel.agents.agent import Agent, Experience
from laurel.arrays import IntArray
from laurel.classics.running import run_agent
from laurel.envs.builtin.model import Model
from laurel.envs.builtin.simulator import Simulator


class Step(NamedTuple):
    state: int
    action: int
    reward: float
    after: int
    terminated: bool
    truncated: bool


class Table:
    """Action values that move towards targets."""

    def __init__(self, n_actions: int, *, initial: float, step_size: float | None, epsilon: float) -> None:
        self.q: dict[int, list[float]] = defaultdict(lambda: [initial] * n_actions)
        self.n: dict[tuple[int, int], int] = defaultdict(int)
        self.step_size = step_size
        self.epsilon = epsilon

    def policy(self, state: int, epsilon: float | None = None) -> list[float]:
        epsilon = self.epsilon if epsilon is None else epsilon
        values = self.q[state]
        best = [value == max(values) for value in values]
        return [epsilon / len(values) + (1 - epsilon) * b / sum(best) for b in best]

    def worth(self, state: int, epsilon: float | None = None) -> float:
        return sum(p * q for p, q in zip(self.policy(state, epsilon), self.q[state], strict=True))

    def move(self, state: int, action: int, target: float) -> None:
        self.n[state, action] += 1
        alpha = 1 / self.n[state, action] if self.step_size is None else self.step_size
        self.q[state][action] += alpha * (target - self.q[state][action])


def episodes(steps: Sequence[Step]) -> list[list[Step]]:
    """Divide a run into episodes; the last may be unfinished."""
    found: list[list[Step]] = [[]]
    for step in steps:
        found[-1].append(step)
        if step.terminated or step.truncated:
            found.append([])
    return [episode for episode in found if episode]


def finished(episode: Sequence[Step]) -> bool:
    return episode[-1].terminated or episode[-1].truncated


def one_step(steps: Sequence[Step], table: Table, gamma: float, kind: str) -> None:
    """SARSA, expected SARSA and Q-learning, sections 6.4 to 6.6."""
    for episode in episodes(steps):
        for t, step in enumerate(episode):
            if step.terminated:
                worth = 0.0
            elif kind == "q_learning":
                worth = max(table.q[step.after])
            elif kind == "expected_sarsa" or step.truncated:
                worth = table.worth(step.after)
            elif t + 1 < len(episode):
                worth = table.q[step.after][episode[t + 1].action]
            else:
                continue  # the next action is not known yet
            table.move(step.state, step.action, step.reward + gamma * worth)


def n_step_sarsa(steps: Sequence[Step], table: Table, gamma: float, n: int) -> None:
    """Section 7.2."""
    for episode in episodes(steps):
        T, beyond = len(episode), None
        for tau in range(T):
            if tau + n < T:
                worth = table.q[episode[tau + n].state][episode[tau + n].action]
            elif not finished(episode):
                break
            else:
                if beyond is None:
                    beyond = 0.0 if episode[-1].terminated else table.worth(episode[-1].after)
                worth = beyond
            rewards = [step.reward for step in episode[tau : tau + n]]
            g = sum(gamma**k * reward for k, reward in enumerate(rewards)) + gamma ** len(rewards) * worth
            table.move(episode[tau].state, episode[tau].action, g)


def tree_backup(steps: Sequence[Step], table: Table, gamma: float, n: int, target_epsilon: float) -> None:
    """Section 7.5, by the recursion of equation 7.16."""
    for episode in episodes(steps):

        def g(t: int, h: int, episode: list[Step] = episode) -> float:
            step = episode[t]
            if t == h - 1:
                worth = 0.0 if step.terminated else table.worth(step.after, target_epsilon)
                return step.reward + gamma * worth
            policy, values = table.policy(step.after, target_epsilon), list(table.q[step.after])
            values[episode[t + 1].action] = g(t + 1, h)
            return step.reward + gamma * sum(p * q for p, q in zip(policy, values, strict=True))

        for tau in range(len(episode)):
            h = tau + n
            if h > len(episode):
                if not finished(episode):
                    break
                h = len(episode)
            table.move(episode[tau].state, episode[tau].action, g(tau, h))


def monte_carlo(steps: Sequence[Step], table: Table, gamma: float) -> None:
    """First-visit, section 5.4: every visit's return is summed separately."""
    for episode in episodes(steps):
        if not finished(episode):
            continue
        beyond = 0.0 if episode[-1].terminated else table.worth(episode[-1].after)
        targets = []
        for t, step in enumerate(episode):
            if all((other.state, other.action) != (step.state, step.action) for other in episode[:t]):
                rest = episode[t:]
                g = sum(gamma**k * later.reward for k, later in enumerate(rest)) + gamma ** len(rest) * beyond
                targets.append((step.state, step.action, g))
        for target in targets:
            table.move(*target)


def weighted_importance(
    steps: Sequence[Step], n_actions: int, gamma: float, policy: np.ndarray, behaviour: np.ndarray
) -> dict[tuple[int, int], float]:
    """Every-visit weighted importance sampling as a ratio of sums (equation 5.6), for a fixed policy."""
    above: dict[tuple[int, int], float] = defaultdict(float)
    below: dict[tuple[int, int], float] = defaultdict(float)
    for episode in episodes(steps):
        if not finished(episode):
            continue
        for t, step in enumerate(episode):
            g = sum(gamma**k * later.reward for k, later in enumerate(episode[t:]))
            w = 1.0
            for later in episode[t + 1 :]:
                w *= policy[later.state, later.action] / behaviour[later.state, later.action]
            above[step.state, step.action] += w * g
            below[step.state, step.action] += w
    return {at: above[at] / below[at] for at in above if below[at] > 0}


class Recorder(Agent):
    """Lets an agent act and keeps what it was shown."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def reset(self, seed: int, n_envs: int = 1) -> None:
        self.agent.reset(seed, n_envs)
        self.runs: list[list[Step]] = [[] for _ in range(n_envs)]

    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        return self.agent.get_action(observation, info)

    def observe(self, experience: Experience) -> None:
        self.agent.observe(experience)
        for i in np.flatnonzero(experience.valid):
            self.runs[i].append(
                Step(
                    int(experience.observation[i]),
                    int(experience.action[i]),
                    float(experience.reward[i]),
                    int(experience.next_observation[i]),
                    bool(experience.terminated[i]),
                    bool(experience.truncated[i]),
                )
            )


def random_model(seed: int, *, n_states: int = 5, n_actions: int = 3, sparse: bool = False) -> Model:
    """Make up a model in which the last state ends the episode."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(n_states, 0.5), (n_states, n_actions))
    rewards = rng.normal(size=transitions.shape)
    transitions[..., -1] = 0.1
    transitions /= transitions.sum(axis=2, keepdims=True)
    terminal = np.arange(n_states) == n_states - 1
    transitions[-1], rewards[-1] = terminal, 0.0
    start = np.append(rng.dirichlet(np.ones(n_states - 1)), 0.0)
    return Model(transitions, rewards, start, terminal)


def record(
    agent: Agent, model: Model, *, n_envs: int = 3, n_steps: int = 90, limit: int = 6, seed: int = 0
) -> Recorder:
    recorder = Recorder(agent)
    run_agent(Simulator(model, n_envs, limit), recorder, n_envs, seed, n_steps=n_steps)
    return recorder


SPACES = gym.spaces.Discrete(5), gym.spaces.Discrete(3)
"""Of a random model."""
