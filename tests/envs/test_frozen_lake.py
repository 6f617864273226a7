from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from last_steps import last_steps
from laurel.envs import adapter_for
from laurel.envs.frozen_lake import FrozenLakeAdapter
from laurel.params import EnvParams

LEFT, DOWN, RIGHT, UP = range(4)


def adapter_of(env_id="FrozenLake-v1", with_action=False, **kwargs):
    return adapter_for(EnvParams(id=env_id, kwargs=kwargs), with_action=with_action)


@pytest.mark.parametrize(
    ("before", "after", "end", "caption"),
    [
        (0, 1, False, "You move closer to the goal: you are 5 squares from it, at row 1, column 2."),
        (14, 10, False, "You move away from the goal: you are 2 squares from it, at row 3, column 3."),
        (0, 0, False, "You stay where you are, 6 squares from the goal, at row 1, column 1."),
        (10, 14, False, "You move closer to the goal: you are 1 square from it, at row 4, column 3."),
        (4, 5, True, "You fall through a hole in the ice."),
        (14, 15, True, "You reach the goal."),
    ],
)
def test_words_on_the_small_map(say, before, after, end, caption):
    assert say(adapter_of(), before, DOWN, after, reward=float(after == 15), end=end) == caption
    assert say(adapter_of(with_action=True), before, DOWN, after, end=end) == f"You try to go down. {caption}"


def test_the_large_map_by_its_id_or_by_name(say):
    for adapter in (adapter_of("FrozenLake8x8-v1"), adapter_of(map_name="8x8")):
        assert (
            say(adapter, 8, RIGHT, 9) == "You move closer to the goal: you are 12 squares from it, at row 2, column 2."
        )
        assert say(adapter, 55, DOWN, 63, reward=1, end=True) == "You reach the goal."


def test_a_map_of_ones_own(say):
    adapter = adapter_of(desc=["GFFS", "FHFF"])
    assert say(adapter, 3, LEFT, 2) == "You move closer to the goal: you are 2 squares from it, at row 1, column 3."
    assert say(adapter, 1, LEFT, 0, reward=1, end=True) == "You reach the goal."
    assert say(adapter, 4, RIGHT, 5, end=True) == "You fall through a hole in the ice."


def test_several_goals(say):
    adapter = adapter_of(desc=["GFFFG", "SFFFF"])
    assert say(adapter, 2, RIGHT, 3).startswith("You move closer to the goal: you are 1 square")
    assert say(adapter, 3, LEFT, 2).startswith("You move away from the goal: you are 2 squares")
    row = adapter_of(desc=["GSFG"])
    assert say(row, 1, UP, 1) == "You stay where you are, 1 square from the goal, at row 1, column 2."
    assert "You move, but stay 1 square from the goal, at row 1, column 3." in map(row.describe, row.events())


def test_without_the_environment_the_map_is_a_square_with_its_goal_at_the_end(say):
    adapter = FrozenLakeAdapter("FrozenLake-v1", gym.spaces.Discrete(16), gym.spaces.Discrete(4))
    assert say(adapter, 0, RIGHT, 1) == "You move closer to the goal: you are 5 squares from it, at row 1, column 2."


def test_a_random_map_has_its_goal_at_the_end(say):
    assert say(adapter_of(map_name=None), 55, DOWN, 63, reward=1, end=True) == "You reach the goal."


def test_every_square_of_a_random_map_may_be_ice():
    adapter = adapter_of(map_name=None)
    assert len(list(adapter.events())) == 3 * 63 + 2


@pytest.mark.parametrize(
    ("env_id", "options", "goal", "hole"),
    [
        ("FrozenLake-v1", {"reward_schedule": [1, -1, -0.1]}, 15, 5),
        ("laurel/GridWorld-v0", {}, 3, 7),
        ("laurel/GridWorld-v0", {"heading": True}, 4 * 3 + 1, 4 * 7 + 1),
    ],
)
def test_success_is_to_end_at_the_goal_however_long_the_way_was(env_id, options, goal, hole):
    adapter = adapter_of(env_id, **options)
    places = np.array([[goal], [goal], [hole], [0]])
    steps = replace(last_steps(True, True, True, False), next_observation=places)
    returns = np.array([1, -0.5, -1, 0.5], np.float32)
    assert adapter.succeeded(returns, steps).tolist() == [True, True, False, False]
