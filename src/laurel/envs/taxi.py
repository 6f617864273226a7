"""Taxi: pick up a passenger and drive to the destination.

A state is ((row * 5 + column) * 5 + passenger) * 4 + destination; passenger 4 rides in the taxi
(https://gymnasium.farama.org/environments/toy_text/taxi/).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Example, Feature, Transitions

SIZE = 5
MAP = ("|R: | : :G|", "| : | : : |", "| : : : : |", "| | : | : |", "|Y| : |B: |")
"""Rows of the city: squares are divided by walls `|` or open borders `:`."""
STANDS = ((0, 0), (0, 4), (4, 0), (4, 3))
IN_TAXI = 4
PICKUP, DROPOFF = 4, 5
ACTIONS = ("south", "north", "east", "west")
_WAYS = {"south": (1, 0), "north": (-1, 0), "east": (0, 1), "west": (0, -1)}
"""Rows and columns by which an action moves the taxi."""
REFUSED_REWARD = -10

BLOCKED, CLOSER, FARTHER, ASIDE, PICK_UP, REFUSED_PICKUP, DELIVER, DROP_ELSEWHERE, REFUSED_DROPOFF = range(9)
PASSENGER, DESTINATION = range(2)
FARTHEST = 20
SHAPE = (9, 2, FARTHEST, len(ACTIONS) + 1)

_MOVES = {
    BLOCKED: "You drive against a wall and stay where you are, {distance} from {target}.",
    CLOSER: "You drive closer to {target}: {distance} to go.",
    FARTHER: "You drive away from {target}: {distance} to go.",
    ASIDE: "You drive on and stay {distance} from {target}.",
}
_WORDS = {
    PICK_UP: "You pick up the passenger.",
    REFUSED_PICKUP: "Nobody waits here: you stop in vain.",
    DELIVER: "You drop off the passenger at the destination.",
    DROP_ELSEWHERE: "You let the passenger out in the wrong place.",
    REFUSED_DROPOFF: "You stop in vain: nobody can get out here.",
}
_TARGETS = ("the waiting passenger", "the destination with the passenger")

_PROGRESS = (
    ("drop off the passenger", 1.0),
    ("pick up the passenger", 0.6),
    ("wrong place", -1.0),
    ("in vain", -1.0),
    ("arrive at", 0.3),
    ("closer to", 0.3),
)


_GOALS = {
    "pickup": "Drive to the waiting passenger and pick up the passenger. You do not care about the destination.",
    "smooth": "Never drive against a wall and never stop in vain. You do not care about the passenger.",
    "tour": "Pick up the passenger and keep driving. You do not care about ever arriving.",
}


class TaxiAdapter(EnvAdapter):
    """Taxi-v3, which Gymnasium withdrew, and Taxi-v4, in any weather."""

    ids = ("Taxi-v*",)
    action_names = (*ACTIONS, "pick up", "drop off")
    observation_features = (
        Feature("row", "of the taxi, from 0 at the top to 4", whole=True),
        Feature("column", "of the taxi, from 0 at the left to 4", whole=True),
        Feature(
            "passenger",
            f"0 to 3: the stand where the passenger waits, of {STANDS} as row and column; 4: in the taxi",
            True,
        ),
        Feature("destination", "0 to 3: the stand where the passenger wants to go", whole=True),
    )
    description = (
        "A taxi in a small city of 5 by 5 squares with walls. A passenger waits at one of four stands and wants to "
        "go to another; the taxi drives south, north, east or west, picks the passenger up and drops the passenger off."
    )
    goal = "You drive closer to the passenger, pick up the passenger and drop off the passenger at the destination."
    anti_goal = "You drive away, drive against a wall or stop in vain."
    goals = _GOALS
    success_words = ("drop off the passenger at the destination",)
    example = Example(
        "You drive closer to the waiting passenger: 4 squares to go.",
        "You drive away from the waiting passenger: 6 squares to go.",
        "The passenger must be reached first, and one of the two came nearer.",
    )

    def feature_values(self, observation: Array) -> Array:
        state = observation[:, 0]
        return np.stack([state // 100, state // 20 % SIZE, state // 4 % 5, state % 4], axis=1)

    def encode(self, transitions: Transitions) -> IntArray:
        before, after = transitions.observation[:, 0], transitions.next_observation[:, 0]
        action = transitions.action
        passenger_before, passenger = before // 4 % 5, after // 4 % 5
        riding = passenger == IN_TAXI
        stand = np.where(riding, after % 4, passenger)  # the destination after the move: it may change on the way
        steps = _STEPS[after // 20, stand]
        nearer = _STEPS[before // 20, stand] - steps
        refused = transitions.reward <= REFUSED_REWARD
        conditions = [
            transitions.terminated,
            (action == PICKUP) & refused,
            action == PICKUP,
            (action == DROPOFF) & refused,
            (action == DROPOFF) & (passenger_before == IN_TAXI),
            before // 20 == after // 20,
            nearer > 0,
            nearer < 0,
        ]
        events = [DELIVER, REFUSED_PICKUP, PICK_UP, REFUSED_DROPOFF, DROP_ELSEWHERE, BLOCKED, CLOSER, FARTHER]
        event = np.select(conditions, events, ASIDE)
        drives = event <= ASIDE
        digits = (event, np.where(drives, riding, PASSENGER), np.where(drives, steps, 0))
        named_action = np.where(drives & (action < PICKUP), action + 1, 0) if self.with_action else np.zeros_like(event)
        return np.ravel_multi_index((*digits, named_action), SHAPE).astype(np.int64)

    def describe(self, event: int) -> str:
        verb, target, steps, action = (int(digit) for digit in np.unravel_index(event, SHAPE))
        if verb in _WORDS:
            return _WORDS[verb]
        distance = f"{steps} square{'s' if steps != 1 else ''}"
        words = "You arrive at {target}." if verb == CLOSER and steps == 0 else _MOVES[verb]
        text = words.format(target=_TARGETS[target], distance=distance)
        return f"You steer {ACTIONS[action - 1]}. {text}" if action else text

    def events(self) -> Iterable[int]:
        return self.possible(self._events())

    def _events(self) -> Iterator[int]:
        # In rain the taxi may slip sideways, so that every event occurs with every action.
        actions = range(1, len(ACTIONS) + 1) if self.with_action else (0,)
        for verb, steps in _moves():
            for target in (PASSENGER, DESTINATION):
                for action in actions:
                    yield int(np.ravel_multi_index((verb, target, steps, action), SHAPE))
        for verb in _WORDS:
            yield int(np.ravel_multi_index((verb, 0, 0, 0), SHAPE))

    def describe_observation(self, observation: Any) -> str:
        square, passenger, destination = int(observation) // 20, int(observation) // 4 % 5, int(observation) % 4
        row, column = divmod(square, SIZE)
        if passenger == IN_TAXI:
            waits = "The passenger is in the taxi"
        else:
            waits = f"The passenger waits at {_square(*STANDS[passenger])}"
        free = [
            way for way, offset in _WAYS.items() if (row + offset[0], column + offset[1]) in _neighbours(row, column)
        ]
        return (
            f"You are at {_square(row, column)} and can drive {' or '.join(free)}. {waits} and wants to go to "
            f"{_square(*STANDS[destination])}."
        )

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return last.terminated

    def oracle(self, caption: str) -> float:
        """Reward picking up and delivering, and a little driving towards either."""
        return next((value for words, value in _PROGRESS if words in caption), 0.0)


def _square(row: int, column: int) -> str:
    return f"row {row + 1}, column {column + 1}"


def _steps_to_stands() -> IntArray:
    """Return the steps from each square (25,) to each stand (4,) around the walls."""
    steps = np.zeros((SIZE * SIZE, len(STANDS)), dtype=np.int64)
    for stand, start in enumerate(STANDS):
        seen = {start: 0}
        queue = deque([start])
        while queue:
            row, column = queue.popleft()
            for square in _neighbours(row, column):
                if square not in seen:
                    seen[square] = seen[row, column] + 1
                    queue.append(square)
        for (row, column), count in seen.items():
            steps[row * SIZE + column, stand] = count
    return steps


def _moves() -> list[tuple[int, int]]:
    """Return the possible outcomes of a move (closer, farther, blocked), each with the steps left after it."""
    moves = set()
    for square, steps in enumerate(_STEPS):
        neighbours = [row * SIZE + column for row, column in _neighbours(*divmod(square, SIZE))]
        moves |= {
            (CLOSER if _STEPS[neighbour, stand] < steps[stand] else FARTHER, int(_STEPS[neighbour, stand]))
            for neighbour in neighbours
            for stand in range(len(STANDS))
        }
        if len(neighbours) < len(ACTIONS):
            moves |= {(BLOCKED, int(count)) for count in steps}
    return sorted(moves)


def _neighbours(row: int, column: int) -> list[tuple[int, int]]:
    """Return the squares that one step leads to."""
    vertical = [(other_row, column) for other_row in (row - 1, row + 1) if 0 <= other_row < SIZE]
    east = [(row, column + 1)] if MAP[row][2 * column + 2] == ":" else []
    west = [(row, column - 1)] if MAP[row][2 * column] == ":" else []
    return vertical + east + west


_STEPS = _steps_to_stands()
