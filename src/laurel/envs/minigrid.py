"""MiniGrid: captions read from the agent's own cell and the cell before it.

The partial view is 7x7x3 (object, colour, state), the agent looking up from the bottom middle; its own
cell shows what it carries, the cell before it the state of a door
(https://minigrid.farama.org/api/wrapper/, `minigrid.core.constants`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.envs.base import Array, BoolArray, FloatArray, IntArray, Room, Transitions

OBJECTS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
EMPTY, WALL, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA = 1, 2, 3, 4, 5, 6, 7, 8, 9
OPEN, CLOSED, LOCKED = 0, 1, 2
LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)
ACTIONS = ("turn left", "turn right", "move forward", "pick up", "drop", "toggle", "done")

VIEW = 7
CARRIED = (3, 6)
FRONT = (3, 5)
IMAGE = VIEW * VIEW * 3

NOTHING, SUCCEED, FAIL, PICK_UP, PUT_DOWN, UNLOCK, OPEN_DOOR, CLOSE_DOOR, OPEN_BOX, TRY_LOCKED = range(10)
BUMP, PASS_DOOR, MOVE, TURN, SEE, REACH_GOAL, FALL_IN_LAVA = range(10, 17)
SHAPE = (17, len(OBJECTS), len(COLORS), len(ACTIONS) + 1)


class MiniGridRoom(Room):
    """All of the MiniGrid family; the goal is said by the words of each task."""

    ids = ("MiniGrid-*",)

    def __init__(
        self, env_id: str, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, with_action: bool = False
    ) -> None:
        super().__init__(env_id, _without_mission(observation_space), action_space, with_action=with_action)
        task = _task(env_id)
        self.description = task.description
        self.goal = task.goal
        self._task = task

    # -- observations: image (147) and direction (1) as one row of bytes --------------------------
    @property
    def observation_size(self) -> int:
        return IMAGE + 1

    @property
    def observation_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    def pack(self, observation: Any) -> Array:
        image = np.asarray(observation["image"])
        rows = np.empty((len(image), IMAGE + 1), dtype=np.uint8)
        rows[:, :IMAGE] = image.reshape(len(image), IMAGE)
        rows[:, IMAGE] = observation["direction"]
        return rows

    def pack_one(self, observation: Any) -> Array:
        return np.append(observation["image"].reshape(-1), observation["direction"]).astype(np.uint8)

    def features(self, observation: Array) -> FloatArray:
        """Scale object, colour and state of each cell to about [0, 1]; the direction tells nothing more."""
        return observation[:, :IMAGE].astype(np.float32) * _SCALE

    # -- captions -------------------------------------------------------------------------------
    def encode(self, transitions: Transitions) -> IntArray:
        before, after = _view(transitions.observation), _view(transitions.next_observation)
        action = transitions.action
        front, carried = before[:, *FRONT], before[:, *CARRIED]
        front_after, carried_after = after[:, *FRONT], after[:, *CARRIED]
        thing, state, state_after = front[:, 0], front[:, 2], front_after[:, 2]
        door = (thing == DOOR) & (front_after[:, 0] == DOOR) & (action == TOGGLE)
        passable = np.isin(thing, (EMPTY, FLOOR, GOAL, LAVA)) | ((thing == DOOR) & (state == OPEN))
        forward = action == FORWARD
        moved = forward & passable
        ended = transitions.terminated
        rewarded = transitions.reward > 0
        seen = _first_sight(before, after)

        # (condition, event, what it is about); the first that holds is said
        nobody = np.zeros_like(front)
        cases: list[tuple[BoolArray, int, Array]] = [
            (ended & rewarded & forward & (thing == GOAL), REACH_GOAL, nobody),
            (ended & rewarded, SUCCEED, nobody),
            (ended & forward & (thing == LAVA), FALL_IN_LAVA, nobody),
            (ended, FAIL, nobody),
            ((action == PICKUP) & (carried[:, 0] == EMPTY) & (carried_after[:, 0] != EMPTY), PICK_UP, carried_after),
            ((action == DROP) & (carried[:, 0] != EMPTY) & (carried_after[:, 0] == EMPTY), PUT_DOWN, carried),
            (door & (state == LOCKED) & (state_after == OPEN), UNLOCK, front),
            (door & (state == CLOSED) & (state_after == OPEN), OPEN_DOOR, front),
            (door & (state == OPEN) & (state_after == CLOSED), CLOSE_DOOR, front),
            (door & (state == LOCKED), TRY_LOCKED, front),
            ((action == TOGGLE) & (thing == BOX) & (front_after[:, 0] != BOX), OPEN_BOX, front),
            (forward & ~passable, BUMP, front),
            ((moved | (action <= RIGHT)) & (seen[:, 0] > 0), SEE, seen),
            (moved & (thing == DOOR), PASS_DOOR, front),
            (moved, MOVE, nobody),
            (action <= RIGHT, TURN, nobody),
        ]
        conditions = [condition for condition, _, _ in cases]
        event = np.select(conditions, [np.int64(code) for _, code, _ in cases], NOTHING)
        what = np.select([c[:, None] for c in conditions], [about[:, :2] for _, _, about in cases], np.uint8(0))
        named_action = action + 1 if self.with_action else np.zeros_like(action)
        return np.ravel_multi_index((event, what[:, 0], what[:, 1], named_action), SHAPE).astype(np.int64)

    def describe(self, event: int) -> str:
        verb, thing, color, action = (int(digit) for digit in np.unravel_index(event, SHAPE))
        name = "a wall" if thing == WALL else "the goal" if thing == GOAL else f"the {COLORS[color]} {OBJECTS[thing]}"
        text = _WORDS[verb].format(name)
        return f"You try to {ACTIONS[action - 1]}. {text}" if action else text

    def events(self) -> Iterable[int]:
        things = [(WALL, 5), (GOAL, 1)]
        things += [(thing, color) for thing, colors in self._task.objects.items() for color in colors]
        about = {
            BUMP: (WALL, DOOR, KEY, BALL, BOX),
            PICK_UP: (KEY, BALL, BOX),
            PUT_DOWN: (KEY, BALL, BOX),
            SEE: (GOAL, DOOR, KEY, BALL, BOX),
            OPEN_BOX: (BOX,),
            **dict.fromkeys((UNLOCK, OPEN_DOOR, CLOSE_DOOR, TRY_LOCKED, PASS_DOOR), (DOOR,)),
        }
        for verb in range(SHAPE[0]):
            for thing, color in things if verb in about else [(0, 0)]:
                if (verb not in about or thing in about[verb]) and self._possible(verb):
                    for action in _CAUSES[verb] if self.with_action else (-1,):
                        yield int(np.ravel_multi_index((verb, thing, color, action + 1), SHAPE))

    def _possible(self, verb: int) -> bool:
        """Leave out ends that the task does not have; what the family may do otherwise is listed."""
        return {
            REACH_GOAL: GOAL in self._task.ends,
            SUCCEED: GOAL not in self._task.ends,
            FALL_IN_LAVA: LAVA in self._task.ends,
            FAIL: False,
        }.get(verb, True)

    # -- the task -------------------------------------------------------------------------------
    def succeeded(self, returns: FloatArray, terminated: BoolArray) -> BoolArray:
        return terminated & (returns > 0)

    def oracle(self, caption: str) -> float | None:
        """Pay for the steps that a task cannot be solved without: key, door, goal."""
        return float(any(words in caption for words in self._task.milestones)) if self._task.milestones else None


_SCALE = np.tile(np.array([1 / 10, 1 / 5, 1 / 2], dtype=np.float32), VIEW * VIEW)

_WORDS = {
    NOTHING: "Nothing happens.",
    SUCCEED: "You complete the mission.",
    FAIL: "You fail the mission.",
    PICK_UP: "You pick up {}.",
    PUT_DOWN: "You put down {}.",
    UNLOCK: "You unlock {} with the key.",
    OPEN_DOOR: "You open {}.",
    CLOSE_DOOR: "You close {}.",
    OPEN_BOX: "You open {}.",
    TRY_LOCKED: "You cannot open {}: it is locked.",
    BUMP: "You bump into {}.",
    PASS_DOOR: "You go through {}.",
    MOVE: "You move forward.",
    TURN: "You turn.",
    SEE: "You see {}.",
    REACH_GOAL: "You reach the goal.",
    FALL_IN_LAVA: "You fall into the lava.",
}

_CAUSES = {
    **dict.fromkeys((NOTHING, FAIL), tuple(range(len(ACTIONS)))),
    **dict.fromkeys((UNLOCK, OPEN_DOOR, CLOSE_DOOR, TRY_LOCKED, OPEN_BOX), (TOGGLE,)),
    **dict.fromkeys((BUMP, PASS_DOOR, MOVE, REACH_GOAL, FALL_IN_LAVA), (FORWARD,)),
    PICK_UP: (PICKUP,),
    PUT_DOWN: (DROP,),
    TURN: (LEFT, RIGHT),
    SEE: (LEFT, RIGHT, FORWARD),
    SUCCEED: (FORWARD, PICKUP, DROP, TOGGLE, DONE),
}
"""Actions that can bring about each event."""

_ANY_COLOR = tuple(range(len(COLORS)))
_YELLOW = (4,)


@dataclass(frozen=True)
class _Task:
    """What a member of the family asks for, and what there is in it."""

    description: str
    goal: str
    ends: tuple[int, ...] = (GOAL,)
    """Cells that end an episode; without GOAL the mission is completed by an action."""
    objects: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Object -> its possible colours, for listing captions."""
    milestones: tuple[str, ...] = ("You reach the goal",)
    """Beginnings of captions that a solution cannot do without."""


