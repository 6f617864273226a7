"""Captions of MiniGrid's dynamic obstacles, against where the agent is."""

from __future__ import annotations

import numpy as np
import pytest

from laurel.envs import adapter_for, make_reference
from laurel.envs.base import Transitions
from laurel.params import EnvParams

FORWARD = 2


@pytest.mark.parametrize("size", ["5x5", "8x8"])
def test_a_ball_that_rolls_in_front_of_the_agent_stops_it(size: str) -> None:
    params = EnvParams(id=f"MiniGrid-Dynamic-Obstacles-{size}-v0")
    adapter, env = adapter_for(params), make_reference(params)
    listed = {adapter.describe(event) for event in adapter.events()}
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    said = set()
    for _ in range(1500):
        before, place, action = adapter.pack_one(observation), env.unwrapped.agent_pos, int(rng.integers(3))
        observation, reward, terminated, truncated, _ = env.step(action)
        ends = np.array([terminated]), np.array([truncated])
        row = Transitions(
            before[None], np.array([action]), np.float32([reward]), adapter.pack_one(observation)[None], *ends
        )
        caption = adapter.describe(int(adapter.encode(row)[0]))
        if action == FORWARD and not terminated:
            assert (caption == "You bump into the blue ball.") == (tuple(place) == tuple(env.unwrapped.agent_pos))
        said.add(caption)
        if terminated or truncated:
            observation, _ = env.reset()
    assert said <= listed
    assert said >= {"You move forward.", "You bump into the blue ball."}


def test_nothing_is_listed_that_takes_an_action_it_lacks() -> None:
    adapter = adapter_for(EnvParams(id="MiniGrid-Dynamic-Obstacles-5x5-v0"))
    assert adapter.action_names == ("turn left", "turn right", "move forward")
    listed = " ".join(adapter.describe(event) for event in adapter.events())
    assert not any(words in listed for words in ("pick up", "put down", "Nothing happens"))
