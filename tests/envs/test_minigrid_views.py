"""MiniGrid's views as Laurel computes them, beside MiniGrid's own."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401 - registers its environments
import numpy as np
import pytest
from minigrid.core.grid import Grid

from laurel.agents.actor import View
from laurel.envs import adapter_of, make_reference, minigrid_views
from laurel.envs.minigrid import MiniGridAdapter
from laurel.envs.minigrid_views import Views
from laurel.errors import EnvError
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
def test_views_equal_those_of_minigrid(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = played(env_id)
    monkeypatch.setattr(MiniGridAdapter, "prepare", staticmethod(lambda env: None))
    assert ours == played(env_id)


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


def test_a_minigrid_that_computes_other_views_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minigrid_views, "SAMPLED", 4)
    env = make_reference(EnvParams(id="MiniGrid-Empty-5x5-v0"))
    env.reset(seed=0)
    encode = Grid.encode
    monkeypatch.setattr(Grid, "encode", lambda *given: 1 - encode(*given))
    for _ in range(3):
        env.step(6)
    with pytest.raises(EnvError, match="EmptyEnv: MiniGrid computes another view"):
        env.step(6)


def test_views_that_a_class_computes_itself_are_left_to_it() -> None:
    given: Any = gym.make("MiniGrid-Empty-5x5-v0").unwrapped
    subclass: Any = type("Own", (type(given),), {"gen_obs_grid": lambda _: None})
    assert Views.suit(given)
    assert not Views.suit(subclass(render_mode=None))
    assert not Views.suit(gym.make("MiniGrid-Empty-5x5-v0", agent_view_size=5).unwrapped)  # type: ignore[arg-type]
