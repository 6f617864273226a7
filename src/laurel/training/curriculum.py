"""A curriculum over the tasks of `laurel/Tasks-v0`: learning progress, weighted by a judge's interest in each task.

After Zhang et al. 2024, "OMNI: Open-endedness via Models of human Notions of Interestingness" (arXiv 2306.01711), with
the learning progress of Kanitscheider et al. 2021 (arXiv 2106.14876). With the success s = 0 or 1 of a task's episodes:

    fast += rate (s - fast),  slow += rate (fast - slow)
    progress = |f(fast) - f(slow)|,  f(p) = (1 - θ) p / (p + θ (1 - 2 p)), which spreads low rates of success
    probability of a task ~ sigmoid(z-score of its progress) x (`boring` where it is boring, else 1)

Mastered tasks are visited in order of success: each that is not yet boring marks those tasks as boring that the judge
calls boring compared with it. Two things differ from OMNI's code: success is measured in training episodes, not in
separate ones, and therefore a task that was never solved keeps its probability.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from laurel.agents.learner import Rollout
from laurel.arrays import BoolArray, DoubleArray, FloatArray, IntArray
from laurel.envs.tasks import TasksAdapter
from laurel.envs.vector import VectorEnv
from laurel.params.training import CurriculumParams

KEY = "agent.curriculum"
THETA = 0.1
FILE = "curriculum.parquet"
SCHEMA = pa.schema(
    [
        ("env_steps", pa.int64()),
        ("task", pa.string()),
        ("episodes", pa.int64()),  # ended so far
        ("success", pa.float64()),  # the fast average
        ("progress", pa.float64()),
        ("boring", pa.bool_()),
        ("chance", pa.float64()),  # of the next episodes
    ]
)


class Curriculum:
    """Tracks an agent's success per task, and sets the probabilities of the next episodes' tasks.

    Args:
        adapter: has the tasks.
        boring: (K, K) from `laurel.feedback.interest.boring`; None: only learning progress counts.
    """

    def __init__(
        self, params: CurriculumParams, adapter: TasksAdapter, envs: VectorEnv, boring: BoolArray | None
    ) -> None:
        self._params, self._adapter, self._envs, self._boring = params, adapter, envs, boring
        n_tasks = len(adapter.tasks)
        self._fast, self._slow = np.zeros(n_tasks), np.zeros(n_tasks)
        self._episodes = np.zeros(n_tasks, dtype=np.int64)
        self._returns = np.zeros(envs.n_envs, dtype=np.float32)
        self._steps = 0
        self._rows: list[dict[str, Any]] = []

    def follow(self, rollout: Rollout) -> None:
        """Update the averages with the next rollout, and the task probabilities of new episodes."""
        done = rollout.terminated | rollout.truncated
        transitions, n_envs = rollout.transitions, done.shape[1]
        for t, paid in enumerate(rollout.extrinsic * rollout.valid):
            self._returns += paid
            ended = done[t]
            if ended.any():
                success = self._adapter.succeeded(self._returns[ended], transitions[t * n_envs + np.flatnonzero(ended)])
                assert success is not None
                self._note(rollout.observation[t][ended, -1].astype(np.int64), success)
                self._returns[ended] = 0
        self._steps += done.size
        progress = np.abs(_spread(self._fast) - _spread(self._slow))
        boring = bored(self._fast, self._boring, self._params.mastered)
        probabilities = task_probabilities(progress, np.where(boring, self._params.boring, 1.0))
        self._envs.draw_tasks(probabilities)
        columns = (self._adapter.tasks, self._episodes, self._fast, progress, boring, probabilities)
        self._rows += [
            dict(zip(SCHEMA.names, (self._steps, *row), strict=True)) for row in zip(*map(list, columns), strict=True)
        ]

    @property
    def table(self) -> pa.Table:
        """A row per update and task."""
        return pa.Table.from_pylist(self._rows, schema=SCHEMA)

    def _note(self, tasks: IntArray, success: BoolArray) -> None:
        rate = self._params.rate
        for task, solved in zip(tasks.tolist(), success.tolist(), strict=True):
            self._fast[task] += rate * (solved - self._fast[task])
            self._slow[task] += rate * (self._fast[task] - self._slow[task])
            self._episodes[task] += 1


def task_probabilities(progress: DoubleArray, weight: DoubleArray) -> FloatArray:
    """Return the probability that a new episode is of each task (K,), from learning progress and weights.

    >>> task_probabilities(np.array([0.0, 0.0, 0.3, 0.0]), np.array([1.0, 1.0, 1.0, 0.001])).round(2)
    array([0.23, 0.23, 0.54, 0.  ], dtype=float32)
    """
    centred = progress - progress.mean()
    score = centred / (centred.std() or 1.0)
    weighted = weight / (1 + np.exp(-score))
    probabilities: FloatArray = (weighted / weighted.sum()).astype(np.float32)
    return probabilities


def bored(success: DoubleArray, boring: BoolArray | None, mastered: float) -> BoolArray:
    """Return which tasks (K,) are boring compared with the mastered ones.

    >>> same = np.array([[False, True], [True, False]])
    >>> bored(np.array([0.6, 0.7]), same, 0.5).tolist(), bored(np.array([0.1, 0.2]), same, 0.5).tolist()
    ([True, False], [False, False])
    """
    is_boring = np.zeros(len(success), dtype=np.bool_)
    if boring is None:
        return is_boring
    interesting = is_boring.copy()
    for task in np.argsort(-success, kind="stable").tolist():
        if success[task] >= mastered and not is_boring[task]:
            interesting[task] = True
            is_boring |= boring[task] & ~interesting
    return is_boring


def _spread(p: DoubleArray) -> DoubleArray:
    """Return f(p) of the module's docstring."""
    return (1 - THETA) * p / (p + THETA * (1 - 2 * p))
