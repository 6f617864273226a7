from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from laurel.envs import make_reference
from laurel.envs.builtin import GRID_WORLD
from laurel.envs.builtin.grid_world import GridWorld
from laurel.envs.builtin.model import model_of
from laurel.errors import EnvError
from laurel.params import EnvParams

LEFT, DOWN, RIGHT, UP = range(4)


def test_it_passes_gymnasiums_checks() -> None:
    check_env(gym.make(GRID_WORLD).unwrapped, skip_render_check=True)
    assert type(gym.make_vec(GRID_WORLD, num_envs=2).unwrapped).__name__ == "GridWorldVector"


def test_params_may_name_it() -> None:
    env = make_reference(EnvParams.model_validate({"id": GRID_WORLD, "kwargs": {"slip": 0.0}}))
    assert isinstance(env.unwrapped, GridWorld)


def walk(env: GridWorld, *actions: int) -> list[tuple[int, float, bool]]:
    env.reset(seed=0)
    found = []
    for action in actions:
        state, reward, terminated, _, _ = env.step(np.int64(action))
        found.append((int(state), round(reward, 6), terminated))
    return found


def test_walls_and_borders_stop_the_walker() -> None:
    env = GridWorld(slip=0.0)
    assert walk(env, LEFT, DOWN, UP, RIGHT, UP) == [
        (8, -0.04, False), (8, -0.04, False), (4, -0.04, False), (4, -0.04, False), (0, -0.04, False),
    ]  # fmt: skip


def test_goal_and_trap_end_the_episode_and_pay() -> None:
    env = GridWorld(slip=0.0, goal_reward=5.0, trap_reward=-7.0, step_reward=-1.0)
    assert walk(env, UP, UP, RIGHT, RIGHT, RIGHT)[-1] == (3, 4.0, True)
    assert walk(env, RIGHT, RIGHT, UP, RIGHT)[-1] == (7, -8.0, True)


def test_slipping_goes_to_both_sides_and_never_back() -> None:
    model = model_of(GridWorld(["...", ".S.", "..G"], slip=0.4))
    for action, ahead, sides in ((UP, 1, (3, 5)), (DOWN, 7, (3, 5)), (LEFT, 3, (1, 7)), (RIGHT, 5, (1, 7))):
        expected = np.zeros(9)
        expected[ahead], expected[list(sides)] = 0.6, 0.2
        np.testing.assert_allclose(model.transitions[4, action], expected)


def test_it_is_drawn() -> None:
    env = GridWorld(["S.", "#G"], slip=0.0, render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == "@.\n#G"
    env.step(np.int64(RIGHT))
    assert env.render() == "S@\n#G"
    assert GridWorld().render() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"squares": ["S.", "G"]}, "one length"),
        ({"squares": ["S?G"]}, "consist of"),
        ({"squares": []}, "squares are"),
        ({"squares": ["..G"]}, "no start"),
        ({"squares": ["S"]}, "at least two squares"),
        ({"slip": 1.5}, "slip is 1.5"),
    ],
)
def test_invalid_maps(options: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvError, match=message):
        GridWorld(**options)
