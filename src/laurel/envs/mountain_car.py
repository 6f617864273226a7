"""Mountain car: captions of the car's slope, height, direction and speed.

Observations are position and velocity (https://gymnasium.farama.org/environments/classic_control/mountain_car/);
the valley's floor is at -0.52, the flag at 0.5 on the right hill (0.45 in the continuous form).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from laurel.arrays import BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Example, Feature, Transitions

POSITIONS = (-0.9, -0.65, -0.4, -0.1, 0.2)
SLOPES = ("left", "left", "", "right", "right", "right")
HEIGHTS = ("high up", "low down", "at the bottom of the valley", "low down", "halfway up", "close to the flag")
VELOCITIES = (-0.035, -0.015, -0.002, 0.002, 0.015, 0.035)
PACES = ("fast", "at a medium speed", "slowly")
STILL = 3
WALL = -1.2

MOVE, HIT_WALL, REACH_FLAG = range(3)
SHAPE = (3, len(SLOPES), len(VELOCITIES) + 1, 4)
_PUSHES = ("left", "not at all", "right")

_POTENTIAL = (0.6, 0.15, 0.0, 0.2, 0.5, 0.85)
_KINETIC = (0.5, 0.1, 0.0, 0.0, 0.0, 0.1, 0.5)


_GOALS = {
    "fast": "The car rolls fast, whichever way. It does not care about the flag.",
    "rest": "The car stands still at the bottom of the valley. It does not care about the flag.",
    "left": "The car climbs high up on the left slope. It does not care about the flag on the right hill.",
}


class MountainCarAdapter(EnvAdapter):
    """The car with three pushes, or with a continuous force."""

    ids = ("MountainCar-v*", "MountainCarContinuous-v*")
    action_names = ("push left", "do not push", "push right")
    observation_features = (
        Feature("position", "along the track, from -1.2 to 0.6; the valley's floor is at -0.52, the flag at 0.5"),
        Feature("velocity", "units a step, from -0.07 to 0.07, positive to the right"),
    )
    description = (
        "A car with a weak engine stands in a valley between two hills. It must swing back and forth to gain speed "
        "and climb the right hill up to the flag."
    )
    goal = (
        "The car swings back and forth, faster and higher on either slope, until it reaches the flag on the right hill."
    )
    encoder_goal = "The car climbs the right slope and reaches the flag on the right hill."
    anti_goal = "The car stands still or rolls slowly at the bottom of the valley."
    goals = _GOALS
    success_words = ("reaches the flag",)
    example = Example(
        "The car climbs the right slope at a medium speed, halfway up.",
        "The car climbs the right slope slowly, low down.",
        "It is higher and faster, so that it has more of what the hill takes.",
    )

    def encode(self, transitions: Transitions) -> IntArray:
        after = transitions.next_observation
        place = np.searchsorted(POSITIONS, after[:, 0], side="right")
        pace = np.searchsorted(VELOCITIES, after[:, 1], side="right")
        event = np.select([transitions.terminated, after[:, 0] <= np.float32(WALL)], [REACH_FLAG, HIT_WALL], MOVE)
        moves = event == MOVE
        push = self._push(transitions) if self.with_action else np.zeros_like(event)
        return np.ravel_multi_index((event, np.where(moves, place, 0), np.where(moves, pace, 0), push), SHAPE).astype(
            np.int64
        )

    def _push(self, transitions: Transitions) -> IntArray:
        """Return 1 for a push to the left, 2 for none (or a faint one), 3 to the right."""
        if transitions.action.ndim == 1:
            return transitions.action.astype(np.int64) + 1
        return 1 + np.searchsorted((-0.1, 0.1), transitions.action[:, 0])

    def describe(self, event: int) -> str:
        verb, place, pace, push = (int(digit) for digit in np.unravel_index(event, SHAPE))
        if verb == REACH_FLAG:
            text = "The car reaches the flag on the right hill."
        elif verb == HIT_WALL:
            text = "The car hits the wall at the far left."
        else:
            text = f"The car {_motion(place, pace)}, {HEIGHTS[place]}."
        return f"You push {_PUSHES[push - 1]}. {text}" if push else text

    def events(self) -> Iterable[int]:
        for push in (1, 2, 3) if self.with_action else (0,):
            for place, pace in np.ndindex(*SHAPE[1:3]):
                yield int(np.ravel_multi_index((MOVE, place, pace, push), SHAPE))
            for verb in (HIT_WALL, REACH_FLAG):
                yield int(np.ravel_multi_index((verb, 0, 0, push), SHAPE))

    def describe_observation(self, observation: Any) -> str:
        return self.caption_of_arrival(observation)

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return last.terminated

    def oracle(self, caption: str) -> float:
        """Reward potential and kinetic energy, which the car needs to reach the flag."""
        return max((value for text, value in self._progress.items() if text in caption), default=0.0)

    @cached_property
    def _progress(self) -> dict[str, float]:
        progress = {}
        for event in self.events():
            verb, place, pace, _ = (int(digit) for digit in np.unravel_index(event, SHAPE))
            energy = _POTENTIAL[place] + _KINETIC[pace]
            progress[self.describe(event)] = {MOVE: min(energy, 0.9), HIT_WALL: 0.6, REACH_FLAG: 1.0}[verb]
        return progress


def _motion(place: int, pace: int) -> str:
    """Say which way the car goes, and how fast."""
    slope = SLOPES[place]
    if pace == STILL:
        return f"stands still on the {slope} slope" if slope else "stands still"
    way = "left" if pace < STILL else "right"
    speed = PACES[min(pace, len(VELOCITIES) - pace)]
    if not slope:
        return f"rolls to the {way} {speed}"
    return f"{'climbs' if slope == way else 'rolls down'} the {slope} slope {speed}"
