"""What code sees of observations: named numbers where an adapter names them, packed ones otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from laurel.envs import adapter_for
from laurel.envs.numbers import Numbers
from laurel.envs.vector import make_vector
from laurel.params import EnvParams

NAMED = {
    "CartPole-v1": "pole_angle",
    "MountainCar-v0": "velocity",
    "MountainCarContinuous-v0": "position",
    "Acrobot-v1": "cos_theta2",
    "LunarLander-v3": "left_leg",
    "Blackjack-v1": "usable_ace",
    "FrozenLake-v1": "goal_distance",
    "CliffWalking-v1": "column",
    "Taxi-v3": "passenger",
    "MiniGrid-DoorKey-8x8-v0": "door_seen",
}


@pytest.mark.parametrize("env_id", NAMED)
def test_each_number_has_a_name_and_is_in_the_prompt(env_id: str) -> None:
    env = EnvParams(id=env_id)
    adapter = adapter_for(env)
    numbers, envs = Numbers(adapter), make_vector(env, adapter, 3, 0, reference=True)
    rows = numbers.of(envs.reset())
    envs.close()
    features = adapter.observation_features
    assert {len(row) for row in rows} == {len(features)}
    for column, feature in enumerate(features):
        assert feature.name.isidentifier()
        assert f'observation["{feature.name}"]' in numbers.observation
        assert {type(row[column]) for row in rows} == {int if feature.whole else float}
    assert NAMED[env_id] in numbers.names
    assert len(set(numbers.names)) == len(features)


def test_minigrid_names_the_nearest_object_in_view() -> None:
    env = EnvParams(id="MiniGrid-DoorKey-8x8-v0")
    adapter = adapter_for(env)
    envs = make_vector(env, adapter, 1, 0, reference=True)
    row = envs.reset()
    envs.close()
    seen: dict[str, Any] = dict(zip(Numbers(adapter).names, Numbers(adapter).of(row)[0], strict=True))
    assert (seen["key_seen"], seen["key_forward"], seen["key_aside"]) == (1, 1, -1)
    assert (seen["door_seen"], seen["door_forward"], seen["carried"]) == (0, 0, 1)


def test_unnamed_numbers_are_numbered_by_position() -> None:
    numbers = Numbers(adapter_for(EnvParams(id="laurel/Ultimatum-v0")))
    assert numbers.names == ()
    assert "observation[0] to observation[1]: whole numbers from 0 to 10" in numbers.observation
    assert numbers.action == "An integer. 0: refuse; 1: accept"
    continuous = Numbers(adapter_for(EnvParams(id="MountainCarContinuous-v0")))
    assert continuous.action == "A list of numbers: real numbers from -1 to 1"
