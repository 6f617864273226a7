"""The interface of agents that learn while they act, batched over environments.

A driver (`laurel.classics.running`) resets the agent, requests actions and reports their results:

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
    """The observation, in the format of Gymnasium's vector environments."""
    action: IntArray
    """The action taken."""
    reward: DoubleArray
    """Reward of the step: the environment's, a learned one, or both."""
    next_observation: Any
    """The next observation in the same episode, even if the step ended it."""
    terminated: BoolArray
    """True where the task ended the episode: the next state has value 0."""
    truncated: BoolArray
    """True where the episode was cut off: the next state has a value."""
    valid: BoolArray
    """False where the environment was reset instead of stepped, or is no longer in use."""


class Agent(ABC):
    """Acts and learns in N environments.

    By default an agent learns separately in each environment: it is then a batch of N independent runs, which costs
    little more than a single one. The same seed and N give the same actions.
    """

    rng: np.random.Generator
    n_envs: int

    def reset(self, seed: int, n_envs: int = 1) -> None:
        """Discard everything learned, and start over in N environments."""
        self.rng = np.random.default_rng(seed)
        self.n_envs = n_envs

    @abstractmethod
    def get_action(self, observation: Any, info: Mapping[str, Any] | None = None) -> IntArray:
        """Choose actions (N,) for the environments' observations."""

    @abstractmethod
    def observe(self, experience: Experience) -> None:
        """Learn from a step."""