_WORLD = "A grid world seen from the agent's eyes: it can turn, walk, pick up, drop and toggle things. "

_TASKS: dict[str, _Task] = {
    "MiniGrid-DoorKey-*": _Task(
        _WORLD + "A locked door separates two rooms; the key lies in the first room, the goal in the second.",
        "Use the key to open the door and then get to the goal.",
        objects={KEY: _YELLOW, DOOR: _YELLOW},
        milestones=("You pick up the", "You unlock", "You reach the goal"),
    ),
    "MiniGrid-UnlockPickup-*": _Task(
        _WORLD + "A box stands in a room behind a locked door; the key lies in the agent's room.",
        "Unlock the door with the key and pick up the box.",
        ends=(),
        objects={KEY: _ANY_COLOR, DOOR: _ANY_COLOR, BOX: _ANY_COLOR},
        milestones=("You pick up the", "You unlock", "You complete the mission"),
    ),
    "MiniGrid-Unlock-*": _Task(
        _WORLD + "The room's door is locked; the key lies in the agent's room.",
        "Pick up the key and unlock the door.",
        ends=(),
        objects={KEY: _ANY_COLOR, DOOR: _ANY_COLOR},
        milestones=("You pick up the", "You complete the mission"),
    ),
    "MiniGrid-KeyCorridor*": _Task(
        _WORLD + "Rooms lie along a corridor; a ball is in the locked room and the key in one of the others.",
        "Open doors to find the key, unlock the locked door and pick up the ball.",
        ends=(),
        objects={KEY: _ANY_COLOR, DOOR: _ANY_COLOR, BALL: _ANY_COLOR},
        milestones=("You open", "You pick up the", "You unlock", "You complete the mission"),
    ),
    "MiniGrid-MultiRoom-*": _Task(
        _WORLD + "A row of rooms is joined by closed doors; the goal is in the last room.",
        "Open the doors, go through the rooms and get to the goal.",
        objects={DOOR: _ANY_COLOR},
        milestones=("You open", "You go through", "You reach the goal"),
    ),
    "MiniGrid-LavaCrossing*": _Task(
        _WORLD + "Streams of deadly lava, each with one gap, lie between the agent and the goal.",
        "Avoid the lava and get to the goal.",
        ends=(GOAL, LAVA),
        milestones=("You see the goal", "You reach the goal"),
    ),
    "MiniGrid-LavaGap*": _Task(
        _WORLD + "A wall of deadly lava with one gap lies between the agent and the goal.",
        "Avoid the lava and get to the goal.",
        ends=(GOAL, LAVA),
        milestones=("You see the goal", "You reach the goal"),
    ),
    "MiniGrid-*": _Task(
        _WORLD + "Somewhere in the rooms is the goal.",
        "Find the goal and get to it.",
        milestones=("You see the goal", "You reach the goal"),
    ),
}


