"""Lunar lander: captions of the lander's position, descent, tilt and ground contact.

Observations are position, velocity, angle, angular velocity and both legs' contacts
(https://gymnasium.farama.org/environments/box2d/lunar_lander/); the pad is at the origin, 0.2 to either side.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Example, Feature, Transitions

PAD = 0.2
HEIGHTS = (0.35, 0.85)
ALTITUDES = ("low", "at medium height", "high up", "with one leg on the ground", "with both legs on the ground")
SIDES = ("to the left of the landing pad", "over the landing pad", "to the right of the landing pad")
SPEEDS = (-0.5, -0.2, -0.03, 0.03)
MOTIONS = ("falls dangerously fast", "descends fast", "descends gently", "hovers", "climbs")
TILTS = (-0.4, -0.12, 0.12, 0.4)
POSTURES = ("tilted far to the right", "tilted to the right", "upright", "tilted to the left", "tilted far to the left")
DRIFT = 0.1
"""Horizontal speed above which a caption says that the lander drifts."""
SPIN = 0.15
CRASH_REWARD = -100
SOLVED = 200

FLY, CRASH, FLY_AWAY, LAND, LAND_BESIDE = range(5)
SHAPE = (5, len(ALTITUDES), len(SIDES), len(MOTIONS), len(POSTURES), 7)

_ENDS = {
    CRASH: "The lander crashes.",
    FLY_AWAY: "The lander flies out of sight.",
    LAND: "The lander comes to rest safely on the landing pad.",
    LAND_BESIDE: "The lander comes to rest safely, but beside the landing pad.",
}
_ENGINES = (
    "no engine",
    "the left engine",
    "the main engine",
    "the right engine",
    "the main and the left engine",
    "the main and the right engine",
)


_GOALS = {
    "hover": "The lander hovers, upright and high up. You do not care about landing.",
    "upright": "The lander is upright and never falls fast. You do not care where it comes down.",
    "quick": "The lander comes down to the landing pad as fast as it can without a crash. You do not care how it tilts "
    "on the way.",
}


class LunarLanderAdapter(EnvAdapter):
    """The lander with four engine commands, or with continuous throttles."""

    ids = ("LunarLander-v*", "LunarLanderContinuous-v*")
    action_names = ("no engine", "left engine", "main engine", "right engine")
    observation_features = (
        Feature("x", "sideways from the pad, positive to the right; the pad reaches from -0.2 to 0.2"),
        Feature("y", "height above the pad"),
        Feature("x_velocity", "positive to the right"),
        Feature("y_velocity", "negative downwards"),
        Feature("angle", "radians from upright, positive to the left"),
        Feature("angular_velocity", "of the angle"),
        Feature("left_leg", "1 where the left leg touches the ground, otherwise 0"),
        Feature("right_leg", "1 where the right leg touches the ground, otherwise 0"),
    )
    description = (
        "A lander comes down on the moon. It fires its left, right or main engine to land upright and gently "
        "on the landing pad in the middle, without crashing or flying away."
    )
    goal = "The lander descends gently and upright and comes to rest safely on the landing pad."
    anti_goal = "The lander falls dangerously fast, tilted far to the side, crashes or flies out of sight."
    goals = _GOALS
    success_words = ("comes to rest safely on the landing pad",)
    example = Example(
        "The lander descends gently, low, upright, over the landing pad.",
        "The lander descends fast, low, tilted to the left, over the landing pad.",
        "Both are about to land on the pad, but only the slow and upright one will stand.",
    )

    def encode(self, transitions: Transitions) -> IntArray:
        after = transitions.next_observation
        x, height, climb, angle = (after[:, column] for column in (0, 1, 3, 4))
        ended = transitions.terminated
        failed = transitions.reward <= CRASH_REWARD
        over_pad = np.abs(x) <= PAD
        conditions = [ended & failed & (np.abs(x) >= 1), ended & failed, ended & over_pad, ended]
        event = np.select(conditions, [FLY_AWAY, CRASH, LAND, LAND_BESIDE], FLY)
        legs = (after[:, 6:8] > 0.5).sum(axis=1)
        state = (
            np.where(legs > 0, 2 + legs, np.searchsorted(HEIGHTS, height, side="right")),
            np.where(over_pad, 1, np.where(x < 0, 0, 2)),
            np.searchsorted(SPEEDS, climb, side="right"),
            np.searchsorted(TILTS, angle, side="right"),
        )
        engine = _engine(transitions.action) if self.with_action else np.zeros_like(event)
        return np.ravel_multi_index((event, *(np.where(ended, 0, digit) for digit in state), engine), SHAPE).astype(
            np.int64
        )

    def describe(self, event: int) -> str:
        verb, altitude, side, motion, posture, engine = (int(digit) for digit in np.unravel_index(event, SHAPE))
        if verb in _ENDS:
            text = _ENDS[verb]
        elif altitude >= len(HEIGHTS) + 1 and motion in (2, 3):
            text = f"The lander stands {ALTITUDES[altitude]}, {POSTURES[posture]}, {SIDES[side]}."
        else:
            text = f"The lander {MOTIONS[motion]}, {ALTITUDES[altitude]}, {POSTURES[posture]}, {SIDES[side]}."
        return f"You fire {_ENGINES[engine - 1]}. {text}" if engine else text

    def events(self) -> Iterable[int]:
        engines = range(1, 5 if self._discrete else 7) if self.with_action else (0,)
        for engine in engines:
            for state in np.ndindex(*SHAPE[1:5]):
                yield int(np.ravel_multi_index((FLY, *state, engine), SHAPE))
            for verb in _ENDS:
                yield int(np.ravel_multi_index((verb, 0, 0, 0, 0, engine), SHAPE))

    @property
    def _discrete(self) -> bool:
        return self.action_space.shape == ()

    def describe_observation(self, observation: Any) -> str:
        """Describe the state as captions do, plus drift and rotation, which an actor needs to steer."""
        drift, turn = float(observation[2]), float(observation[5])
        sentences = [self.caption_of_arrival(observation)]
        if abs(drift) > DRIFT:
            sentences.append(f"It drifts to the {'right' if drift > 0 else 'left'}.")
        if abs(turn) > SPIN:
            sentences.append(f"It turns to the {'left' if turn > 0 else 'right'}.")
        return " ".join(sentences)

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return returns >= SOLVED

    def oracle(self, caption: str) -> float:
        """Reward descending gently, upright and over the pad, and most of all landing.

        Rest beside the pad is nearly as good as standing upright on it: the environment pays 100 for any rest.
        """
        if any(end in caption for end in ("crashes", "out of sight", "dangerously")):
            return -1.0
        if "comes to rest" in caption:
            return 0.7 if "beside" in caption else 1.0
        calm = any(words in caption for words in ("descends gently", "hovers", "stands"))
        return (
            0.2 * calm
            + 0.2 * ("upright" in caption)
            + 0.2 * ("over the landing pad" in caption)
            + 0.2 * ("on the ground" in caption)
        )


def _engine(action: Array) -> IntArray:
    """Return 1 for no engine, 2 left, 3 main, 4 right, 5 main and left, 6 main and right."""
    if action.ndim == 1:
        return action.astype(np.int64) + 1
    main, side = action[:, 0] > 0, action[:, 1]
    left, right = side < -0.5, side > 0.5
    return np.select([main & left, main & right, main, left, right], [5, 6, 3, 2, 4], 1)
