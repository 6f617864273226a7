"""MiniGrid's codes for objects, colours and actions, and codes and words for the events that captions tell."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np

OBJECTS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
EMPTY, WALL, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA = 1, 2, 3, 4, 5, 6, 7, 8, 9
OPEN, CLOSED, LOCKED = 0, 1, 2
LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)
ACTIONS = ("turn left", "turn right", "move forward", "pick up", "drop", "toggle", "finish")

FACING = ("east", "south", "west", "north")

VIEW = 7
"""Cells along a side of what the agent sees."""
CARRIED, FRONT = (3, 6), (3, 5)
"""The agent's own cell in its view, which shows what it carries, and the one ahead."""
IMAGE = VIEW * VIEW * 3

NOTHING, PICK_UP, PUT_DOWN, UNLOCK, OPEN_DOOR, CLOSE_DOOR, OPEN_BOX, TRY_LOCKED = range(8)
BUMP, PASS_DOOR, MOVE, TURN, SEE, REACH_GOAL, FALL_IN_LAVA, GO_TO, CLOSER = range(8, 17)
GOES_ON, SUCCEEDS, FAILS = range(3)


class Relation(IntEnum):
    """Relation of an event and its object to the mission, if observations hold the mission."""

    NONE = 0
    MAY_BE = 1
    """The mission names an object like this one and also says where it was at first, so it may be another one."""
    NAMED = 2
    ASKED = 3
    """The mission asks for this very event."""
    ASKED_FIRST = 4
    ASKED_LAST = 5


SHAPE = (len(Relation), 17, 3, len(OBJECTS), len(COLORS), len(ACTIONS) + 1)
"""Relation to the mission, what happens, how the mission stands after it, the object and its colour, and the action
where captions name it."""

SAYS_ITS_END = np.isin(np.arange(SHAPE[1]), (REACH_GOAL, FALL_IN_LAVA))
"""Events whose words leave no doubt how the mission ended."""

_WORDS = {
    NOTHING: "Nothing happens.",
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
    GO_TO: "You go to {}.",
    CLOSER: "You come closer to {}.",
}

_WHICH = {Relation.MAY_BE: " you may have been told of", Relation.NAMED: " you were told of"}

_AS_ASKED = {
    Relation.ASKED: "as told",
    Relation.ASKED_FIRST: "as told first",
    Relation.ASKED_LAST: "as told last",
}
"""These avoid the word "mission": sentence encoders place any text with it close to completing the mission."""

MISSION = {SUCCEEDS: "complete the mission", FAILS: "fail"}
"""A failure does not name the mission: sentence encoders place "fail the mission" close to completing it."""

ENDINGS = {
    "pick up": PICK_UP,
    "put down": PUT_DOWN,
    "unlock": UNLOCK,
    "open": OPEN_DOOR,
    "open box": OPEN_BOX,
    "go to": GO_TO,
    "bump into": BUMP,
    "": NOTHING,
}
"""Words of `Task.solved_by` and `Task.failed_by` -> the event."""

ABOUT = {
    BUMP: (WALL, DOOR, KEY, BALL, BOX),
    PICK_UP: (KEY, BALL, BOX),
    PUT_DOWN: (KEY, BALL, BOX),
    SEE: (GOAL, DOOR, KEY, BALL, BOX),
    **dict.fromkeys((GO_TO, CLOSER), (DOOR, KEY, BALL, BOX)),
    OPEN_BOX: (BOX,),
    **dict.fromkeys((UNLOCK, OPEN_DOOR, CLOSE_DOOR, TRY_LOCKED, PASS_DOOR), (DOOR,)),
}
"""Events that are about an object -> which it can be."""

_CAUSES = {
    **dict.fromkeys((NOTHING, GO_TO), tuple(range(len(ACTIONS)))),
    **dict.fromkeys((UNLOCK, OPEN_DOOR, CLOSE_DOOR, TRY_LOCKED, OPEN_BOX), (TOGGLE,)),
    **dict.fromkeys((BUMP, PASS_DOOR, MOVE, REACH_GOAL, FALL_IN_LAVA, CLOSER), (FORWARD,)),
    PICK_UP: (PICKUP,),
    PUT_DOWN: (DROP,),
    TURN: (LEFT, RIGHT),
    SEE: (LEFT, RIGHT, FORWARD),
}
"""Actions that can bring about each event."""


def described(event: int) -> str:
    """Return the sentence of an event, given by its index into SHAPE."""
    digits = [int(digit) for digit in np.unravel_index(event, SHAPE)]
    relation, (verb, mission, thing, color, action) = Relation(digits[0]), digits[1:]
    name = "a wall" if thing == WALL else "the goal" if thing == GOAL else f"the {COLORS[color]} {OBJECTS[thing]}"
    text = _WORDS[verb].format(name + _WHICH.get(relation, ""))
    if relation >= Relation.ASKED:
        text = f"{text[:-1]}, {_AS_ASKED[relation]}."
    if mission != GOES_ON:
        text = f"{'You' if verb == NOTHING else text[:-1] + ' and'} {MISSION[mission]}."
    return f"You try to {ACTIONS[action - 1]}. {text}" if action else text


def event_indices(
    verb: int, mission: int, objects: list[tuple[int, int]], *, with_action: bool, relation: Relation = Relation.NONE
) -> Iterator[int]:
    """Yield the index into SHAPE of an event with each of these objects, or once if the event has no object.

    If captions name the action, there is an index for each action that can cause the event.
    """
    for thing, color in objects if verb in ABOUT else [(0, 0)]:
        causes = (LEFT, RIGHT, FORWARD) if verb == GO_TO and mission == GOES_ON else _CAUSES[verb]
        for action in causes if with_action else (-1,):
            yield int(np.ravel_multi_index((relation, verb, mission, thing, color, action + 1), SHAPE))
