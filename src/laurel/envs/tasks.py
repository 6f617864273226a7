"""Several environments as one (`laurel.envs.builtin.tasks`): each step is described as in its own environment."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.builtin import TASKS
from laurel.envs.builtin.tasks import Tasks
from laurel.envs.spaces import one_hot
from laurel.errors import EnvError


class TasksAdapter(EnvAdapter):
    """An event's number is K times that of the task's own adapter, plus the number of the task."""

    ids = ("laurel/Tasks-v*",)
    members: tuple[EnvAdapter, ...]
    """The adapter of each task."""
    without_success: EnvAdapter | None = None
    """The first of them that does not define success, if any: it is then undefined, whichever tasks episodes are of."""

    @classmethod
    def described_by(cls, kwargs: Mapping[str, Any]) -> str:
        """Return its own name and version, and those of the adapter that all tasks have."""
        from laurel.envs import words_of

        tasks = kwargs.get("tasks")
        version = super().described_by(kwargs)
        return f"{version} of {words_of(str(tasks[0]), {})}" if isinstance(tasks, list | tuple) and tasks else version

    def inspect(self, env: Any) -> None:
        game = env.unwrapped
        assert isinstance(game, Tasks)
        self.members = tuple(map(copy.copy, game.adapters))
        for member in self.members:
            member.with_action = self.with_action
        first, self.tasks = self.members[0], game.tasks
        self.without_success = next((member for member in self.members if not member.defines_success()), None)
        self.description = "Episodes are of several tasks. " + " ".join(
            dict.fromkeys(member.description for member in self.members)
        )
        goals = dict.fromkeys(member.goal for member in self.members if member.goal)
        self.goal = " Or: ".join(goals) or None
        compared = dict.fromkeys(text for member in self.members if (text := member.encoder_goal or member.goal))
        self.encoder_goal = " Or: ".join(compared) or None
        self.anti_goal, self.example, self.action_names = first.anti_goal, first.example, first.action_names
        self.goals = first.goals
        self.success_words = tuple(dict.fromkeys(words for member in self.members for words in member.success_words))

    def features(self, observation: Array) -> FloatArray:
        """Return the environment's network input (N, F), with a one-hot task."""
        base_features = self.members[0].features(observation[:, :-1])
        return np.concatenate([base_features, one_hot(observation[:, -1], len(self.members))], axis=1)

    def describe_observation(self, observation: Any) -> str | None:
        member = self.members[int(observation[-1])]
        return member.describe_observation(member.unpack(np.asarray(observation)[:-1]))

    def encode(self, transitions: Transitions) -> IntArray:
        events = np.zeros(len(transitions), dtype=np.int64)
        for number, rows, steps in _by_task(transitions):
            events[rows] = self.members[number].encode(steps) * len(self.members) + number
        return events

    def describe(self, event: int) -> str:
        event_of_task, number = divmod(event, len(self.members))
        return self.members[number].describe(event_of_task)

    def events(self) -> Iterable[int]:
        for number, member in enumerate(self.members):
            yield from (event * len(self.members) + number for event in member.events())

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray | None:
        if self.without_success is not None:
            return None
        solved = np.zeros(len(last), dtype=np.bool_)
        for number, rows, steps in _by_task(last):
            solved_here = self.members[number].succeeded(returns[rows], steps)
            if solved_here is None:
                return None
            solved[rows] = solved_here
        return solved

    def says_success(self, caption: str) -> bool:
        """Whether a caption says that a task is solved, whichever it is, since a caption does not name its task."""
        return any(member.says_success(caption) for member in self.members)

    def success_captions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for member in self.members for text in member.success_captions()))

    def oracle(self, caption: str) -> float | None:
        """Return the highest progress of a caption over all tasks, since a caption does not name its task."""
        known = [value for member in self.members if (value := member.oracle(caption)) is not None]
        return max(known, default=None)


def _by_task(transitions: Transitions) -> Iterator[tuple[int, IntArray, Transitions]]:
    """Yield each task's number, the rows of its transitions, and these as in its own environment."""
    task = transitions.observation[:, -1].astype(np.int64)
    for number in np.unique(task).tolist():
        rows = np.flatnonzero(task == number)
        subset = transitions[rows]
        before, after = subset.observation[:, :-1], subset.next_observation[:, :-1]
        yield number, rows, replace(subset, observation=before, next_observation=after)


def tasks_of(adapter: EnvAdapter, key: str) -> TasksAdapter:
    """Return the adapter as one with several tasks; `key` is the parameter that requires them, for the message.

    Raises:
        EnvError: the environment has only one task, or success is undefined in it.
    """
    if not isinstance(adapter, TasksAdapter):
        raise EnvError(
            f"{key}: {adapter.env_id} is a single task, so there is nothing to choose. Set env: {{id: {TASKS}, "
            "kwargs: {tasks: [MiniGrid-Empty-5x5-v0, MiniGrid-DoorKey-5x5-v0]}}}, with your own tasks."
        )
    if adapter.without_success is not None:
        raise EnvError(f"{key}: it is based on success, which is undefined in {adapter.without_success.env_id}.")
    return adapter
