"""A training task: an arm with a seed, for a number of whole updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from laurel.params import EnvParams
from laurel.params.annotation import AnnotateParams
from laurel.params.resolved_arms import Arm
from laurel.params.training import CurriculumParams, ShapingParams
from laurel.rewards.base import Reward

ENV_LIFETIME = 10_000_000
"""Environment steps after which environments are recreated; episodes that are unfinished then are dropped."""
MOST_ROWS = 50_000
"""Rows of a learning curve; if there are more updates, a row is the mean of several."""
Agent: TypeAlias = tuple[Arm, int, Path]
"""An arm, a seed, and the directory of the agent that is trained so."""


@dataclass(frozen=True)
class Task:
    """Everything that defines a training run, except the reward function."""

    arm: str
    seed: int
    """Seed of the agent; arms with the same seed share initial weights and environments."""
    run_seed: int
    """Seed of the whole run."""
    env: EnvParams
    settings: Any
    """Settings of the algorithm, which they also name, a LearnerParams; the engine knows of which class."""
    shaping: ShapingParams
    """Shaping with the arm's own weights."""
    steps: int
    checkpoint_steps: int
    device: str = "cpu"
    """cpu, cuda or auto."""
    annotate: AnnotateParams | None = None
    """The run's section `annotate`, for hints by its chat models and for its judge's interest in tasks."""
    curriculum: CurriculumParams | None = None
    """How the task of each episode is chosen; None: in turn, or there is only one."""

    @property
    def steps_per_update(self) -> int:
        return steps_per_update(self.settings)

    @property
    def updates(self) -> int:
        """Updates until at least `steps` are done."""
        return self.total_steps // self.steps_per_update

    @property
    def total_steps(self) -> int:
        """Environment steps at the end of training, a multiple of the update size."""
        return total_steps(self.settings, self.steps)

    @property
    def updates_per_row(self) -> int:
        """Updates that a row of the learning curve is the mean of."""
        return -(-self.updates // MOST_ROWS)

    @property
    def updates_per_checkpoint(self) -> int:
        """Updates between checkpoints, which hold whole rows of the curve."""
        rows = max(1, self.checkpoint_steps // (self.steps_per_update * self.updates_per_row))
        return rows * self.updates_per_row

    @property
    def updates_per_env_lifetime(self) -> int:
        """Updates after which environments are recreated, at a checkpoint."""
        checkpoints = max(1, ENV_LIFETIME // (self.steps_per_update * self.updates_per_checkpoint))
        return checkpoints * self.updates_per_checkpoint


def steps_per_update(settings: Any) -> int:
    """Return the environment steps that an algorithm learns from at once."""
    return settings.n_envs * settings.n_steps


def total_steps(settings: Any, steps: int) -> int:
    """Return the environment steps of the smallest number of whole updates that reaches `steps`."""
    return -(-steps // steps_per_update(settings)) * steps_per_update(settings)


@dataclass(frozen=True)
class Assignment:
    """An agent to train: the task, the learned part of its reward, and where it is kept."""

    task: Task
    reward: Reward | None
    """The learned reward; None trains on the environment's reward alone."""
    directory: Path
    """Directory of the checkpoints and, in the end, of the agent."""
    until: int | None = None
    """The update after which training stops for now, with a checkpoint; None: the last one."""
    sampled: Sequence[Any] = ()
    """The shards of the next update's rollout (SampledShard), where they were sampled elsewhere."""

    @property
    def last(self) -> int:
        """The update after which training stops."""
        return self.task.updates if self.until is None else min(self.until, self.task.updates)
