"""Cart pole: captions of the pole's angle and motion, and of the cart's position.

Observations are position, velocity, angle and angular velocity
(https://gymnasium.farama.org/environments/classic_control/cart_pole/); an episode ends beyond 12 degrees or
2.4 units from the middle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from laurel.arrays import BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Example, Feature, Transitions

FALLEN = 12 * 2 * np.pi / 360
ANGLES = (-0.1, -0.03, 0.03, 0.1)
LEANS = (
    "leans far to the left",
    "leans slightly to the left",
    "is upright",
    "leans slightly to the right",
    "leans far to the right",
)
TURNS = (-0.4, 0.4)
POSITIONS = (-1.6, -0.8, 0.8, 1.6)
PLACES = (
    "close to the left end of the track",
    "left of the middle",
    "near the middle",
    "right of the middle",
    "close to the right end of the track",
)

BALANCE, POLE_LEFT, POLE_RIGHT, CART_LEFT, CART_RIGHT = range(5)
SHAPE = (5, len(LEANS), 3, len(PLACES), 3)

_ENDS = {
    POLE_LEFT: "The pole falls over to the left.",
    POLE_RIGHT: "The pole falls over to the right.",
    CART_LEFT: "The cart runs off the left end of the track.",
    CART_RIGHT: "The cart runs off the right end of the track.",
}


_GOALS = {
    "centre": "The cart is near the middle. You do not care how the pole leans while it does not fall.",
    "edge": "The cart is close to an end of the track, with the pole up. You do not care about the middle.",
    "swing": "The pole leans and swings back, again and again. You do not care where the cart is.",
}


class CartPoleAdapter(EnvAdapter):
    """The pole on the cart; an episode that lasts to its limit is a success."""

    ids = ("CartPole-v*",)
    action_names = ("push left", "push right")
    observation_features = (
        Feature("cart_position", "from the middle of the track, positive to the right; the episode ends beyond 2.4"),
        Feature("cart_velocity", "units a second, positive to the right"),
        Feature("pole_angle", "radians from upright, positive to the right; the episode ends beyond 0.2095"),
        Feature("pole_angular_velocity", "radians a second, positive to the right"),
    )
    description = "A pole stands on a cart that is pushed left or right; the pole must not fall, nor the cart run away."
    goal = "The pole is upright and steady, and the cart is near the middle."
    anti_goal = "The pole leans far to the side and falls over, or the cart runs off the end of the track."
    goals = _GOALS
    example = Example(
        "The pole leans slightly to the right but swings back; the cart is near the middle.",
        "The pole leans slightly to the right and is falling; the cart is near the middle.",
        "The pole leans alike in both, but in one of them it is on its way back up.",
    )

    def encode(self, transitions: Transitions) -> IntArray:
        x, angle, turning = (transitions.next_observation[:, column] for column in (0, 2, 3))
        ended = transitions.terminated
        conditions = [ended & (angle < -FALLEN), ended & (angle > FALLEN), ended & (x < 0), ended]
        event = np.select(conditions, [POLE_LEFT, POLE_RIGHT, CART_LEFT, CART_RIGHT], BALANCE)
        lean = np.searchsorted(ANGLES, angle, side="right")
        turn = np.searchsorted(TURNS, turning, side="right")
        place = np.searchsorted(POSITIONS, x, side="right")
        state = [np.where(ended, 0, digit) for digit in (lean, turn, place)]
        push = transitions.action + 1 if self.with_action else np.zeros_like(event)
        return np.ravel_multi_index((event, *state, push), SHAPE).astype(np.int64)

    def describe(self, event: int) -> str:
        verb, lean, turn, place, push = (int(digit) for digit in np.unravel_index(event, SHAPE))
        text = (
            _ENDS[verb]
            if verb in _ENDS
            else f"The pole {LEANS[lean]} {_motion(lean, turn)}; the cart is {PLACES[place]}."
        )
        return f"You push {('left', 'right')[push - 1]}. {text}" if push else text

    def events(self) -> Iterable[int]:
        for push in (1, 2) if self.with_action else (0,):
            for state in np.ndindex(*SHAPE[1:4]):
                yield int(np.ravel_multi_index((BALANCE, *state, push), SHAPE))
            for verb in _ENDS:
                yield int(np.ravel_multi_index((verb, 0, 0, 0, push), SHAPE))

    def describe_observation(self, observation: Any) -> str:
        return self.caption_of_arrival(observation)

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return ~last.terminated

    def oracle(self, caption: str) -> float:
        """Reward an upright pole, most if it is steady, and a cart away from the ends of the track."""
        if "falls over" in caption or "runs off" in caption:
            return -1.0
        pole = (
            1.0 if "upright and steady" in caption else 0.6 if "upright" in caption or "swings back" in caption else 0.0
        )
        return pole * (0.3 if "end of the track" in caption else 1.0)


def _motion(lean: int, turn: int) -> str:
    """Say where the pole is going: 0 left, 1 nowhere, 2 right."""
    if turn == 1:
        return "and steady" if lean == 2 else "and stays there"
    if lean == 2:
        return f"but tips to the {'left' if turn == 0 else 'right'}"
    falling = (lean < 2) == (turn == 0)
    return "and is falling" if falling else "but swings back"
