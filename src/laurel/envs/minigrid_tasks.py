"""The goal and the objects of each task of the MiniGrid family, in MiniGrid's own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch

from laurel.envs.base import Example

ANY_COLOR = ("red", "green", "blue", "purple", "yellow", "grey")
WORLD = "A grid world seen from the agent's eyes: it can turn, walk, pick up, drop and toggle things. "


SEEN = Example(
    "You see the goal.",
    "You bump into a wall.",
    "Who sees the goal knows where to go; walking into a wall gains nothing.",
)
MOVED = Example(
    "You move forward.",
    "You bump into a wall.",
    "A step at least leads somewhere; walking into a wall changes nothing.",
)
"""For tasks without a goal to get to."""


@dataclass(frozen=True)
class Task:
    """The words of a task, and what its captions can be about."""

    description: str
    goal: str
    anti_goal: str = "Nothing useful happens."
    ends: tuple[str, ...] = ("goal",)
    """Where an episode can end before its limit: on the goal, in lava."""
    solved_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Events that complete the mission elsewhere than on the goal: verb -> objects, such as "door" for any colour or
    "blue door"; the empty verb is an end without an event."""
    failed_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Events that fail the mission: verb -> objects."""
    objects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Object -> its possible colours, for listing captions."""
    milestones: tuple[str, ...] = ("You see the goal", "You reach the goal")
    """Beginnings of captions that a solution cannot do without."""
    fixed: bool = False
    """Nothing can be picked up."""
    varies: bool = False
    """The task differs between episodes, and only the mission's text says what it is, which nothing here reads."""
    goals: Mapping[str, str] = field(default_factory=dict)
    """Name -> further goals of this task, in addition to GOALS."""


GOALS = {
    "explore": "See things that come into view for the first time, and go to new places. The agent does not care "
    "about finishing the task.",
    "careful": "Never bump into anything, and stay away from lava. The agent does not care about being quick.",
    "still": "Stay in place and leave everything as it is. The agent does not care about finishing the task.",
}
"""Goals that any task has."""


_ANY_END: Mapping[str, tuple[str, ...]] = {
    "": (),
    "pick up": ("key", "ball", "box"),
    "put down": ("key", "ball", "box"),
    "open": ("door",),
    "unlock": ("door",),
    "go to": ("door", "key", "ball", "box"),
}
"""For tasks of which nothing is known but that there is a mission."""

