from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from last_steps import last_steps
from laurel.envs import adapter_for
from laurel.params import EnvParams

UP, RIGHT, DOWN, LEFT = range(4)


@pytest.mark.parametrize(
    ("before", "action", "after", "reward", "end", "caption"),
    [
        (36, UP, 24, -1, False,
         "You move closer to the goal: it is 12 steps away, and you are right at the cliff's edge."),
        (24, UP, 12, -1, False,
         "You move away from the goal: it is 13 steps away, and you are one square above the cliff's edge."),
        (24, DOWN, 36, -1, False, "You move away from the goal: it is 13 steps away, and you are at the start."),
        (1, RIGHT, 2, -1, False,
         "You move closer to the goal: it is 12 steps away, and you are two squares above the cliff's edge."),
        (36, LEFT, 36, -1, False, "You bump into the border of the grid and stay where you are, at the start."),
        (0, UP, 0, -1, False,
         "You bump into the border of the grid and stay where you are, two squares above the cliff's edge."),
        (36, RIGHT, 36, -100, False, "You fall off the cliff and are sent back to the start."),
        (30, DOWN, 36, -100, False, "You fall off the cliff and are sent back to the start."),
        (23, DOWN, 35, -1, False,
         "You move closer to the goal: it is 1 step away, and you are right at the cliff's edge."),
        (35, DOWN, 47, -1, True, "You reach the goal."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("env_id", ["CliffWalking-v1", "CliffWalkingSlippery-v1"])
def test_words(say, env_id, before, action, after, reward, end, caption):
    adapter = adapter_for(EnvParams(id=env_id))
    assert say(adapter, before, action, after, reward=reward, end=end) == caption
    named = adapter_for(EnvParams(id=env_id), with_action=True)
    way = ("up", "right", "down", "left")[action]
    assert say(named, before, action, after, reward=reward, end=end) == f"You try to go {way}. {caption}"


def test_the_shortest_way_leads_closer_in_every_step(say):
    adapter = adapter_for(EnvParams(id="CliffWalking-v1"))
    way = [36, *range(24, 36), 47]
    captions = [say(adapter, a, 0, b, reward=-1, end=b == 47) for a, b in pairwise(way)]
    assert all(caption.startswith("You move closer") for caption in captions[:-1])
    assert [adapter.oracle(caption) for caption in captions] == [0.3] * 12 + [1.0]


def test_success_is_termination():
    adapter = adapter_for(EnvParams(id="CliffWalking-v1"))
    assert adapter.succeeded(np.array([-13, -200], np.float32), last_steps(True, False)).tolist() == [True, False]
