"""The adapter of last resort says something of any space, in a bounded vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_spaces import any_space

from laurel.envs.base import Transitions
from laurel.envs.captioner import Captioner
from laurel.envs.generic import MAX_PARTS, GenericAdapter

thorough = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rows(adapter, observations, *, action=None, reward=0.0, terminated=False):
    after = np.stack([adapter.pack_one(observation) for observation in observations])
    n = len(after)
    action = np.zeros(n, dtype=np.int64) if action is None else np.asarray(action)
    flags = np.full(n, terminated)
    return Transitions(after, action, np.full(n, reward, np.float32), after, flags, np.zeros(n, dtype=bool))


def said(adapter, *observations, **options):
    events = adapter.encode(rows(adapter, observations, **options))
    return [adapter.describe(int(event)) for event in events]


def make(space, action_space=None, **options):
    return GenericAdapter("Any-v0", space, action_space or spaces.Discrete(2), **options)


@thorough
@given(
    any_space,
    st.one_of(st.just(spaces.Discrete(3)), st.just(spaces.Box(-1, 1, (3,)))),
    st.booleans(),
    st.integers(0, 99),
)
def test_it_captions_any_space(space, action_space, with_action, seed):
    space.seed(seed)
    action_space.seed(seed)
    adapter = make(space, action_space, with_action=with_action)
    observations = [space.sample() for _ in range(5)]
    actions = np.stack([np.asarray(action_space.sample()) for _ in range(5)])
    batch = rows(adapter, observations, action=actions)
    events = adapter.encode(batch)
    assert events.min() >= 0
    captions = [adapter.describe(int(event)) for event in events]
    assert all(caption.endswith(".") and caption[0].isupper() and "  " not in caption for caption in captions)
    assert all(caption.count(" is ") <= MAX_PARTS + 2 for caption in captions)
    captioner = Captioner(adapter, enumerate_events=True)
    assert [captioner.texts[i] for i in captioner.ids(batch)] == captions


def test_numbers_beyond_all_bounds_do_not_matter():
    adapter = make(spaces.Box(-1, 1, (3,)))
    assert said(adapter, [np.nan, np.inf, -np.inf]) == [
        "Number 1 is very high, number 2 is very high, number 3 is very low."
    ]
    adapter = make(spaces.Discrete(4))
    assert adapter.describe(int(adapter.encode(rows(adapter, [9]))[0])) == "The state is 3."
    huge = make(spaces.Dict({str(i): spaces.Discrete(2**40) for i in range(9)}))
    assert said(huge, {str(i): 2**39 * (i % 2) for i in range(9)})[0].startswith("0 is near zero, 1 is very positive,")


@pytest.mark.parametrize(
    ("space", "observation", "caption"),
    [
        (spaces.Discrete(500), 321, "The state is 321."),
        (spaces.Discrete(3, start=-1), -1, "The state is -1."),
        (spaces.Discrete(20_000), 19_999, "The state is very high."),
        (spaces.MultiDiscrete([3, 200]), [2, 5], "Number 1 is 2, number 2 is very low."),
        (spaces.MultiBinary(2), [1, 0], "Number 1 is 1, number 2 is 0."),
        (spaces.Box(0, 1, (1,)), [0.5], "The state is middling."),
        (spaces.Box(-np.inf, np.inf, (2,)), [0.05, -3], "Number 1 is near zero, number 2 is very negative."),
        (spaces.Tuple([spaces.Discrete(32), spaces.Discrete(11)]), (20, 4), "Part 1 is 20, part 2 is 4."),
        (
            spaces.Dict({"left_arm": spaces.Box(-1, 1, (2,)), "on": spaces.Discrete(2)}),
            {"left_arm": [-0.9, 0.9], "on": 1},
            "Left arm 1 is very low, left arm 2 is very high, on is 1.",
        ),
    ],
)
def test_parts_are_named_by_value_or_level(space, observation, caption):
    assert said(make(space), observation) == [caption]


@pytest.mark.parametrize("shape", [(9, 12), (9, 12, 3), (4, 9, 12)])
def test_pictures_are_summed_up(shape):
    adapter = make(spaces.Box(0, 255, shape, np.uint8))
    dark = np.zeros(shape, np.uint8)
    bright = np.full(shape, 250, np.uint8)
    right = dark.copy()
    right[(..., slice(8, 12), slice(None)) if shape[-1] == 3 else (..., slice(8, 12))] = 255
    assert said(adapter, dark, bright, right) == [
        "The picture is very dark, brightest nowhere in particular.",
        "The picture is very bright, brightest nowhere in particular.",
        "The picture is dark, brightest on the right.",
    ]


def test_long_rows_of_numbers_are_summed_up():
    adapter = make(spaces.Dict({"lidar": spaces.Box(0, 10, (90,)), "speed": spaces.Box(0, 1, ())}))
    lidar = np.zeros(90, np.float32)
    lidar[:30] = 10
    assert said(adapter, {"lidar": lidar, "speed": 0.1}) == [
        "Lidar is low on the whole, highest in the first third, speed is very low."
    ]


def test_the_last_caption_has_the_reward():
    adapter = make(spaces.Discrete(2))
    assert said(adapter, 1, terminated=True, reward=2) == ["The state is 1. The episode ends with a positive reward."]
    assert said(adapter, 1, terminated=True, reward=-2) == ["The state is 1. The episode ends with a negative reward."]
    assert said(adapter, 1, terminated=True) == ["The state is 1. The episode ends without a reward."]
    assert said(adapter, 1, reward=5) == ["The state is 1."]


def test_the_action_is_named_if_asked_for():
    assert said(make(spaces.Discrete(2), spaces.Discrete(9), with_action=True), 1, action=[7]) == [
        "The action is 7. The state is 1."
    ]
    adapter = make(spaces.Discrete(2), spaces.Box(-1, 1, (3,)), with_action=True)
    assert said(adapter, 1, action=[[1, -1, 0]]) == ["Action 1 is very high, action 2 is very low. The state is 1."]


def test_what_captions_leave_out_is_reported() -> None:
    space = spaces.Dict({"joints": spaces.Box(-1, 1, (MAX_PARTS + 2,)), "mission": spaces.Text(20)})
    joints = f"They leave out joints {MAX_PARTS + 1} and 1 further part."
    texts = "Neither captions nor agents see the text of mission."
    assert GenericAdapter("Own-v0", space, spaces.Discrete(2)).left_out == f"{joints} {texts}"
    assert GenericAdapter("Own-v0", spaces.Discrete(3), spaces.Discrete(2)).left_out == ""
