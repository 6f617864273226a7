"""What a reward is: something that pays steps of running environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from laurel.arrays import BoolArray, FloatArray, IntArray
from laurel.envs.base import Transitions

UNPAID = np.float32(-np.inf)
"""Raw reward of a step that a reward does not score; shaping pays nothing for it."""


@dataclass(frozen=True, slots=True)
class Steps:
    """T steps of N environments in the order in which they were taken, the ends of episodes among them."""

    transitions: Transitions
    """(T * N) rows: all environments' first step, then all their second, and so on."""
    captions: IntArray
    """(T, N) ids of captions; NOTHING (-1) if there is nothing to say."""
    texts: Sequence[str]
    """texts[id] is the caption; grows while training meets new ones."""
    valid: BoolArray
    """(T, N) False where the environment was reset instead of stepped."""
    terminated: BoolArray
    """(T, N) the episode ended with this step by the task's own rules."""
    truncated: BoolArray
    """(T, N) the episode was cut with this step."""


class Reward(Protocol):
    """Pays steps in normalised units; shaping then pays what exceeds `threshold`."""

    @property
    def threshold(self) -> float:
        """Raw reward that shaping starts from."""
        ...

    @property
    def unseen(self) -> int:
        """Captions that were not known when training began, and were scored when they were first met."""
        ...

    def begin(self, n_envs: int) -> None:
        """Reset: the next steps are of N environments at the beginning of episodes."""
        ...

    def pay(self, steps: Steps) -> FloatArray:
        """Return raw rewards (T, N), UNPAID if there is no reward; the steps follow the steps of the last call."""
        ...


class Memoryless:
    """Base class of rewards that pay a step by itself, the same in all episodes."""

    unseen: int = 0

    def begin(self, n_envs: int) -> None:
        """Do nothing."""


@runtime_checkable
class LearningReward(Reward, Protocol):
    """A reward that is learned while an agent is trained on it, and kept in the agent's checkpoints."""

    name: str
    """Name of the reward in params.yaml."""

    def keep(self, place: Path) -> None:
        """Write the learned reward, as an artefact, and all that `resume` needs, into a new directory."""
        ...

    def resume(self, place: Path, steps: int) -> None:
        """Prepare to see the first `steps` again, up to the checkpoint, and to learn from them as before.

        Raises:
            DataError: what was kept is missing or damaged.
        """
        ...


@runtime_checkable
class AskingReward(Reward, Protocol):
    """A reward that asks a language model about the steps that it pays."""

    @property
    def account(self) -> Mapping[str, Any]:
        """The usage of asking, as `laurel.feedback.chooser.Chooser.account` returns it."""
        ...
