"""The interface of agents that learn while they act, batched over environments.

A driver (`laurel.classics.running`) resets the agent, asks it for actions and shows it what came of them:

    agent.reset(seed, n_envs)
    action = agent.get_action(observation, info)
    agent.observe(Experience(observation, action, reward, next_observation, terminated, truncated, valid))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from laurel.arrays import BoolArray, DoubleArray, IntArray


@dataclass(frozen=True, slots=True)
class Experience:
    """A step of N environments; each field has N rows."""

    observation: Any
    """What the agent saw, as Gymnasium's vector environments give it."""
    action: IntArray
    """What it did."""
    reward: DoubleArray
    """What the step is paid: by the environment, by a learned reward, or by both."""
    next_observation: Any
    """What the agent saw next, in the same episode even where the step ended it."""
    terminated: BoolArray
    """Where the episode ended by the task's rules: the next state has value 0."""
    truncated: BoolArray
    """Where the episode was cut short: the next state has a value."""
    valid: BoolArray
    """False where the environment was reset instead of stepped, or is no longer in use."""


class Agent(ABC):
    """Acts and learns in N environments.

    Unless an agent says otherwise it learns separately in each environment: one agent is then a batch of N independent
    runs, which costs little more than one. The same seed and N give the same actions.
    """

    rng: np.random.Generator
    n_envs: int

    def reset(self, seed: int, n_envs: int = 1) -> None:
        """Forget everything and begin anew in N environments."""
        self.rng = np.random.default_rng(seed)
        self.n_envs = n_envs

    @abstractmethod
    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        """Choose actions (N,) for the environments' observations."""

    @abstractmethod
    def observe(self, experience: Experience) -> None:
        """Learn from a step."""
