from __future__ import annotations

from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest

from last_steps import last_steps
from laurel.envs import adapter_for
from laurel.envs.taxi import MAP, STANDS
from laurel.params import EnvParams

SOUTH, NORTH, EAST, WEST, PICKUP, DROPOFF = range(6)
RED, GREEN, YELLOW, BLUE, IN_TAXI = range(5)


def state(row, column, passenger, destination):
    return ((row * 5 + column) * 5 + passenger) * 4 + destination


@pytest.fixture(scope="module")
def adapter():
    return adapter_for(EnvParams(id="Taxi-v3"))


@pytest.mark.parametrize(
    ("before", "action", "after", "reward", "end", "caption"),
    [
        ((2, 0, RED, BLUE), NORTH, (1, 0, RED, BLUE), -1, False,
         "You drive closer to the waiting passenger: 1 square to go."),
        ((1, 0, RED, BLUE), NORTH, (0, 0, RED, BLUE), -1, False, "You arrive at the waiting passenger."),
        ((0, 0, RED, BLUE), SOUTH, (1, 0, RED, BLUE), -1, False,
         "You drive away from the waiting passenger: 1 square to go."),
        ((0, 1, GREEN, BLUE), EAST, (0, 1, GREEN, BLUE), -1, False,
         "You drive against a wall and stay where you are, 7 squares from the waiting passenger."),
        ((0, 0, RED, BLUE), PICKUP, (0, 0, IN_TAXI, BLUE), -1, False, "You pick up the passenger."),
        ((1, 0, RED, BLUE), PICKUP, (1, 0, RED, BLUE), -10, False, "Nobody waits here: you stop in vain."),
        ((0, 0, IN_TAXI, BLUE), PICKUP, (0, 0, IN_TAXI, BLUE), -10, False, "Nobody waits here: you stop in vain."),
        ((2, 2, IN_TAXI, BLUE), EAST, (2, 3, IN_TAXI, BLUE), -1, False,
         "You drive closer to the destination with the passenger: 2 squares to go."),
        ((3, 3, IN_TAXI, BLUE), SOUTH, (4, 3, IN_TAXI, BLUE), -1, False,
         "You arrive at the destination with the passenger."),
        ((4, 3, IN_TAXI, BLUE), DROPOFF, (4, 3, BLUE, BLUE), 20, True,
         "You drop off the passenger at the destination."),
        ((0, 4, IN_TAXI, BLUE), DROPOFF, (0, 4, GREEN, BLUE), -1, False,
         "You let the passenger out in the wrong place."),
        ((2, 2, IN_TAXI, BLUE), DROPOFF, (2, 2, IN_TAXI, BLUE), -10, False,
         "You stop in vain: nobody can get out here."),
        ((2, 2, RED, BLUE), DROPOFF, (2, 2, RED, BLUE), -10, False, "You stop in vain: nobody can get out here."),
        # a fickle passenger changes the destination on the way: what counts is the new one
        ((2, 1, IN_TAXI, BLUE), WEST, (2, 0, IN_TAXI, RED), -1, False,
         "You drive closer to the destination with the passenger: 2 squares to go."),
    ],
)  # fmt: skip
def test_words(say, adapter, before, action, after, reward, end, caption):
    assert say(adapter, state(*before), action, state(*after), reward=reward, end=end) == caption
    named = adapter_for(EnvParams(id="Taxi-v4"), with_action=True)
    ways = ("You steer south. ", "You steer north. ", "You steer east. ", "You steer west. ", "", "")
    assert say(named, state(*before), action, state(*after), reward=reward, end=end) == ways[action] + caption


def test_the_map_is_the_environments(adapter):
    task = gym.make("Taxi-v4").unwrapped
    assert ["".join(row.astype(str)) for row in task.desc[1:-1]] == list(MAP)
    assert list(STANDS) == task.locs


def test_every_step_of_every_state_reads_right(say, adapter):
    task = gym.make("Taxi-v4").unwrapped
    listed, said = list(map(adapter.describe, adapter.events())), set()
    for before in range(500):
        for action in range(6):
            ((_, after, reward, end),) = task.P[before][action]
            caption = say(adapter, before, action, after, reward=reward, end=end)
            said.add(caption)
            moved = before // 20 != after // 20
            assert moved == any(words in caption for words in ("closer", "away", "arrive"))
            assert ("in vain" in caption) == (reward == -10)
            assert ("against a wall" in caption) == (action < PICKUP and not moved)
    assert sorted(listed) == sorted(said), "what can happen is listed, once, and nothing else is"


def test_the_shortest_path_comes_closer_in_each_step(say, adapter):
    way = [(2, 0), (2, 1), (2, 2), (2, 3), (3, 3), (4, 3)]
    captions = [
        say(adapter, state(*a, IN_TAXI, BLUE), 0, state(*b, IN_TAXI, BLUE), reward=-1) for a, b in pairwise(way)
    ]
    assert [caption.split(": ")[-1] for caption in captions[:-1]] == [
        f"{n} square{'s' * (n > 1)} to go." for n in (4, 3, 2, 1)
    ]
    assert [adapter.oracle(caption) for caption in captions] == [0.3] * 5


def test_success(adapter):
    assert adapter.succeeded(np.array([8, -200], np.float32), last_steps(True, False)).tolist() == [True, False]
