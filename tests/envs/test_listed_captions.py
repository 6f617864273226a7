"""Captions that adapters list for small worlds are exactly those of the steps that can be made there."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from laurel.envs import adapter_for
from laurel.envs.base import Transitions
from laurel.envs.vector import make_vector
from laurel.params import EnvParams

TRIES = 80
"""A slip that is never drawn has a chance of at most 0.9^80 = 2 in 10,000."""


def every_step(env_id: str, kwargs: dict[str, Any]) -> Transitions:
    """Try each action in each state that an episode can reach."""
    env: Any = gym.make(env_id, **kwargs).unwrapped
    env.reset(seed=0)
    met = set(np.flatnonzero(env.initial_state_distrib).tolist())
    waiting, rows = list(met), set[tuple[int, int, float, int, bool]]()
    while waiting:
        before = waiting.pop()
        for action in range(env.action_space.n):
            for _ in range(
                TRIES if set(kwargs) & {"is_rainy", "desc", "squares"} or "Frozen" in env_id or "Slip" in env_id else 1
            ):
                env.s = env._state = before  # of Gymnasium's environments, and of the grid world
                after, reward, end, _, _ = env.step(action)
                rows.add((before, action, float(reward), int(after), bool(end)))
                if not end and after not in met:
                    met.add(int(after))
                    waiting.append(int(after))
    states, actions, rewards, nexts, ends = (np.array(column) for column in zip(*rows, strict=True))
    return Transitions(states[:, None], actions, rewards.astype(np.float32), nexts[:, None], ends, np.zeros_like(ends))


@pytest.mark.parametrize("with_action", [False, True])
@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("FrozenLake-v1", {}),
        ("FrozenLake8x8-v1", {"is_slippery": False}),
        ("FrozenLake-v1", {"desc": ["SHF", "FFG", "FHF"]}),
        ("CliffWalking-v1", {}),
        ("CliffWalkingSlippery-v1", {}),
        ("Taxi-v4", {}),
        ("Taxi-v4", {"is_rainy": True}),
        ("laurel/GridWorld-v0", {"squares": ["S.G", ".#X", "..."]}),
        ("laurel/GridWorld-v0", {"squares": ["S.G", ".#X", "..."], "heading": True}),
    ],
)
def test_the_list_has_exactly_the_captions_that_can_occur(env_id, kwargs, with_action):
    adapter = adapter_for(EnvParams(id=env_id, kwargs=kwargs), with_action=with_action)
    said = {adapter.describe(int(event)) for event in adapter.encode(every_step(env_id, kwargs))}
    assert {adapter.describe(event) for event in adapter.events()} == said


@pytest.mark.parametrize("heading", [False, True])
def test_what_lists_of_moves_lead_to_is_listed(heading):
    """Which the table, of single moves, does not know: there and back, or to a square as far from the goal."""
    env = EnvParams(id="laurel/GridWorld-v0", kwargs={"heading": heading, "actions": "sequence", "max_moves": 3})
    adapter, rng, met = adapter_for(env), np.random.default_rng(0), set()
    envs = make_vector(env, adapter, 16, 0)
    before = envs.reset().copy()
    for _ in range(150):
        action = rng.integers(adapter.action_space.n, size=16)
        step = envs.step(action)
        steps = Transitions(before, action, step.reward, step.observation, step.terminated, step.truncated)
        met |= {adapter.describe(int(event)) for event in adapter.encode(steps)[step.valid]}
        before = step.observation.copy()
    envs.close()
    assert any(text.startswith("You move, but stay") for text in met)
    assert met <= {adapter.describe(event) for event in adapter.events()}
