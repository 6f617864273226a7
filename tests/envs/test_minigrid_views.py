"""MiniGrid's views that are kept are those that the environment makes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401 - registers its environments
import numpy as np
import pytest

from laurel.agents.actor import View
from laurel.envs import adapter_of, make_reference
from laurel.envs.minigrid import MiniGridAdapter
from laurel.params import EnvParams

IDS = sorted(
    {
        spec.entry_point: env_id
        for env_id, spec in gym.registry.items()
        if env_id.startswith(("MiniGrid-", "BabyAI-")) and "WFC" not in env_id  # which need a further package
    }.values()
)
"""One of each class."""


@pytest.mark.parametrize("env_id", IDS)
def test_views_that_are_kept_are_those_that_would_be_made(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = played(env_id)
    monkeypatch.setattr(MiniGridAdapter, "prepare", staticmethod(lambda env: None))
    assert kept == played(env_id)


def played(env_id: str, steps: int = 60) -> list[Any]:
    """Return an environment's steps under actions that often pick up, drop and toggle."""
    env, rng = make_reference(EnvParams(id=env_id)), np.random.default_rng(0)
    answers = [seen(env.reset(seed=0)[0])]
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(rng.choice([0, 1, 2, 2, 2, 3, 4, 5, 5]))
        answers.append((seen(observation), reward, terminated, truncated))
        if terminated or truncated:
            answers.append(seen(env.reset()[0]))
    return answers


def seen(observation: dict[str, Any]) -> tuple[bytes, int, str]:
    return observation["image"].tobytes(), int(observation["direction"]), observation["mission"]


def test_every_environment_has_words_for_what_it_shows() -> None:
    """All that are registered here; the six WFC ones are the exception: their resets need another package, imageio."""
    every = [env_id for env_id in gym.registry if env_id.startswith(("MiniGrid-", "BabyAI-"))]
    without = [env_id for env_id in every if "WFC" in env_id]
    assert len(without) == 6
    for env_id in sorted(set(every) - set(without)):
        env = make_reference(EnvParams(id=env_id))
        adapter = adapter_of(EnvParams(id=env_id), env)
        observation, _ = env.reset(seed=0)
        (text,) = View(adapter, adapter.pack_one(observation)[None]).text
        assert f"You face {('east', 'south', 'west', 'north')[observation['direction']]}. " in text, env_id
        assert "Right ahead of you is " in text, env_id


def test_a_view_that_is_changed_by_its_user_is_not_the_one_that_is_kept() -> None:
    env = make_reference(EnvParams(id="MiniGrid-Empty-5x5-v0"))
    first, _ = env.reset(seed=0)
    before = first["image"].copy()
    first["image"][:] = 0
    assert (env.step(6)[0]["image"] == before).all(), "to do nothing changes nothing of what is seen"
