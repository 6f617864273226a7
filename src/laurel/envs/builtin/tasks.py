"""Several environments as one: each episode is one of them, in rotation or drawn with a curriculum's probabilities.

The task is observed: an observation is the environment's packed observation, followed by the task's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from laurel.errors import EnvError

if TYPE_CHECKING:
    from laurel.arrays import Array, FloatArray
    from laurel.envs.base import EnvAdapter

MOST = 255
"""Maximum number of tasks; a task's number must fit into a byte."""


class Tasks(gym.Env[Any, Any]):
    """Environments of one family, one per episode.

    Args:
        tasks: their ids; observations and actions must be alike.

    Raises:
        EnvError: there are fewer than two or more than MOST tasks, or their spaces differ.

    >>> env = Tasks(tasks=["MiniGrid-Empty-5x5-v0", "MiniGrid-DoorKey-5x5-v0"])
    >>> env.reset(seed=0)[0].shape
    (149,)
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, *, tasks: Sequence[str] = (), render_mode: str | None = None) -> None:
        if isinstance(tasks, str) or not 1 < len(tasks) <= MOST or len(set(tasks)) < len(tasks):
            raise EnvError(f"Tasks: tasks are {tasks!r}, but must be a list of 2 to {MOST} ids that differ.")
        self.tasks, self.render_mode = tuple(tasks), render_mode
        self.adapters = adapters_of(self.tasks)
        row, last = self.adapters[0].row_space, len(tasks) - 1
        low, high = (np.append(bound, bound.dtype.type(end)) for bound, end in ((row.low, 0), (row.high, last)))
        self.observation_space = gym.spaces.Box(low, high, dtype=row.dtype.type)
        self.action_space = self.adapters[0].action_space
        self.chances: FloatArray | None = None
        """(K,) probabilities of the tasks of the next episodes; None: in rotation, from the seed's remainder on."""
        self.task = 0
        self._made: dict[int, gym.Env[Any, Any]] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        last = len(self.tasks) - 1
        if self.chances is not None:
            self.task = min(int((self.chances.cumsum() < self.np_random.random()).sum()), last)
        elif seed is not None:
            self.task = seed % (last + 1)  # copies of the environment have successive seeds: all tasks are begun with
        else:
            self.task = (self.task + 1) % (last + 1)
        observation, info = self._env.reset(seed=int(self.np_random.integers(2**31)))
        return self._row(observation), info

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self._env.step(action)
        return self._row(observation), float(reward), terminated, truncated, info

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        for env in self._made.values():
            env.close()

    @property
    def _env(self) -> gym.Env[Any, Any]:
        if self.task not in self._made:
            from laurel.envs import make_reference
            from laurel.params import EnvParams

            options = {} if self.render_mode is None else {"render_mode": self.render_mode}
            self._made[self.task] = make_reference(EnvParams(id=self.tasks[self.task]), **options)
        return self._made[self.task]

    def _row(self, observation: Any) -> Array:
        row = self.adapters[self.task].pack_one(observation)
        return np.append(row, np.array(self.task, dtype=row.dtype))


@cache
def adapters_of(tasks: tuple[str, ...]) -> tuple[EnvAdapter, ...]:
    """Return the adapter of each task.

    Raises:
        EnvError: an id is unknown, observations or actions differ, or an adapter needs the environment's info.
    """
    from laurel.envs import adapter_for
    from laurel.params import EnvParams

    adapters = tuple(adapter_for(EnvParams(id=task)) for task in tasks)
    first = adapters[0]
    for adapter in adapters:
        same_family = type(adapter) is type(first) and adapter.row_space == first.row_space
        if not same_family or adapter.action_space != first.action_space:
            raise EnvError(
                f"Tasks: {adapter.env_id} and {first.env_id} cannot be tasks of one agent: observations and actions "
                "must be of one family and size, and adapters of one class."
            )
        if adapter.info_fields:
            raise EnvError(
                f"Tasks: {adapter.env_id} cannot be one of several tasks, because its adapter {type(adapter).__name__} "
                f"needs fields of the environment's info (info_fields: {', '.join(adapter.info_fields)}). Name tasks "
                "whose captions and success do without."
            )
    return adapters
