"""MiniGrid: captions read from the agent's own cell and the cell before it.

The partial view is 7x7x3 (object, colour, state), the agent looking up from the bottom middle; its own
cell shows what it carries, the cell before it the state of a door
(https://minigrid.farama.org/api/wrapper/, `minigrid.core.constants`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.base import PROGRESSION, EnvAdapter, Feature, Transitions
from laurel.envs.minigrid_codes import (
    ABOUT,
    ACTIONS,
    BALL,
    BOX,
    BUMP,
    CARRIED,
    CLOSE_DOOR,
    CLOSED,
    CLOSER,
    COLORS,
    DOOR,
    DROP,
    EMPTY,
    ENDINGS,
    FACING,
    FAILS,
    FALL_IN_LAVA,
    FLOOR,
    FORWARD,
    FRONT,
    GO_TO,
    GOAL,
    GOES_ON,
    IMAGE,
    KEY,
    LAVA,
    LOCKED,
    MISSION,
    MOVE,
    NOTHING,
    OBJECTS,
    OPEN,
    OPEN_BOX,
    OPEN_DOOR,
    PASS_DOOR,
    PICK_UP,
    PICKUP,
    PUT_DOWN,
    REACH_GOAL,
    RIGHT,
    SAYS_ITS_END,
    SEE,
    SHAPE,
    SUCCEEDS,
    TOGGLE,
    TRY_LOCKED,
    TURN,
    UNLOCK,
    VIEW,
    WALL,
    Relation,
    described,
    event_indices,
)
from laurel.envs.minigrid_sights import first_sight
from laurel.envs.minigrid_tasks import GOALS, MOVED, SEEN, task_of
from laurel.envs.minigrid_views import Views
from laurel.errors import EnvError

logger = logging.getLogger(__name__)

Case = tuple[BoolArray, int, Array | None]
"""Where an event happens (N,), which, and the kinds of object that it is about."""

_CODES = ", ".join(f"{code} {name}" for code, name in enumerate(OBJECTS))


class MiniGridAdapter(EnvAdapter):
    """All of the MiniGrid family; each task has its own goal in words."""

    ids: ClassVar[tuple[str, ...]] = ("MiniGrid-*",)
    version = 2
    action_names: tuple[str, ...] = ACTIONS
    observation_features = (
        Feature("facing", "0 east, 1 south, 2 west, 3 north", whole=True),
        Feature("carried", f"{_CODES}; 1 where nothing is carried", whole=True),
        Feature("ahead", f"what is in the cell ahead: {_CODES}", whole=True),
        Feature("ahead_state", "of a door ahead: 0 open, 1 closed, 2 locked; otherwise 0", whole=True),
        *(
            Feature(f"{thing}_{part}", f"{meaning} {thing} in view", whole=True)
            for thing in ("door", "key", "ball", "box", "goal")
            for part, meaning in (
                ("seen", "1 where there is a"),
                ("forward", "cells ahead, 0 to 6, of the nearest"),
                ("aside", "cells aside, -3 (left) to 3 (right), of the nearest"),
            )
        ),
    )
    success_words = ("reach the goal", "complete the mission")
    limit_argument: ClassVar[str] = "max_steps"  # its reward falls with the share of the limit that was used

    def __init__(
        self, env_id: str, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, with_action: bool = False
    ) -> None:
        super().__init__(env_id, _image_and_direction(env_id, observation_space), action_space, with_action=with_action)
        self._task = task_of(env_id)
        self.description = self._task.description
        self.goal = self._task.goal
        self.anti_goal = self._task.anti_goal
        self.goals = {**GOALS, **self._task.goals}
        self.example = SEEN if "goal" in self._task.ends else MOVED
        if self._task.varies:
            logger.warning(
                "%s: its mission may vary, but neither captions nor observations hold the mission's text.", env_id
            )

    @staticmethod
    def prepare(env: gym.Env[Any, Any]) -> None:
        task: Any = env.unwrapped
        if type(task).__module__.startswith("minigrid.") and Views.suit(task):
            Views(task)

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
        row = np.empty(IMAGE + 1, dtype=np.uint8)
        row[:IMAGE], row[IMAGE] = observation["image"].reshape(-1), observation["direction"]
        return row

    def unpack(self, row: Array) -> dict[str, Any]:
        return {"image": row[:IMAGE].reshape(VIEW, VIEW, 3), "direction": int(row[IMAGE])}

    def features(self, observation: Array) -> FloatArray:
        """Scale object, colour and state of each cell to about [0, 1]; the direction is left out."""
        return observation[:, :IMAGE].astype(np.float32) * SCALE

    def feature_values(self, observation: Array) -> Array:
        """Find in the view the nearest thing of each kind; 0 forward and aside where none is seen."""
        view = observation[:, :IMAGE].reshape(-1, VIEW, VIEW, 3).astype(np.int64)
        x, y = np.indices((VIEW, VIEW))
        forward, aside = CARRIED[1] - y, x - CARRIED[0]
        distance = forward + np.abs(aside)
        columns = [observation[:, IMAGE], view[:, *CARRIED, 0], view[:, *FRONT, 0], view[:, *FRONT, 2]]
        for thing in (DOOR, KEY, BALL, BOX, GOAL):
            visible = (view[..., 0] == thing) & ((x != CARRIED[0]) | (y != CARRIED[1]))
            nearest = np.where(visible, distance, 3 * VIEW).reshape(len(view), -1).argmin(axis=1)
            seen = visible.reshape(len(view), -1).any(axis=1)
            columns += [seen, forward.reshape(-1)[nearest] * seen, aside.reshape(-1)[nearest] * seen]
        return np.stack(columns, axis=1).astype(np.int64)

    def describe_observation(self, observation: Any) -> str:
        """Describe the object carried and the one ahead, the walls nearby, and all else in view by its distance.

        `goal` has the mission: stored observations do not hold it.
        """
        view, (middle, end) = np.asarray(observation["image"]), CARRIED
        carried = view[middle, end]
        seen = sorted(
            (end - y + abs(x - middle), end - y, x - middle, _named_thing(view[x, y]))
            for x in range(VIEW)
            for y in range(VIEW)
            if (x, y) not in (CARRIED, FRONT) and view[x, y, 0] in (DOOR, KEY, BALL, BOX, GOAL, LAVA)
        )
        sentences = [
            f"You face {FACING[int(observation['direction'])]}.",
            f"You carry {_named_thing(carried)}." if carried[0] != EMPTY else "You carry nothing.",
            f"Right ahead of you is {_named_thing(view[FRONT])}.",
            *_walls(view),
            *(f"You see {thing} {_location(forward, aside)}." for _, forward, aside, thing in seen),
        ]
        return " ".join(sentences)

    # -- captions -------------------------------------------------------------------------------
    def encode(self, transitions: Transitions) -> IntArray:
        before, after = transitions.observation, transitions.next_observation
        action = transitions.action
        front, carried = cell_of(before, FRONT), cell_of(before, CARRIED)
        front_after, carried_after = cell_of(after, FRONT), cell_of(after, CARRIED)
        thing, state = front[:, 0].copy(), front[:, 2].copy()  # comparing columns in place takes twice as long
        thing_after, state_after = front_after[:, 0].copy(), front_after[:, 2].copy()
        carries, carries_after = carried[:, 0] != EMPTY, carried_after[:, 0] != EMPTY
        door = (thing == DOOR) & (thing_after == DOOR) & (action == TOGGLE)
        passable = _OVERLAPPED[thing] | ((thing == DOOR) & (state == OPEN))
        forward = action == FORWARD
        moved = forward & passable
        rewarded = transitions.reward > 0
        ended = transitions.terminated | rewarded
        seen = first_sight(before, after)

        # (condition, event, what it is about); the first that holds counts
        front, carried, carried_after, seen = (kind_of(cells) for cells in (front, carried, carried_after, seen))
        last_moves: list[Case] = []
        last_steps: list[Case] = []
        if any_ended := ended.any():  # an update in which no episode ends is not looked through for its ends
            fails = ended & ~rewarded
            last_moves = [
                (rewarded & forward & (thing == GOAL), REACH_GOAL, None),
                (fails & forward & (thing == LAVA), FALL_IN_LAVA, None),
            ]
            last_steps = [
                (fails & forward & ~passable, BUMP, front),
                (ended & _GONE_TO[thing_after], GO_TO, kind_of(front_after)),
                (ended, NOTHING, None),
            ]
        cases: list[Case] = [
            *last_moves,
            ((action == PICKUP) & ~carries & carries_after, PICK_UP, carried_after),
            ((action == DROP) & carries & ~carries_after, PUT_DOWN, carried),
            (door & (state == LOCKED) & (state_after == OPEN), UNLOCK, front),
            (door & (state == CLOSED) & (state_after == OPEN), OPEN_DOOR, front),
            (door & (state == OPEN) & (state_after == CLOSED), CLOSE_DOOR, front),
            ((action == TOGGLE) & (thing == BOX) & (thing_after != BOX), OPEN_BOX, front),
            *last_steps,
            (door & (state == LOCKED), TRY_LOCKED, front),
            (forward & ~passable, BUMP, front),
            *self.further_cases(before, after, moved, action <= RIGHT),
            ((moved | (action <= RIGHT)) & (seen > 0), SEE, seen),
            (moved & (thing == DOOR), PASS_DOOR, front),
            (moved, MOVE, None),
            (action <= RIGHT, TURN, None),
        ]
        event, kind = np.full(len(action), NOTHING), np.zeros(len(action), dtype=np.int64)
        for condition, code, about in reversed(cases):
            np.copyto(event, code, where=condition)
            np.copyto(kind, 0 if about is None else about, where=condition)
        mission = np.full_like(event, GOES_ON)
        if any_ended:
            mission = np.where(ended & ~SAYS_ITS_END[event], np.where(rewarded, SUCCEEDS, FAILS), GOES_ON)
        named_action = action + 1 if self.with_action else np.zeros_like(action)
        events: IntArray = ((event * SHAPE[2] + mission) * (SHAPE[3] * SHAPE[4]) + kind) * SHAPE[5] + named_action
        relation = self.relations(before, event, kind)
        if relation is not None:
            events += np.where(mission == GOES_ON, relation, Relation.NONE) * int(np.prod(SHAPE[1:]))
        return events

    def further_cases(self, before: Array, after: Array, moved: BoolArray, turned: BoolArray) -> list[Case]:
        """Return further events of moves and turns (N,), which take precedence over things that come into view."""
        return []

    def relations(self, before: Array, event: IntArray, kind: IntArray) -> IntArray | None:
        """Return what events (N,) about kinds of object have to do with the mission; None where that is not known."""
        return None

    def describe(self, event: int) -> str:
        return described(event)

    def things(self) -> list[tuple[int, int]]:
        """List the kinds and colours of object that captions can be about."""
        return [
            (WALL, COLORS.index("grey")),
            *([(GOAL, COLORS.index("green"))] if "goal" in self._task.ends else []),
            *(
                (OBJECTS.index(thing), COLORS.index(color))
                for thing, colors in self._task.objects.items()
                for color in colors
            ),
        ]

    def events(self) -> Iterable[int]:
        things = self.things()
        for verb in range(SHAPE[1]):
            if self._possible(verb):
                yield from event_indices(
                    verb,
                    GOES_ON,
                    [pair for pair in things if pair[0] in ABOUT.get(verb, ())],
                    with_action=self.with_action,
                )
        for mission, endings in ((SUCCEEDS, self._task.solved_by), (FAILS, self._task.failed_by)):
            for words, objects in endings.items():
                ends = [
                    (thing, color)
                    for thing, color in things
                    if OBJECTS[thing] in objects or f"{COLORS[color]} {OBJECTS[thing]}" in objects
                ]
                yield from event_indices(ENDINGS[words], mission, ends, with_action=self.with_action)

    def _possible(self, verb: int) -> bool:
        """Whether captions without a mission may have this verb: the task may lack the end, locked doors, or things to
        pick up.
        """
        if verb in (GO_TO, CLOSER):
            return False
        if verb in (PICK_UP, PUT_DOWN):
            return not self._task.fixed
        if verb in (UNLOCK, TRY_LOCKED):
            return "key" in self._task.objects
        end = {REACH_GOAL: "goal", FALL_IN_LAVA: "lava"}.get(verb)
        return end is None or end in self._task.ends

    # -- the task -------------------------------------------------------------------------------
    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return returns > 0

    def further_measures(self, transitions: Transitions) -> Mapping[str, FloatArray]:
        done = (transitions.reward > 0).astype(np.float32)
        return {PROGRESSION: done} if self.env_id.startswith("BabyAI-") else {}

    def oracle(self, caption: str) -> float:
        """Pay for the steps that a task cannot be solved without: key, door, goal; failing is worst."""
        if any(end in caption for end in (f" {MISSION[FAILS]}.", "You fall into the lava.")):
            return -1.0
        return float(any(words in caption for words in self._task.milestones))


_OVERLAPPED = np.isin(np.arange(len(OBJECTS)), (EMPTY, FLOOR, GOAL, LAVA))
"""Objects that the agent can stand on."""

_GONE_TO = np.isin(np.arange(len(OBJECTS)), (DOOR, KEY, BALL, BOX))
"""Objects to which a mission can send the agent."""

SCALE = np.tile(np.array([1 / 10, 1 / 5, 1 / 2], dtype=np.float32), VIEW * VIEW)


def _image_and_direction(env_id: str, space: gym.Space[Any]) -> gym.Space[Any]:
    """Leave out the mission's text, which says nothing that the image does not, except in tasks that vary.

    Raises:
        EnvError: the view has another size.
    """
    parts = {key: part for key, part in getattr(space, "spaces", {}).items() if key in ("image", "direction")}
    if len(parts) != 2 or parts["image"].shape != (VIEW, VIEW, 3):
        raise EnvError(
            f"{env_id}: captions need the {VIEW}x{VIEW} view and the direction that MiniGrid gives by default. "
            "Leave agent_view_size out of env.kwargs and wrappers out of the environment."
        )
    return gym.spaces.Dict(parts)


def cell_of(observation: Array, cell: tuple[int, int]) -> Array:
    """Return object, colour and state (N, 3) of a cell of the view, from packed observations (N, 148)."""
    start = 3 * (VIEW * cell[0] + cell[1])
    return observation[:, start : start + 3]


def _named_thing(cell: Array) -> str:
    """Name what is in a cell (object, colour, state)."""
    kind, color, state = (int(part) for part in cell)
    if kind in (WALL, LAVA):
        return "a wall" if kind == WALL else "lava"
    if kind == GOAL:
        return "the goal"
    if kind in (EMPTY, FLOOR):
        return "nothing"
    door_state = f"{('open', 'closed', 'locked')[state]} " if kind == DOOR else ""
    return f"the {door_state}{COLORS[color]} {OBJECTS[kind]}"


def _walls(view: Array) -> Iterator[str]:
    """Say how far the way ahead is free, if it is, and whether there are walls on the agent's sides."""
    middle, end = CARRIED
    free = next((far for far in range(1, VIEW) if view[middle, end - far, 0] not in (EMPTY, FLOOR)), VIEW) - 1
    if free:
        yield f"The way ahead is free for {free} square{'s' * (free != 1)}."
    sides = [way for way, x in (("left", middle - 1), ("right", middle + 1)) if view[x, end, 0] == WALL]
    if sides:
        yield f"A wall is to your {' and to your '.join(sides)}."


def _location(forward: int, aside: int) -> str:
    """Say where a cell is, seen from the agent."""
    ways = [(forward, "ahead"), (abs(aside), "to the right" if aside > 0 else "to the left")]
    return " and ".join(f"{far} square{'s' * (far != 1)} {way}" for far, way in ways if far)


def kind_of(cells: Array) -> IntArray:
    """Return object and colour of cells (N, 2 or more) as one number."""
    return cells[:, 0].astype(np.int64) * len(COLORS) + cells[:, 1]