_TASKS: dict[str, Task] = {
    "MiniGrid-DoorKey-*": Task(
        WORLD + "A locked door separates two rooms; the key lies in the first room, the goal in the second.",
        "Use the key to open the door and then get to the goal.",
        objects={"key": ("yellow",), "door": ("yellow",)},
        milestones=("You pick up the", "You unlock", "You reach the goal"),
        goals={
            "key": "Pick up the key and keep it. The agent does not care about the door or about the goal.",
            "door": "Unlock the door and open it. The agent does not care about the goal behind it.",
        },
    ),
    "MiniGrid-UnlockPickup-*": Task(
        WORLD + "A box stands in a room behind a locked door; the key lies in the agent's room.",
        "Unlock the door with the key, pick up the box and complete the mission.",
        ends=(),
        objects={"key": ANY_COLOR, "door": ANY_COLOR, "box": ANY_COLOR},
        milestones=("You pick up the", "You unlock", "complete the mission"),
        solved_by={"pick up": ("box",)},
    ),
    "MiniGrid-BlockedUnlockPickup-*": Task(
        WORLD
        + "A box stands in a room behind a locked door, a ball in front of the door; the key lies near the agent.",
        "Move the ball away, unlock the door with the key, pick up the box and complete the mission.",
        ends=(),
        objects={"key": ANY_COLOR, "door": ANY_COLOR, "box": ANY_COLOR, "ball": ANY_COLOR},
        milestones=("You pick up the", "You unlock", "complete the mission"),
        solved_by={"pick up": ("box",)},
    ),
    "MiniGrid-Unlock-*": Task(
        WORLD + "The room's door is locked; the key lies in the agent's room.",
        "Pick up the key, unlock the door and complete the mission.",
        ends=(),
        objects={"key": ANY_COLOR, "door": ANY_COLOR},
        milestones=("You pick up the", "complete the mission"),
        solved_by={"unlock": ("door",)},
    ),
    "MiniGrid-RedBlueDoors-*": Task(
        WORLD + "The room has a red door and a blue door; opening the blue one first fails the mission.",
        "Open the red door, then open the blue door and complete the mission.",
        ends=(),
        objects={"door": ("red", "blue")},
        milestones=("You open the red door", "complete the mission"),
        solved_by={"open": ("blue door",)},
        failed_by={"open": ("blue door",)},
    ),
    "MiniGrid-KeyCorridor*": Task(
        WORLD + "Rooms lie along a corridor; a ball is in the locked room and the key in one of the others.",
        "Find the key, unlock the door, pick up the ball and complete the mission.",
        ends=(),
        objects={"key": ANY_COLOR, "door": ANY_COLOR, "ball": ANY_COLOR},
        milestones=("You open", "You pick up the", "You unlock", "complete the mission"),
        solved_by={"pick up": ("ball",)},
    ),
    "MiniGrid-ObstructedMaze-*": Task(
        WORLD + "A ball is in one of several rooms behind locked doors; boxes hide the keys and balls block doors.",
        "Unlock the doors, pick up the blue ball and complete the mission.",
        ends=(),
        objects={"key": ANY_COLOR, "door": ANY_COLOR, "ball": ("blue", "green"), "box": ("grey",)},
        milestones=("You open", "You pick up the", "You unlock", "complete the mission"),
        solved_by={"pick up": ("blue ball",)},
    ),
    "MiniGrid-LockedRoom-*": Task(
        WORLD + "The goal is in a locked room off a corridor; the key to its door is in one of the other rooms.",
        "Unlock the door and go to the goal.",
        objects={"key": ANY_COLOR, "door": ANY_COLOR},
        milestones=("You open", "You pick up the", "You unlock", "You reach the goal"),
    ),
    "MiniGrid-MultiRoom-*": Task(
        WORLD + "A row of rooms is joined by closed doors; the goal is in the last room.",
        "Open the doors, go through the rooms and get to the goal.",
        objects={"door": ANY_COLOR},
        milestones=("You open", "You go through", "You reach the goal"),
    ),
    "MiniGrid-LavaCrossing*": Task(
        WORLD + "Streams of deadly lava, each with one gap, lie between the agent and the goal.",
        "Avoid the lava and get to the goal.",
        ends=("goal", "lava"),
        anti_goal="Fall into the lava.",
    ),
    "MiniGrid-LavaGap*": Task(
        WORLD + "A wall of deadly lava with one gap lies between the agent and the goal.",
        "Avoid the lava and get to the goal.",
        ends=("goal", "lava"),
        anti_goal="Fall into the lava.",
    ),
    "MiniGrid-DistShift*": Task(
        WORLD + "Strips of deadly lava lie beside the way to the goal.",
        "Avoid the lava and get to the goal.",
        ends=("goal", "lava"),
        anti_goal="Fall into the lava.",
    ),
    "MiniGrid-Dynamic-Obstacles-*": Task(
        WORLD + "Balls roll about the room; walking into one fails the mission.",
        "Get to the goal without walking into a ball.",
        ends=("goal",),
        objects={"ball": ("blue",)},
        failed_by={"bump into": ("ball", "wall")},
        fixed=True,
    ),
    "MiniGrid-SimpleCrossing*": Task(
        WORLD + "Walls, each with one gap, lie between the agent and the goal.",
        "Find the gaps in the walls and get to the goal.",
    ),
    "MiniGrid-FourRooms-*": Task(
        WORLD + "Four rooms are joined by gaps in their walls; the goal is somewhere in them.",
        "Find the goal and get to it.",
    ),
    "MiniGrid-Empty-*": Task(WORLD + "The room is empty but for the goal.", "Find the goal and get to it."),
    "MiniGrid-Fetch-*": Task(
        WORLD + "A mission names one of the things that lie about; picking up another one fails it.",
        "Fetch the object that the mission names: pick it up and complete the mission.",
        ends=(),
        solved_by={"pick up": ("key", "ball")},
        failed_by={"pick up": ("key", "ball")},
        objects={"key": ANY_COLOR, "ball": ANY_COLOR},
        milestones=("complete the mission",),
    ),
    "MiniGrid-GoToDoor-*": Task(
        WORLD + "Each wall of the room has a door; a mission names the door to go to and to finish at.",
        "Go to the door that the mission names and complete the mission.",
        ends=(),
        solved_by={"go to": ("door",), "": ()},
        failed_by={"go to": ("door",), "open": ("door",), "": ()},
        objects={"door": ANY_COLOR},
        milestones=("complete the mission",),
    ),
    "MiniGrid-GoToObject-*": Task(
        WORLD + "A mission names the thing to go to and to finish at.",
        "Go to the object that the mission names and complete the mission.",
        ends=(),
        solved_by={"go to": ("key", "ball", "box"), "": ()},
        failed_by={"go to": ("key", "ball", "box"), "open box": ("box",), "": ()},
        objects={"key": ANY_COLOR, "ball": ANY_COLOR, "box": ANY_COLOR},
        milestones=("complete the mission",),
    ),
    "MiniGrid-PutNear-*": Task(
        WORLD + "A mission names a thing, and another one near which it is to be put down.",
        "Put the object that the mission names near the other one and complete the mission.",
        ends=(),
        solved_by={"put down": ("key", "ball", "box")},
        failed_by={
            "pick up": ("key", "ball", "box"),
            "put down": ("key", "ball", "box"),
            "go to": ("key", "ball", "box"),  # what lies where something was to be put down
            "": (),
        },
        objects={"key": ANY_COLOR, "ball": ANY_COLOR, "box": ANY_COLOR},
        milestones=("complete the mission",),
    ),
    "MiniGrid-Memory*": Task(
        WORLD + "The agent sees an object, and goes to the one like it at the end of a hallway.",
        "Go to the matching object at the end of the hallway and complete the mission.",
        ends=(),
        solved_by={"go to": ("key", "ball")},
        failed_by={"go to": ("key", "ball")},
        objects={"key": ("green",), "ball": ("green",)},
        fixed=True,
        milestones=("complete the mission",),
    ),
    "BabyAI-*": Task(
        WORLD + "A mission names things to go to, to pick up, to open, or to put beside others.",
        "Do with the things that the mission names what it asks, and complete the mission.",
        ends=(),
        solved_by=_ANY_END,
        failed_by=_ANY_END,
        objects={"key": ANY_COLOR, "door": ANY_COLOR, "ball": ANY_COLOR, "box": ANY_COLOR},
        milestones=("complete the mission", "as told.", "as told first"),
    ),
    "*": Task(
        WORLD + "A mission says what to do.",
        "Complete the mission.",
        ends=("goal", "lava"),
        solved_by=_ANY_END,
        failed_by=_ANY_END,
        objects={"key": ANY_COLOR, "door": ANY_COLOR, "ball": ANY_COLOR, "box": ANY_COLOR},
        milestones=("complete the mission", "You reach the goal"),
        varies=True,
    ),
}


def task_of(env_id: str) -> Task:
    """Return the first task whose pattern fits the id."""
    return next(task for pattern, task in _TASKS.items() if fnmatch(env_id, pattern))
