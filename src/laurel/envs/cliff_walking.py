"""Cliff walking: along the cliff to the goal, or over its edge and back to the start.

The grid has 4 rows and 12 columns, squares counted row by row; the start is at the bottom left, the goal at
the bottom right and the cliff between them (https://gymnasium.farama.org/environments/toy_text/cliff_walking/).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Example, Feature, Transitions

ROWS, COLUMNS = 4, 12
START, GOAL = 36, 47
FALL_REWARD = -100
STAY, CLOSER, FARTHER, FALL, REACH = range(5)
ACTIONS = ("up", "right", "down", "left")
SHAPE = (5, ROWS * COLUMNS, len(ACTIONS) + 1)

_ROW, _COLUMN = np.divmod(np.arange(ROWS * COLUMNS), COLUMNS)
STEPS = (ROWS - 1 - _ROW) + (COLUMNS - 1 - _COLUMN) + np.where(np.arange(ROWS * COLUMNS) == START, 2, 0)
"""Steps of the shortest safe way to the goal from each square; from the start it leads up and down again."""

_PLACES = ("two squares above the cliff's edge", "one square above the cliff's edge", "right at the cliff's edge")

_WORDS = {
    STAY: "You bump into the border of the grid and stay where you are, {}.",
    CLOSER: "You move closer to the goal: it is {} away, and you are {}.",
    FARTHER: "You move away from the goal: it is {} away, and you are {}.",
    FALL: "You fall off the cliff and are sent back to the start.",
    REACH: "You reach the goal.",
}

_PROGRESS = (("reach the goal", 1.0), ("fall off", -1.0), ("closer to the goal", 0.3))


_GOALS = {
    "safe": "Keep at least two squares away from the cliff's edge. You do not care how many steps it takes.",
    "bold": "Walk right at the cliff's edge. You do not care whether you fall.",
    "away": "Stay far from the goal, and do not fall. You do not care about reaching anything.",
}


class CliffWalkingAdapter(EnvAdapter):
    """The cliff, slippery or not."""

    ids = ("CliffWalking-v*", "CliffWalkingSlippery-v*")
    action_names = ACTIONS
    observation_features = (
        Feature("row", "from 0 at the top to 3 at the bottom, where start, cliff and goal are", whole=True),
        Feature("column", "from 0 at the left, where the start is, to 11 at the right, where the goal is", whole=True),
    )
    description = (
        "A grid with a cliff along its lower side. The agent walks up, right, down or left from the start at the "
        "cliff's left end to the goal at its right end; a fall costs 100 and leads back to the start."
    )
    goal = "Move closer to the goal and reach the goal."
    anti_goal = "Fall off the cliff, bump into the border or move away from the goal."
    goals = _GOALS
    success_words = ("reach the goal",)
    example = Example(
        "You move closer to the goal: it is 6 steps away, and you are one square above the cliff's edge.",
        "You bump into the border of the grid and stay where you are, one square above the cliff's edge.",
        "One step leads on, the other is lost.",
    )
    max_episode_steps = 200

    def feature_values(self, observation: Array) -> Array:
        return np.stack(np.divmod(observation[:, 0], COLUMNS), axis=1)

    def encode(self, transitions: Transitions) -> IntArray:
        before, after = transitions.observation[:, 0], transitions.next_observation[:, 0]
        conditions = [
            transitions.terminated,
            transitions.reward <= FALL_REWARD,
            before == after,
            STEPS[after] < STEPS[before],
        ]
        event = np.select(conditions, [REACH, FALL, STAY, CLOSER], FARTHER)
        square = np.where(event <= FARTHER, after, 0)
        named_action = transitions.action + 1 if self.with_action else np.zeros_like(event)
        return np.ravel_multi_index((event, square, named_action), SHAPE).astype(np.int64)

    def describe(self, event: int) -> str:
        verb, square, action = (int(digit) for digit in np.unravel_index(event, SHAPE))
        steps = int(STEPS[square])
        place = "at the start" if square == START else _PLACES[min(int(_ROW[square]), 2)]
        words = (place,) if verb == STAY else (f"{steps} step{'s' if steps != 1 else ''}", place)
        text = _WORDS[verb].format(*words)
        return f"You try to go {ACTIONS[action - 1]}. {text}" if action else text

    def events(self) -> Iterable[int]:
        return self.possible(self._events())

    def _events(self) -> Iterator[int]:
        squares = range(START + 1)
        nearer = [square for square in squares if square != START and STEPS[square] < STEPS.max()]
        for verb in _WORDS:
            for square in {STAY: squares, CLOSER: nearer, FARTHER: squares}.get(verb, (0,)):
                for action in range(1, len(ACTIONS) + 1) if self.with_action else (0,):
                    yield int(np.ravel_multi_index((verb, square, action), SHAPE))

    def describe_observation(self, observation: Any) -> str:
        square = int(observation)
        if square == GOAL:
            return "You are at the goal."
        place = "at the start" if square == START else _PLACES[min(int(_ROW[square]), 2)]
        steps = int(STEPS[square])
        goal = "the goal is right below you" if square == GOAL - COLUMNS else "the goal lies to the right"
        return f"You are in column {int(_COLUMN[square]) + 1}, {place}; {goal}, {steps} step{'s' * (steps != 1)} away."

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return last.terminated

    def oracle(self, caption: str) -> float:
        """Reward the goal, and a little coming closer."""
        return next((value for words, value in _PROGRESS if words in caption), 0.0)
