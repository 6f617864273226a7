"""MiniGrid's captions against the Python environment, played by hand."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Ball, Box, Door, Floor, Goal, Key, Lava
from minigrid.minigrid_env import MiniGridEnv

from last_steps import last_steps
from laurel.envs import adapter_for, minigrid
from laurel.envs.base import Transitions
from laurel.envs.minigrid import MiniGridAdapter
from laurel.errors import EnvError
from laurel.params import EnvParams

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)
_HOW = ("complete the mission", "fail")


class Stage(MiniGridEnv):
    """A walled field, the agent at (1, 1) looking right, and things where the test puts them."""

    def __init__(self, things, width=9, height=3, max_steps=100):
        self.things = things
        mission = MissionSpace(mission_func=lambda: "play")
        super().__init__(mission_space=mission, width=width, height=height, max_steps=max_steps)

    def _gen_grid(self, width, height):
        self.grid = Grid(width, height)
        self.grid.wall_rect(0, 0, width, height)
        for (x, y), thing in self.things.items():
            self.put_obj(thing, x, y)
        self.agent_pos, self.agent_dir = (1, 1), 0
        self.mission = "play"


def play(env, actions, *, env_id="MiniGrid-DoorKey-5x5-v0", with_action=False):
    """Return the captions of a sequence of actions."""
    adapter = MiniGridAdapter(env_id, env.observation_space, env.action_space, with_action=with_action)
    observation, _ = env.reset(seed=0)
    captions = []
    for action in actions:
        after, reward, terminated, truncated, _ = env.step(action)
        row = Transitions(
            adapter.pack_one(observation)[None],
            np.array([action]),
            np.array([reward], np.float32),
            adapter.pack_one(after)[None],
            np.array([terminated]),
            np.array([truncated]),
        )
        event = int(adapter.encode(row)[0])
        assert event in set(adapter.events()), adapter.describe(event)
        captions.append(adapter.describe(event))
        observation = after
    return captions


def test_the_numbers_are_minigrids_own():
    assert [OBJECT_TO_IDX[name] for name in minigrid.OBJECTS] == list(range(11))
    assert [COLOR_TO_IDX[name] for name in minigrid.COLORS] == list(range(6))
    assert tuple(STATE_TO_IDX[name] for name in ("open", "closed", "locked")) == (
        minigrid.OPEN,
        minigrid.CLOSED,
        minigrid.LOCKED,
    )
    assert [action.value for action in Actions] == [LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE]
    assert [action.name for action in Actions] == ["left", "right", "forward", "pickup", "drop", "toggle", "done"]


def test_a_door_key_task_from_beginning_to_end():
    env = Stage({(2, 1): Key("yellow"), (4, 1): Door("yellow", is_locked=True), (6, 1): Goal()})
    script = [
        (DONE, "Nothing happens."),
        (LEFT, "You turn."),
        (FORWARD, "You bump into a wall."),
        (LEFT, "You turn."),
        (RIGHT, "You see the yellow key."),
        (RIGHT, "You turn."),
        (FORWARD, "You bump into the yellow key."),
        (TOGGLE, "Nothing happens."),
        (DROP, "Nothing happens."),
        (PICKUP, "You pick up the yellow key."),
        (PICKUP, "Nothing happens."),
        (FORWARD, "You move forward."),
        (DROP, "You put down the yellow key."),
        (PICKUP, "You pick up the yellow key."),
        (FORWARD, "You move forward."),
        (DROP, "Nothing happens."),
        (FORWARD, "You bump into the yellow door."),
        (PICKUP, "Nothing happens."),
        (TOGGLE, "You unlock the yellow door with the key."),
        (TOGGLE, "You close the yellow door."),
        (FORWARD, "You bump into the yellow door."),
        (TOGGLE, "You open the yellow door."),
        (FORWARD, "You go through the yellow door."),
        (FORWARD, "You move forward."),
        (FORWARD, "You reach the goal."),
    ]
    assert play(env, [action for action, _ in script]) == [caption for _, caption in script]


def test_what_comes_into_view_is_captioned_once():
    env = Stage({(3, 1): Door("yellow"), (7, 1): Goal()})
    assert play(env, [FORWARD, TOGGLE, FORWARD, LEFT, RIGHT]) == [
        "You move forward.",
        "You open the yellow door.",
        "You go through the yellow door.",
        "You turn.",
        "You see the goal.",
    ]


def test_a_locked_door_needs_the_key_of_its_colour():
    env = Stage({(2, 1): Key("red"), (3, 1): Door("blue", is_locked=True)})
    assert play(env, [PICKUP, FORWARD, TOGGLE], env_id="MiniGrid-KeyCorridorS3R1-v0") == [
        "You pick up the red key.",
        "You move forward.",
        "You cannot open the blue door: it is locked.",
    ]


def test_boxes_balls_and_floors():
    env = Stage({(2, 1): Floor("green"), (3, 1): Box("purple", contains=Ball("grey"))})
    assert play(env, [FORWARD, FORWARD, TOGGLE, FORWARD, PICKUP, TOGGLE, DROP], env_id="BabyAI-OpenBox-v0") == [
        "You move forward.",
        "You bump into the purple box.",
        "You open the purple box.",
        "You bump into the grey ball.",
        "You pick up the grey ball.",
        "Nothing happens.",
        "You put down the grey ball.",
    ]


def test_lava_ends_it():
    captions = play(Stage({(3, 1): Lava()}), [FORWARD, FORWARD], env_id="MiniGrid-LavaCrossingS9N1-v0")
    assert captions == ["You move forward.", "You fall into the lava."]


def test_truncation_needs_no_caption():
    captions = play(Stage({}, max_steps=2), [FORWARD, FORWARD])
    assert captions == ["You move forward.", "You move forward."]


def test_the_goal_reached_in_the_last_step_counts():
    env = Stage({(3, 1): Goal()}, max_steps=2)
    assert play(env, [FORWARD, FORWARD]) == ["You move forward.", "You reach the goal."]


def test_a_mission_completed_by_an_action():
    env = gym.make("MiniGrid-UnlockPickup-v0")
    adapter = adapter_for(EnvParams(id="MiniGrid-UnlockPickup-v0"))
    env.reset(seed=1)
    task = env.unwrapped
    x, y = task.obj.cur_pos
    task.agent_pos, task.agent_dir = (x - 1, y), 0
    before = adapter.pack_one(task.gen_obs())
    after, reward, terminated, truncated, _ = env.step(PICKUP)
    row = Transitions(
        before[None], np.array([PICKUP]), np.float32([reward]), adapter.pack_one(after)[None], np.array([terminated]),
        np.array([truncated]),
    )  # fmt: skip
    assert [adapter.describe(int(event)) for event in adapter.encode(row)] == [
        f"You pick up the {task.obj.color} box and complete the mission."
    ]


def test_walking_into_an_obstacle_fails_the_mission():
    adapter = adapter_for(EnvParams(id="MiniGrid-Dynamic-Obstacles-5x5-v0"))
    env = Stage({(2, 1): Ball("blue")})
    observation, _ = env.reset()
    row = adapter.pack_one(observation)[None]
    end, going = np.array([True]), np.array([False])
    rows = Transitions(row, np.array([FORWARD]), np.float32([-1]), row, end, going)
    assert adapter.describe(int(adapter.encode(rows)[0])) == "You bump into the blue ball and fail."


@pytest.mark.parametrize(
    ("env_id", "front", "carried", "action", "reward", "said"),
    [
        (
            "MiniGrid-GoToDoor-5x5-v0",
            (4, 2, 1),
            (1, 0, 0),
            DONE,
            1.0,
            "You go to the blue door and complete the mission.",
        ),
        ("MiniGrid-GoToDoor-5x5-v0", (4, 2, 1), (1, 0, 0), DONE, 0.0, "You go to the blue door and fail."),
        ("MiniGrid-GoToDoor-5x5-v0", (1, 0, 0), (1, 0, 0), DONE, 0.0, "You fail."),
        ("BabyAI-GoToRedBall-v0", (6, 0, 0), (1, 0, 0), LEFT, 1.0, "You go to the red ball and complete the mission."),
        ("MiniGrid-GoToObject-6x6-N2-v0", (2, 5, 0), (1, 0, 0), DONE, 1.0, "You complete the mission."),
    ],
)
def test_a_mission_ends_in_front_of_something(env_id, front, carried, action, reward, said):
    adapter = adapter_for(EnvParams(id=env_id))
    after = np.zeros((1, adapter.observation_size), np.uint8)
    after[0, 3 * (7 * 3 + 5) : 3 * (7 * 3 + 5) + 3], after[0, 3 * (7 * 3 + 6) : 3 * (7 * 3 + 6) + 3] = front, carried
    before = after.copy()
    before[0, 3 * (7 * 3 + 5)] = 1
    yes, no = np.array([True]), np.array([False])
    rows = Transitions(before, np.array([action]), np.float32([reward]), after, yes, no)
    event = int(adapter.encode(rows)[0])
    assert adapter.describe(event) == said
    assert adapter.says_success(said) == (reward > 0)
    assert event in set(adapter.events())


def test_the_action_is_named_if_asked_for():
    env = Stage({(2, 1): Key("yellow"), (4, 1): Door("yellow", is_locked=True), (6, 1): Goal()})
    assert play(env, [LEFT, FORWARD, RIGHT, PICKUP, DONE], with_action=True) == [
        "You try to turn left. You turn.",
        "You try to move forward. You bump into a wall.",
        "You try to turn right. You turn.",
        "You try to pick up. You pick up the yellow key.",
        "You try to finish. Nothing happens.",
    ]


@pytest.mark.parametrize(
    ("env_id", "endings"),
    [
        ("RedBlueDoors-6x6", {"You open the blue door and complete the mission.", "You open the blue door and fail."}),
        ("ObstructedMaze-1Dlhb", {"You pick up the blue ball and complete the mission."}),
        (
            "MemoryS7",
            {f"You go to the green {thing} and {how}." for thing in ("key", "ball") for how in _HOW},
        ),
    ],
)
def test_only_endings_that_the_rules_allow_are_listed(env_id, endings):
    adapter = adapter_for(EnvParams(id=f"MiniGrid-{env_id}-v0"))
    listed = {adapter.describe(event) for event in adapter.events()}
    assert {caption for caption in listed if caption.endswith((" mission.", " fail."))} == endings
    assert "You see the goal." not in listed


@pytest.mark.parametrize("env_id", ["RedBlueDoors-6x6", "GoToDoor-5x5", "GoToObject-6x6-N2", "PutNear-6x6-N2"])
def test_captions_that_occur_are_listed(say, env_id):
    env_id = f"MiniGrid-{env_id}-v0"
    adapter, env, rng = adapter_for(EnvParams(id=env_id)), gym.make(env_id), np.random.default_rng(0)
    listed = {adapter.describe(event) for event in adapter.events()}
    observation, _ = env.reset(seed=0)
    for _ in range(1500):
        action = int(rng.choice(7, p=[0.13, 0.13, 0.34, 0.14, 0.08, 0.15, 0.03]))
        after, reward, terminated, truncated, _ = env.step(action)
        rows = adapter.pack_one(observation), action, adapter.pack_one(after)
        assert say(adapter, *rows, reward=reward, end=terminated) in listed
        observation = env.reset()[0] if terminated or truncated else after


def test_nothing_is_picked_up_in_the_list_of_a_task_where_nothing_can_be():
    """The memory task takes "pick up" for "toggle"."""
    adapter = adapter_for(EnvParams(id="MiniGrid-MemoryS7-v0"))
    listed = " ".join(map(adapter.describe, adapter.events()))
    assert "You go to the green key and fail." in listed
    assert "pick up" not in listed
    assert "put down" not in listed


@pytest.mark.parametrize(("env_id", "locked"), [("MultiRoom-N2-S4", False), ("KeyCorridorS3R1", True)])
def test_locked_doors_are_listed_only_where_there_is_a_key(env_id, locked):
    adapter = adapter_for(EnvParams(id=f"MiniGrid-{env_id}-v0"))
    listed = {adapter.describe(event) for event in adapter.events()}
    told = {"You cannot open the red door: it is locked.", "You unlock the red door with the key."}
    assert listed & told == (told if locked else set())
    assert "You open the red door." in listed


def test_failing_is_worse_than_doing_nothing():
    ends = {"LavaGapS5": "You fall into the lava.", "RedBlueDoors-6x6": "You open the blue door and fail."}
    for env_id, end in ends.items():
        adapter = adapter_for(EnvParams(id=f"MiniGrid-{env_id}-v0"))
        assert adapter.oracle(end) == -1.0 < adapter.oracle("Nothing happens.") == 0.0


def test_success_and_progress():
    adapter = adapter_for(EnvParams(id="MiniGrid-DoorKey-5x5-v0"))
    returns = np.array([0.9, 0.0], np.float32)
    assert adapter.succeeded(returns, last_steps(True, False)).tolist() == [True, False]
    paid = {caption for caption in map(adapter.describe, adapter.events()) if adapter.oracle(caption)}
    assert paid == {
        "You pick up the yellow key.",
        "You unlock the yellow door with the key.",
        "You reach the goal.",
    }


def test_another_view_is_refused():
    with pytest.raises(EnvError, match="7x7 view"):
        adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0", kwargs={"agent_view_size": 5}))


def test_packing_keeps_image_and_direction():
    env = gym.make("MiniGrid-DoorKey-5x5-v0")
    adapter = adapter_for(EnvParams(id="MiniGrid-DoorKey-5x5-v0"))
    observation, _ = env.reset(seed=3)
    row = adapter.pack_one(observation)
    assert row.dtype == np.uint8
    np.testing.assert_array_equal(row[:147].reshape(7, 7, 3), observation["image"])
    assert row[147] == observation["direction"]
    batch = {"image": observation["image"][None], "direction": np.array([observation["direction"]])}
    np.testing.assert_array_equal(adapter.pack(batch), row[None])
    features = adapter.features(row[None])
    assert features.shape == (1, 147)
    assert features.max() <= 1.0


def cell(env, position):
    thing = env.grid.get(*position)
    if thing is None:
        return None
    name = {"wall": "a wall", "goal": "the goal"}.get(thing.type, f"the {thing.color} {thing.type}")
    return thing.type, name, getattr(thing, "is_open", None), getattr(thing, "is_locked", None)


def truth(env, action):
    """Step an environment and say what it did from its own state: the slow, obvious way."""
    front = tuple(int(i) for i in env.front_pos)
    before, carried, position = cell(env, front), env.carrying, tuple(env.agent_pos)
    after, reward, terminated, truncated, _ = env.step(action)
    now = cell(env, front)
    kind, name = before[:2] if before else (None, None)
    if terminated and kind == "goal" and action == FORWARD:
        text = "You reach the goal."
    elif terminated and kind == "lava":
        text = "You fall into the lava."
    elif env.carrying is not None and carried is None:
        text = f"You pick up {name}."
    elif env.carrying is None and carried is not None:
        text = f"You put down the {carried.color} {carried.type}."
    elif kind == "door" and action == TOGGLE:
        if before[3]:
            text = f"You unlock {name} with the key." if now[2] else f"You cannot open {name}: it is locked."
        else:
            text = f"You open {name}." if now[2] else f"You close {name}."
    elif kind == "box" and action == TOGGLE:
        text = f"You open {name}."
    elif action == FORWARD and tuple(env.agent_pos) == position and not reward > 0:
        text = f"You bump into {name}."
    elif terminated:
        ahead = cell(env, tuple(int(i) for i in env.front_pos))
        text = f"You go to {ahead[1]}." if ahead and ahead[0] in ("door", "key", "ball", "box") else "You."
    elif action == FORWARD:
        text = f"You go through {name}." if kind == "door" else "You move forward."
    else:
        text = "You turn." if action in (LEFT, RIGHT) else "Nothing happens."
    if terminated and not text.endswith(("the goal.", "the lava.")):
        text = text[:-1] + ("" if text == "You." else " and") + (" complete the mission." if reward > 0 else " fail.")
    return text, after, reward, terminated, truncated


@pytest.mark.parametrize(
    "env_id",
    [
        "MiniGrid-DoorKey-5x5-v0",
        "MiniGrid-KeyCorridorS3R1-v0",
        "MiniGrid-UnlockPickup-v0",
        "MiniGrid-MultiRoom-N2-S4-v0",
        "MiniGrid-LavaCrossingS9N1-v0",
        "MiniGrid-ObstructedMaze-1Dlh-v0",
        "MiniGrid-RedBlueDoors-6x6-v0",
    ],
)
def test_captions_agree_with_the_environments_own_state(say, env_id):
    adapter = adapter_for(EnvParams(id=env_id))
    env = gym.make(env_id).unwrapped
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    met = set()
    for _ in range(3000):
        action = int(rng.choice(7, p=[0.14, 0.14, 0.36, 0.12, 0.06, 0.16, 0.02]))
        text, after, reward, terminated, truncated = truth(env, action)
        said = say(
            adapter, adapter.pack_one(observation), action, adapter.pack_one(after), reward=reward, end=terminated
        )
        if said.startswith("You see "):
            assert text.startswith(("You move", "You turn", "You go through"))
            thing = OBJECT_TO_IDX[said.split()[-1].rstrip(".")]
            assert (after["image"][..., 0] == thing).any()
            assert not (observation["image"][..., 0] == thing).any()
        else:
            assert said == text
        met.add(said.split()[1])
        observation = env.reset()[0] if terminated or truncated else after
    assert len(met) >= 4
