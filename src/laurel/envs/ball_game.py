"""A small ball game between two teams; the commentary on each play is the step's caption.

The pitch has five zones. The team with the ball runs, passes or shoots; the other presses, holds or tackles. The
opponents are scripted: they shoot when near the goal and run otherwise. The first goal ends the game.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from laurel.arrays import BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Transitions

ZONES = 5
NEAR = 3
"""First zone from which a shot can score."""
US, THEM = 0, 1
ACTIONS = ("run, or press", "pass, or hold", "shoot, or tackle")
COMMENTARY: tuple[tuple[str, float], ...] = (
    ("You run forward with the ball.", 0.25),
    ("You run into your marker and lose the ball.", -0.5),
    ("You pass across, away from your marker.", 0.25),
    ("Your pass finds a team mate, who is marked.", 0.0),
    ("Your pass is intercepted.", -0.5),
    ("You shoot from near and lose the ball to the keeper.", -0.1),
    ("You shoot from far and give the ball away.", -0.5),
    ("You score a goal!", 1.0),
    ("You win the ball back.", 0.5),
    ("The opponents run past you with the ball.", -0.25),
    ("You hold your place, and the opponents keep the ball.", 0.0),
    ("The opponents shoot, and your keeper saves.", 0.25),
    ("You concede a goal.", -1.0),
)
"""The commentary on a play, and its hand-written progress: above 0 if it improves the chances of a good player."""
RUN, LOST, AWAY, TO_MARKED, INTERCEPTED, SAVED, WIDE, GOAL, *_THEIRS = range(len(COMMENTARY))
WON, PASSED, HELD, KEPT_OUT, CONCEDED = _THEIRS


class BallGame(gym.Env[IntArray, np.int64]):
    """Score before the opponents do: reward 1 for a goal, -1 for theirs. Observations: zone of the ball, who has it,
    whether marked.

    Zones count towards the goal of the side that does not have the ball.

    >>> env = BallGame()
    >>> env.reset(seed=0)[0].tolist()
    [1, 0, 0]
    >>> env.step(0)[4]["play"]
    0
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, *, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gym.spaces.MultiDiscrete([ZONES, 2, 2])
        self.action_space = gym.spaces.Discrete(len(ACTIONS))
        self._zone, self._holder, self._marked, self._play = 1, US, 0, -1

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[IntArray, dict[str, Any]]:
        super().reset(seed=seed)
        self._zone, self._holder, self._marked, self._play = 1, US, int(self.np_random.random() < 0.5), -1
        return self._observed(), {"play": -1}

    def step(self, action: np.int64) -> tuple[IntArray, float, bool, bool, dict[str, Any]]:
        self._play = self._attack(int(action)) if self._holder == US else self._defend(int(action))
        reward = {GOAL: 1.0, CONCEDED: -1.0}.get(self._play, 0.0)
        return self._observed(), reward, reward != 0, False, {"play": self._play}

    def render(self) -> str | None:
        return COMMENTARY[self._play][0] if self.render_mode and self._play >= 0 else None

    def _attack(self, action: int) -> int:
        """Step with the ball in possession; return the play."""
        chance = self.np_random.random()
        if action == 0:
            if self._marked and chance < 0.6:
                return self._turn_over(LOST)
            self._zone, self._marked = min(self._zone + 1, ZONES - 1), int(self.np_random.random() < 0.5)
            return RUN
        if action == 1:
            if chance < (0.1 if self._marked else 0.4):
                return self._turn_over(INTERCEPTED)
            self._marked = 1 - self._marked
            return TO_MARKED if self._marked else AWAY
        if self._zone < NEAR:
            return self._turn_over(WIDE)
        return GOAL if chance < (0.2 if self._marked else 0.7) else self._turn_over(SAVED)

    def _defend(self, action: int) -> int:
        """Step without possession; return the play."""
        chance = self.np_random.random()
        if chance < (0.4, 0.15, 0.25)[action]:
            self._zone, self._holder, self._marked = ZONES - 1 - self._zone, US, 0
            return WON
        if self._zone >= NEAR:
            if self.np_random.random() < (0.4, 0.3, 0.6)[action]:
                return CONCEDED
            self._zone, self._holder, self._marked = 0, US, 0
            return KEPT_OUT
        if action == 1 and self.np_random.random() < 0.5:
            return HELD
        self._zone += 1
        return PASSED

    def _turn_over(self, play: int) -> int:
        self._zone, self._holder, self._marked = ZONES - 1 - self._zone, THEM, 0
        return play

    def _observed(self) -> IntArray:
        return np.array([self._zone, self._holder, self._marked], dtype=np.int64)


class BallGameAdapter(EnvAdapter):
    """Each event is a play; its caption is the commentary."""

    ids = ("laurel/BallGame-v*",)
    version = 2
    description = (
        "A ball game of two sides on a small pitch. You carry the ball towards the opponents' goal and shoot from "
        "near; when they have it, you win it back before they shoot. The first goal ends the game."
    )
    goal = "You win the ball, carry it forward past your marker, and score a goal."
    anti_goal = "You lose the ball and concede a goal."
    action_names = ACTIONS
    info_fields: ClassVar[Mapping[str, str]] = MappingProxyType({"play": "int64"})

    def encode(self, transitions: Transitions) -> IntArray:
        return transitions.info["play"].astype(np.int64)

    def describe(self, event: int) -> str:
        return COMMENTARY[event][0] if event >= 0 else ""

    def events(self) -> Iterable[int]:
        return range(len(COMMENTARY))

    def describe_observation(self, observation: Any) -> str:
        zone, holder, marked = map(int, observation)
        if holder == THEM:
            return f"The opponents have the ball, {ZONES - zone} zones from your goal line."
        marker = "" if marked else "not "
        return f"You have the ball, {ZONES - zone} zones from the opponents' goal line, and are {marker}marked."

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return returns > 0

    def says_success(self, caption: str) -> bool:
        return caption == COMMENTARY[GOAL][0]

    def oracle(self, caption: str) -> float:
        """Return the progress of a play."""
        return _PROGRESS.get(caption, 0.0)


_PROGRESS = dict(COMMENTARY)
