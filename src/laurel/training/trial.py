"""A short training run on a candidate reward, to measure the resulting return by the environment's own reward.

Few runs need one, so the training code is imported on first use.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.params.rewards import TrialParams
from laurel.rewards.base import Reward
from laurel.rewards.method import RewardContext, Tried

if TYPE_CHECKING:
    from laurel.training.task import Task

PARTS = 5
"""Number of parts of a training run, each with its mean return."""


@dataclass(frozen=True)
class ShortTraining:
    """A `laurel.rewards.method.Trial` with the agents of a run: all candidates use the same seeds, hence the same
    initial weights and environments.
    """

    run_seed: int
    context: RewardContext

    def __call__(self, reward: Reward, settings: TrialParams) -> Tried:
        """Train agents in lockstep; errors as in `train_together`, and of the reward."""
        from threadpoolctl import threadpool_limits

        from laurel.training.curve import read_rows
        from laurel.training.loop import train_together
        from laurel.training.task import Assignment

        with TemporaryDirectory(prefix="laurel-") as scratch, threadpool_limits(1, user_api="blas"):
            agents = [
                Assignment(self._task(seed, settings), reward, Path(scratch) / str(seed))
                for seed in range(settings.seeds)
            ]
            train_together(agents, self.context.adapter, lambda _: None)
            curves = [read_rows(agent.directory) for agent in agents]
        late_returns = [
            row["return_mean"] for curve in curves for row in curve[-(-3 * len(curve) // 4) :] or curve[-1:]
        ]
        return Tried(_mean(late_returns), [_mean(part) for part in _parts(curves)])

    def _task(self, seed: int, settings: TrialParams) -> Task:
        from laurel.training.task import Task

        env, ppo, steps = self.context.env, settings.ppo, settings.steps
        shaping = settings.shaping.of_agent(ppo.gamma)
        return Task("trial", seed, self.run_seed, env, ppo, shaping, steps, checkpoint_steps=steps)


def _parts(curves: list[list[dict[str, Any]]]) -> list[list[float | None]]:
    """Return the mean returns of all agents in each fifth of their training."""
    edges = np.linspace(0, len(curves[0]), PARTS + 1).astype(int)
    return [
        [row["return_mean"] for curve in curves for row in curve[start:end]] for start, end in pairwise(edges.tolist())
    ]


def _mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")