def _task(env_id: str) -> _Task:
    """Return the first task whose pattern fits the id."""
    return next(task for pattern, task in _TASKS.items() if fnmatch(env_id, pattern))


def _without_mission(space: gym.Space[Any]) -> gym.Space[Any]:
    """Leave out the mission's text: within the tasks here it tells nothing that the image does not."""
    return gym.spaces.Dict({key: part for key, part in space.spaces.items() if key != "mission"})  # type: ignore[attr-defined]


def _view(observation: Array) -> Array:
    """Return the image (N, 7, 7, 3) of packed observations (N, 148)."""
    return observation[:, :IMAGE].reshape(-1, VIEW, VIEW, 3)


def _first_sight(before: Array, after: Array) -> Array:
    """Return (N, 2) object and colour that came into view, zeros where none did; the goal goes first."""
    found = np.zeros((len(after), 2), dtype=np.uint8)
    objects_before = before[..., 0].reshape(len(before), -1)
    objects_after = after[..., 0].reshape(len(after), -1)
    colors_after = after[..., 1].reshape(len(after), -1)
    for thing in (DOOR, KEY, BALL, BOX, GOAL):  # a later one wins
        cells = objects_after == thing
        rows = np.flatnonzero(cells.any(axis=1) & ~(objects_before == thing).any(axis=1))
        found[rows, 0] = thing
        found[rows, 1] = colors_after[rows, cells[rows].argmax(axis=1)]
    return found
