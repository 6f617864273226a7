from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from laurel.arrays import Array, BoolArray
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.vector import make_vector
from laurel.params import EnvParams


@dataclass
class Walk:
    """A random walk through the vector seam: T steps of N environments, flattened in time order."""

    adapter: EnvAdapter
    backend: str
    transitions: Transitions
    valid: BoolArray
    n_envs: int

    def by_time(self, column: str) -> Array:
        values = getattr(self.transitions, column)
        return values.reshape(-1, self.n_envs, *values.shape[1:])


Roll = Callable[..., Walk]


def walk(
    env: EnvParams, *, steps: int = 1000, n_envs: int = 8, seed: int = 0, with_action: bool = False, adapter: Any = None
) -> Walk:
    adapter = adapter or adapter_for(env, with_action=with_action)
    envs = make_vector(env, adapter, n_envs, seed)
    rng = np.random.default_rng(seed)
    observations, rows = [envs.reset()], []
    for _ in range(-(-steps // n_envs)):
        if isinstance(adapter.action_space, gym.spaces.Discrete):
            action = rng.integers(0, adapter.action_space.n, n_envs)
        else:
            action = rng.uniform(-1, 1, (n_envs, *adapter.action_space.shape)).astype(np.float32)
        step = envs.step(action)
        observations.append(step.observation)
        rows.append((action, step.reward, step.terminated, step.truncated, step.valid))
    envs.close()
    action, reward, terminated, truncated, valid = (np.concatenate(column) for column in zip(*rows, strict=True))
    before, after = np.concatenate(observations[:-1]), np.concatenate(observations[1:])
    return Walk(adapter, envs.backend, Transitions(before, action, reward, after, terminated, truncated), valid, n_envs)


@pytest.fixture(scope="session")
def roll() -> Roll:
    """Roll out random actions; equal arguments give the same walk object."""
    walks: dict[str, Walk] = {}

    def roll(env_id: str, backend: str = "auto", *, env: dict[str, Any] | None = None, **options: Any) -> Walk:
        params = EnvParams.model_validate({"id": env_id, "backend": backend, **(env or {})})
        key = f"{params.model_dump_json()} {sorted(options.items())}"
        if key not in walks:
            walks[key] = walk(params, **options)
        return walks[key]

    return roll


@pytest.fixture(scope="session")
def say() -> Callable[..., str]:
    """Say a single transition, given observations as a row of numbers each."""

    def say(
        adapter: EnvAdapter,
        before: Any,
        action: Any,
        after: Any,
        *,
        reward: float = 0.0,
        end: bool = False,
        cut: bool = False,
    ) -> str:
        row = Transitions(
            np.atleast_1d(np.asarray(before, dtype=adapter.observation_dtype))[None],
            np.asarray(action)[None],
            np.array([reward], dtype=np.float32),
            np.atleast_1d(np.asarray(after, dtype=adapter.observation_dtype))[None],
            np.array([end]),
            np.array([cut]),
        )
        return adapter.describe(int(adapter.encode(row)[0]))

    return say
