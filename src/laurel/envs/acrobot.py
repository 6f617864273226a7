"""Acrobot: captions of the tip's height and whether it rises.

Observations are cosine and sine of both joints' angles and their velocities
(https://gymnasium.farama.org/environments/classic_control/acrobot/); the tip's height runs from -2, hanging
down, to 2, and an episode ends above 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Example, Feature, Transitions

HEIGHTS = (-1.6, -1.0, -0.3, 0.4)
PLACES = (
    "hangs at the bottom",
    "is low",
    "is somewhat below the middle",
    "is about the middle",
    "is high, close to the line",
)
CHANGES = (-0.2, -0.03, 0.03, 0.2)
MOTIONS = ("and falls fast", "and falls slowly", "and hardly moves", "and rises slowly", "and rises fast")

STEP_SECONDS = 0.2
"""Simulated seconds per environment step."""
AT_REST = 0.1
"""Angular velocity (rad/s) below which a caption says that a link is at rest."""

SWING, REACH = range(2)
SHAPE = (2, len(PLACES), len(MOTIONS), 4)
_TORQUES = ("negative torque", "no torque", "positive torque")


_GOALS = {
    "fast": "The tip moves fast, up or down. You do not care about the line.",
    "rest": "The tip hangs at the bottom and hardly moves. You do not care about the line.",
    "middle": "The tip is about the middle. You do not care about the line, or how fast the tip moves.",
}


class AcrobotAdapter(EnvAdapter):
    """Two links that hang from a joint and swing up by a torque between them."""

    ids = ("Acrobot-v*",)
    action_names = _TORQUES
    observation_features = (
        Feature("cos_theta1", "cosine of the first bar's angle to straight down, from -1 to 1"),
        Feature("sin_theta1", "sine of the first bar's angle, from -1 to 1"),
        Feature("cos_theta2", "cosine of the second bar's angle to the first bar, from -1 to 1"),
        Feature("sin_theta2", "sine of the second bar's angle, from -1 to 1"),
        Feature("velocity1", "radians a second of the first angle, from -12.57 to 12.57"),
        Feature("velocity2", "radians a second of the second angle, from -28.27 to 28.27"),
    )
    description = (
        "Two linked bars hang from a fixed joint; a torque on the joint between them must swing the free tip "
        "above a line that is one bar's length over the fixed joint."
    )
    goal = "The tip swings fast and high, and above the line."
    encoder_goal = "The tip rises and swings above the line."
    anti_goal = "The tip hangs at the bottom and hardly moves."
    goals = _GOALS
    success_words = ("swings above the line",)
    example = Example(
        "The tip is about the middle and rises fast.",
        "The tip hangs at the bottom and rises slowly.",
        "It is higher and faster, and a swing gathers both until it reaches the line.",
    )

    def encode(self, transitions: Transitions) -> IntArray:
        height = _height(transitions.next_observation)
        place = np.searchsorted(HEIGHTS, height, side="right")
        motion = np.searchsorted(CHANGES, height - _height(transitions.observation), side="right")
        reached = transitions.terminated
        torque = transitions.action + 1 if self.with_action else np.zeros_like(place)
        digits = (reached.astype(np.int64), np.where(reached, 0, place), np.where(reached, 0, motion), torque)
        return np.ravel_multi_index(digits, SHAPE).astype(np.int64)

    def describe(self, event: int) -> str:
        verb, place, motion, torque = (int(digit) for digit in np.unravel_index(event, SHAPE))
        text = "The tip swings above the line." if verb == REACH else f"The tip {PLACES[place]} {MOTIONS[motion]}."
        return f"You apply {_TORQUES[torque - 1]}. {text}" if torque else text

    def events(self) -> Iterable[int]:
        for torque in (1, 2, 3) if self.with_action else (0,):
            for place, motion in np.ndindex(len(PLACES), len(MOTIONS)):
                yield int(np.ravel_multi_index((SWING, place, motion, torque), SHAPE))
            yield int(np.ravel_multi_index((REACH, 0, 0, torque), SHAPE))

    def describe_observation(self, observation: Any) -> str:
        """Say how high the tip is, whether it rises, and which way each bar turns."""
        row = np.asarray(observation, dtype=np.float64)
        cos_a, sin_a, cos_b, sin_b, turn_a, turn_b = row
        sin_ab = sin_a * cos_b + cos_a * sin_b
        change = STEP_SECONDS * (sin_a * turn_a + sin_ab * (turn_a + turn_b))
        place = int(np.searchsorted(HEIGHTS, _height(row[None])[0], side="right"))
        motion = int(np.searchsorted(CHANGES, change, side="right"))
        turns = " and ".join(
            f"the {ordinal} bar turns {'with a positive' if turn > 0 else 'with a negative'} speed"
            for ordinal, turn in (("first", turn_a), ("second", turn_b))
            if abs(turn) > AT_REST
        )
        return f"The tip {PLACES[place]} {MOTIONS[motion]}" + (f"; {turns}." if turns else "; both bars rest.")

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return last.terminated

    def oracle(self, caption: str) -> float:
        """Reward height, and speed in either direction, since a swing needs both."""
        return max((value for text, value in self._progress.items() if text in caption), default=0.0)

    @cached_property
    def _progress(self) -> dict[str, float]:
        progress = {}
        for event in self.events():
            verb, place, motion, _ = (int(digit) for digit in np.unravel_index(event, SHAPE))
            speed = abs(motion - len(MOTIONS) // 2)
            progress[self.describe(event)] = 1.0 if verb == REACH else 0.15 * place + 0.1 * speed
        return progress


def _height(observation: Array) -> FloatArray:
    """Return the tip's height (N,): -cos(a) - cos(a + b), from cosines and sines of a and b."""
    cos_a, sin_a, cos_b, sin_b = observation[:, :4].T
    return -cos_a - (cos_a * cos_b - sin_a * sin_b)
