"""The adapters of classic control and the lunar lander: words for numbers."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from last_steps import last_steps
from laurel.envs import adapter_for
from laurel.feedback.known_answers import by_progress
from laurel.params import EnvParams


def adapter_of(env_id, with_action=False):
    return adapter_for(EnvParams(id=env_id), with_action=with_action)


@pytest.mark.parametrize(
    ("after", "end", "caption"),
    [
        ((-0.52, 0.0), False, "The car stands still, at the bottom of the valley."),
        ((-0.52, 0.01), False, "The car rolls to the right slowly, at the bottom of the valley."),
        ((-0.52, -0.05), False, "The car rolls to the left fast, at the bottom of the valley."),
        ((-0.2, 0.02), False, "The car climbs the right slope at a medium speed, low down."),
        ((0.1, 0.04), False, "The car climbs the right slope fast, halfway up."),
        ((0.3, -0.01), False, "The car rolls down the right slope slowly, close to the flag."),
        ((-0.8, -0.02), False, "The car climbs the left slope at a medium speed, low down."),
        ((-1.0, 0.04), False, "The car rolls down the left slope fast, high up."),
        ((-1.0, 0.0), False, "The car stands still on the left slope, high up."),
        ((-1.2, 0.0), False, "The car hits the wall at the far left."),
        ((0.5, 0.03), True, "The car reaches the flag on the right hill."),
    ],
)
@pytest.mark.parametrize("env_id", ["MountainCar-v0", "MountainCarContinuous-v0"])
def test_mountain_car(say, env_id, after, end, caption):
    action = 1 if env_id == "MountainCar-v0" else np.float32([0.05])
    assert say(adapter_of(env_id), (0, 0), action, after, end=end) == caption
    assert (
        say(adapter_of(env_id, with_action=True), (0, 0), action, after, end=end) == f"You push not at all. {caption}"
    )


@pytest.mark.parametrize(("push", "way"), [(-0.9, "left"), (0.05, "not at all"), (0.9, "right")])
def test_mountain_car_pushes(say, push, way):
    still = "The car stands still, at the bottom of the valley."
    action = np.float32([push])
    assert say(adapter_of("MountainCarContinuous-v0", True), (0, 0), action, (-0.52, 0)) == f"You push {way}. {still}"
    index = ("left", "not at all", "right").index(way)
    assert say(adapter_of("MountainCar-v0", True), (0, 0), index, (-0.52, 0)) == f"You push {way}. {still}"


def test_mountain_car_progress_is_energy():
    adapter = adapter_of("MountainCar-v0")
    order = [
        "The car stands still, at the bottom of the valley.",
        "The car rolls to the right fast, at the bottom of the valley.",
        "The car climbs the right slope fast, halfway up.",
        "The car reaches the flag on the right hill.",
    ]
    worth = [adapter.oracle(caption) for caption in order]
    assert worth == sorted(worth)
    assert len(set(worth)) == 4


def test_mountain_car_progress_mostly_agrees_with_the_steps_that_remain(say):
    """Energy leaves the direction out of account. The steps are those of the best policy, by value iteration."""
    place, speed = np.linspace(-1.2, 0.6, 181), np.linspace(-0.07, 0.07, 141)
    x, v = np.meshgrid(place, speed, indexing="ij")
    arrivals = []
    for force in (-0.001, 0.0, 0.001):
        after = np.clip(v + force - 0.0025 * np.cos(3 * x), -0.07, 0.07)
        where = np.clip(x + after, -1.2, 0.6)
        arrivals.append((where, np.where(where <= -1.2, 0.0, after)))
    remaining = np.zeros_like(x)
    for _ in range(220):
        ways = [
            np.where(
                where >= 0.5, 0.0, map_coordinates(remaining, [(where + 1.2) / 0.01, (after + 0.07) / 0.001], order=1)
            )
            for where, after in arrivals
        ]
        remaining = np.where(x >= 0.5, 0.0, 1 + np.minimum.reduce(ways))
    assert 95 < remaining[68, 70] < 115, "from rest at the bottom"
    adapter, of_caption = adapter_of("MountainCar-v0"), {}
    for i, j in np.ndindex(*x.shape):
        caption = say(adapter, (0, 0), 1, (x[i, j], v[i, j]), end=bool(x[i, j] >= 0.5))
        of_caption.setdefault(caption, []).append(remaining[i, j])
    steps = {caption: np.mean(found) for caption, found in of_caption.items()}
    pairs = by_progress(adapter, 240, seed=0).pairs
    agree = [(steps[pair.first] < steps[pair.second]) == (p_first == 1) for pair, p_first in pairs]
    assert 0.8 < np.mean(agree) < 0.95


@pytest.mark.parametrize(
    ("after", "end", "caption"),
    [
        ((0, 0, 0, 0), False, "The pole is upright and steady; the cart is near the middle."),
        ((1, 0, 0.02, 0.9), False, "The pole is upright but tips to the right; the cart is right of the middle."),
        (
            (-2, 0, -0.05, -0.9),
            False,
            "The pole leans slightly to the left and is falling; the cart is close to the left end of the track.",
        ),
        (
            (2, 0, 0.15, -0.9),
            False,
            "The pole leans far to the right but swings back; the cart is close to the right end of the track.",
        ),
        ((-1, 0, 0.15, 0.1), False, "The pole leans far to the right and stays there; the cart is left of the middle."),
        ((0, 0, 0.22, 1), True, "The pole falls over to the right."),
        ((0, 0, -0.22, 1), True, "The pole falls over to the left."),
        ((2.5, 0, 0.1, 1), True, "The cart runs off the right end of the track."),
        ((-2.5, 0, 0.1, 1), True, "The cart runs off the left end of the track."),
    ],
)
def test_cartpole(say, after, end, caption):
    assert say(adapter_of("CartPole-v1"), (0, 0, 0, 0), 1, after, reward=1, end=end) == caption
    assert (
        say(adapter_of("CartPole-v1", True), (0, 0, 0, 0), 0, after, reward=1, end=end) == f"You push left. {caption}"
    )


def test_cartpole_succeeds_if_it_reaches_the_limit():
    adapter = adapter_of("CartPole-v1")
    assert adapter.succeeded(np.array([500, 500], np.float32), last_steps(False, True)).tolist() == [True, False]


def acrobot(a, b):
    return (math.cos(a), math.sin(a), math.cos(b), math.sin(b), 0, 0)


@pytest.mark.parametrize(
    ("before", "after", "end", "caption"),
    [
        (acrobot(0, 0), acrobot(0, 0), False, "The tip hangs at the bottom and hardly moves."),
        (acrobot(0, 0), acrobot(0.9, 0), False, "The tip is low and rises fast."),
        (acrobot(1.2, 0), acrobot(1.25, 0), False, "The tip is somewhat below the middle and rises slowly."),
        (acrobot(2.0, 0), acrobot(1.7, 0), False, "The tip is about the middle and falls fast."),
        (acrobot(2.06, 0), acrobot(2.0, 0), False, "The tip is high, close to the line and falls slowly."),
        (acrobot(2.0, 0), acrobot(2.2, 0), True, "The tip swings above the line."),
    ],
)
def test_acrobot(say, before, after, end, caption):
    assert say(adapter_of("Acrobot-v1"), before, 0, after, reward=-1, end=end) == caption
    named = adapter_of("Acrobot-v1", True)
    assert say(named, before, 0, after, end=end) == f"You apply negative torque. {caption}"
    assert say(named, before, 1, after, end=end) == f"You apply no torque. {caption}"


def test_the_acrobots_line_is_where_its_episodes_end(roll):
    walk = roll("Acrobot-v1", "gymnasium")
    env = gym.make("Acrobot-v1").unwrapped
    env.reset(seed=0)
    for a, b, above in [(2.0, 0.0, False), (2.2, 0.0, True), (math.pi, 0.0, True), (0.0, math.pi, False)]:
        env.state = np.array([a, b, 0.0, 0.0])
        assert env._terminal() == above
        height = -math.cos(a) - math.cos(a + b)
        assert (height > 1) == above
    assert not walk.transitions.terminated.any()


def lander(x=0.0, y=1.0, vy=0.0, angle=0.0, legs=0):
    return (x, y, 0, vy, angle, 0, legs >= 1, legs >= 2)


@pytest.mark.parametrize(
    ("after", "reward", "end", "caption"),
    [
        (lander(vy=-0.1), 0, False, "The lander descends gently, high up, upright, over the landing pad."),
        (lander(x=0.5, y=0.5, vy=-0.3, angle=0.2), 0, False,
         "The lander descends fast, at medium height, tilted to the left, to the right of the landing pad."),
        (lander(x=-0.5, y=0.1, vy=-0.9, angle=-0.6), 0, False,
         "The lander falls dangerously fast, low, tilted far to the right, to the left of the landing pad."),
        (lander(vy=0.3), 0, False, "The lander climbs, high up, upright, over the landing pad."),
        (lander(), 0, False, "The lander hovers, high up, upright, over the landing pad."),
        (lander(y=0, legs=1), 0, False, "The lander stands with one leg on the ground, upright, over the landing pad."),
        (lander(y=0, legs=2, vy=-0.1), 0, False,
         "The lander stands with both legs on the ground, upright, over the landing pad."),
        (lander(y=0, legs=2, vy=0.1), 0, False,
         "The lander climbs, with both legs on the ground, upright, over the landing pad."),
        (lander(y=0, legs=2), -100, True, "The lander crashes."),
        (lander(x=1.01), -100, True, "The lander flies out of sight."),
        (lander(y=0, legs=2), 100, True, "The lander comes to rest safely on the landing pad."),
        (lander(x=0.6, y=0, legs=2), 100, True, "The lander comes to rest safely, but beside the landing pad."),
    ],
)  # fmt: skip
def test_lunar_lander(say, after, reward, end, caption):
    assert say(adapter_of("LunarLander-v3"), lander(), 2, after, reward=reward, end=end) == caption
    named = adapter_of("LunarLander-v3", True)
    assert say(named, lander(), 2, after, reward=reward, end=end) == f"You fire the main engine. {caption}"


@pytest.mark.parametrize(
    ("throttles", "engines"),
    [
        ((-1, 0), "no engine"),
        ((-1, -0.8), "the left engine"),
        ((0.2, 0.3), "the main engine"),
        ((-1, 0.8), "the right engine"),
        ((0.2, -0.8), "the main and the left engine"),
        ((0.2, 0.8), "the main and the right engine"),
    ],
)
def test_lunar_lander_throttles(say, throttles, engines):
    adapter = adapter_of("LunarLanderContinuous-v3", True)
    assert say(adapter, lander(), np.float32(throttles), lander()).startswith(f"You fire {engines}. The lander hovers")


def test_rest_beside_the_pad_is_progress_as_the_environment_pays_for_it():
    adapter = adapter_of("LunarLander-v3")
    order = [
        "The lander crashes.",
        "The lander hovers, high up, upright, over the landing pad.",
        "The lander stands with both legs on the ground, upright, to the left of the landing pad.",
        "The lander comes to rest safely, but beside the landing pad.",
        "The lander stands with both legs on the ground, upright, over the landing pad.",
        "The lander comes to rest safely on the landing pad.",
    ]
    worth = [adapter.oracle(caption) for caption in order]
    assert worth == sorted(worth)
    assert worth[2] < worth[3] < worth[4]


def test_the_landers_heuristic_lands_and_its_random_pilot_crashes(roll, say):
    from gymnasium.envs.box2d.lunar_lander import heuristic

    adapter = adapter_of("LunarLander-v3")
    env = gym.make("LunarLander-v3")
    before, _ = env.reset(seed=3)
    total, captions, ended = 0.0, [], False
    while not ended:
        action = heuristic(env.unwrapped, before)
        after, reward, terminated, truncated, _ = env.step(action)
        captions.append(say(adapter, before, action, after, reward=reward, end=terminated))
        total += float(reward)
        before, ended = after, terminated or truncated
    assert captions[-1] == "The lander comes to rest safely on the landing pad."
    assert any("descends" in caption for caption in captions)
    assert any("legs on the ground" in caption for caption in captions)
    assert adapter.succeeded(np.float32([total]), last_steps(True)).tolist() == [True]
    walk = roll("LunarLander-v3", "gymnasium")
    rows = walk.transitions[walk.valid & walk.transitions.terminated]
    ends = {walk.adapter.describe(int(event)) for event in walk.adapter.encode(rows)}
    assert ends
    assert ends <= {"The lander crashes.", "The lander flies out of sight."}
