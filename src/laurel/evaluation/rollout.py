"""Fresh episodes of a policy on the reference environment, scored by the learned reward, too.

Runs the environment's own Python package with seeds that training never used, so that a difference between it and a
faster re-implementation would show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from laurel.agents.actor import Actor, View
from laurel.arrays import Array, IntArray
from laurel.envs import episode_limit
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.vector import make_vector
from laurel.errors import EnvError
from laurel.evaluation.summary import FURTHER, SUCCESS_IN
from laurel.params import EnvParams
from laurel.params.training import ShapingParams
from laurel.rewards.base import Reward
from laurel.rewards.paying import RewardCalculator
from laurel.seeding import generator

MOST_WITHOUT_END = 200_000
"""Steps per environment without the end of an episode after which evaluation gives up, if no step limit is known."""


@dataclass(frozen=True)
class LearnedReward:
    """A reward and how it is shaped, by which evaluation episodes are scored."""

    reward: Reward
    shaping: ShapingParams


def roll_out(
    env: EnvParams,
    adapter: EnvAdapter,
    actor: Actor,
    *,
    n_envs: int,
    episodes: int,
    seed: int,
    learned: LearnedReward | None,
    advance: Callable[[int], None] = lambda _: None,
    each_step: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Play complete episodes.

    Each environment plays its share, so that short episodes are not preferred to long ones. The seed is that of the
    environments and of the actions; `advance` is called with the number of further episodes that have ended, and
    `each_step` after each step.

    Returns:
        A row per episode: return, length, success (None if undefined), terminated, and the learned reward's mean per
        step (raw_reward) and shaped sum (shaped_reward), both None without one. For texts also the prompt and the whole
        text. With the prefix FURTHER also the adapter's further measures and, if there are several tasks, success in
        the episode's task, where it is defined.

    Raises:
        EnvError: episodes seem never to end, or a further measure is negative.
    """
    n_envs = _side_by_side(n_envs, episodes, len(adapter.tasks))
    left = np.full(n_envs, episodes // n_envs) + (np.arange(n_envs) < episodes % n_envs)
    with closing(make_vector(env, adapter, n_envs, seed, reference=True)) as envs:
        meter = _Meter(adapter, learned, n_envs)
        observation = envs.reset().copy()
        rng = generator(seed, "actions")
        actor.begin(np.ones(n_envs, dtype=np.bool_))
        played: list[list[dict[str, Any]]] = [[] for _ in range(n_envs)]
        unended, endless = 0, episode_limit(env) is None
        acting = np.ones(n_envs, dtype=np.bool_)
        while left.any():
            action = adapter.taken(actor.act(View(adapter, observation, acting), rng).action)
            step = envs.step(action)
            ends = step.terminated, step.truncated
            transitions = Transitions(observation, action, step.reward, step.observation, *ends, step.info)
            ended = step.terminated | step.truncated
            unended = 0 if ended.any() else unended + 1
            if endless and unended == MOST_WITHOUT_END:
                raise EnvError(
                    f"{env.id}: no episode ended within {unended:,} steps, so evaluation would never end. Set "
                    "env.max_episode_steps."
                )
            meter.update(transitions, step.valid)
            counted = np.flatnonzero(ended & (left > 0))
            if len(counted):
                advance(len(counted))
                for i, row in zip(counted, meter.rows(transitions, counted), strict=True):
                    played[i].append(row)
                left[counted] -= 1
            acting = ~ended & (left > 0)
            actor.begin(~step.valid)
            envs.stop(left == 0, step.observation)
            meter.begin(ended)
            observation = step.observation.copy()
            each_step()
    return [row for rows in played for row in rows]


def _side_by_side(n_envs: int, episodes: int, n_tasks: int) -> int:
    """Return in how many environments to play, at most n_envs.

    With several tasks, each environment begins with the task after that of the one before it, and plays them in turns.
    Every task has as many episodes as the others (or one more or less, if they cannot be divided equally) where the
    number of environments is a multiple of that of tasks, or where each environment plays all of them equally often.
    """
    n_envs = min(n_envs, episodes)
    if not n_tasks or episodes % (n_envs * n_tasks) == 0:
        return n_envs
    return max(n_envs - n_envs % n_tasks, 1)


class _Meter:
    """Returns and further measures of each environment's current episode."""

    def __init__(self, adapter: EnvAdapter, learned: LearnedReward | None, n_envs: int) -> None:
        self._adapter = adapter
        self._calculator = RewardCalculator(adapter, learned.reward, learned.shaping, n_envs) if learned else None
        self._returns, self._lengths = np.zeros(n_envs), np.zeros(n_envs, dtype=np.int64)  # sums in double precision
        self._furthest: dict[str, Array] = {}
        self._raw, self._shaped = np.zeros(n_envs), np.zeros(n_envs)
        self._scored = np.zeros(n_envs, dtype=np.int64)

    def update(self, transitions: Transitions, valid: Array) -> None:
        """Add a step.

        Raises:
            EnvError: a further measure is negative.
        """
        self._returns += transitions.reward * valid
        self._lengths += valid
        for name, reached in self._adapter.further_measures(transitions).items():
            if (valid & (reached < 0)).any():
                raise EnvError(
                    f"{type(self._adapter).__name__}.further_measures: {name} is {np.min(reached[valid]):.4g}, but a "
                    "measure begins at 0 in each episode, and the largest value counts: return 0 or more."
                )
            furthest = self._furthest.get(name, np.zeros(len(valid), dtype=np.float32))
            self._furthest[name] = np.maximum(furthest, np.where(valid, reached, 0))
        if self._calculator is not None:
            ends = transitions.terminated[None], transitions.truncated[None]
            pay = self._calculator.pay(transitions, valid[None], *ends)
            self._raw += np.where(pay.scored, pay.raw, 0)[0]
            self._scored += pay.scored[0]
            self._shaped += pay.shaped[0]

    def rows(self, last: Transitions, indices: IntArray) -> Iterator[dict[str, Any]]:
        """Yield a row, as `roll_out` returns it, for the episode that ended in each of these environments."""
        adapter = self._adapter
        success = adapter.succeeded(self._returns.astype(np.float32), last)
        for i in indices:
            row: dict[str, Any] = {
                "return": float(self._returns[i]),
                "length": int(self._lengths[i]),
                "terminated": bool(last.terminated[i]),
                "success": None if success is None else bool(success[i]),
            }
            row |= {FURTHER + name: float(reached[i]) for name, reached in self._furthest.items()}
            if adapter.tasks and success is not None:
                row[f"{FURTHER}{SUCCESS_IN}{adapter.tasks[int(last.observation[i, -1])]}"] = float(row["success"])
            if adapter.texts:
                step = last[i : i + 1]
                row["prompt"] = adapter.describe_observation(step.observation[0])
                row["text"] = adapter.describe(int(adapter.encode(step)[0]))
            learned = self._calculator is not None
            row["raw_reward"] = float(self._raw[i] / max(self._scored[i], 1)) if learned else None
            row["shaped_reward"] = float(self._shaped[i]) if learned else None
            yield row

    def begin(self, ended: Array) -> None:
        """Begin the next episodes of the environments (N,) in which one ended."""
        for sums in (self._returns, self._lengths, self._raw, self._shaped, self._scored, *self._furthest.values()):
            sums[ended] = 0
