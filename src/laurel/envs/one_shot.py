"""Games whose outcome is right or wrong by an objective stated in words; here those of one decision: ultimatum and
matrix games.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from laurel.arrays import BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.builtin.matrix_game import CONCEPTS, GAMES, MatrixGame, is_right
from laurel.envs.builtin.ultimatum import ACCEPT, OBJECTIVES, POTS, TENTHS, Ultimatum, wants


class ObjectiveAdapter(EnvAdapter, ABC):
    """An event is an outcome; the environment's reward is 1 for a right one."""

    anti_goal = "The outcome is not what the user wants."

    @abstractmethod
    def is_right(self, event: int) -> bool:
        """Whether an outcome is what the user wants."""

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return returns > 0

    def says_success(self, caption: str) -> bool:
        return caption in self._right

    def oracle(self, caption: str) -> float:
        """Return 1 for a right outcome."""
        return float(caption in self._right)

    @cached_property
    def _right(self) -> set[str]:
        return {self.describe(event) for event in self.events() if self.is_right(event)}


class UltimatumAdapter(ObjectiveAdapter):
    """An event is a pot, a share of it and an answer."""

    ids = ("laurel/Ultimatum-v*",)
    description = (
        "The ultimatum game. A proposer offers you a share of a pot of money. If you accept it, you get the share and "
        "the proposer the rest; if you refuse it, both of you get nothing."
    )
    goal = OBJECTIVES["low_percentage"]
    action_names = ("refuse", "accept")
    _objective = "low_percentage"

    def inspect(self, env: Any) -> None:
        game = env.unwrapped
        assert isinstance(game, Ultimatum)
        self._objective, self.goal = game.objective, OBJECTIVES[game.objective]

    def encode(self, transitions: Transitions) -> IntArray:
        pot, tenths = transitions.observation[:, 0].astype(np.int64), transitions.observation[:, 1].astype(np.int64)
        return (pot * (TENTHS + 1) + tenths) * 2 + transitions.action.astype(np.int64)

    def describe(self, event: int) -> str:
        pot, share, accepted = _offer(event)
        offer = f"The pot is {_dollars(pot)}, and your share would be {_dollars(share)} ({100 * share / pot:.0f}%)."
        if accepted:
            return f"{offer} You accept: you get {_dollars(share)}, the proposer gets {_dollars(pot - share)}."
        return f"{offer} You refuse: both of you get nothing."

    def describe_observation(self, observation: Any) -> str:
        pot = POTS[int(observation[0])]
        return f"The pot is {_dollars(pot)}; you are offered {_dollars(pot * int(observation[1]) / TENTHS)} of it."

    def events(self) -> Iterable[int]:
        return range(len(POTS) * (TENTHS + 1) * 2)

    def is_right(self, event: int) -> bool:
        pot, share, accepted = _offer(event)
        return wants(self._objective, share, pot) == accepted


class MatrixGameAdapter(ObjectiveAdapter):
    """An event is one of the four outcomes."""

    ids = ("laurel/MatrixGame-v*",)
    goal = CONCEPTS["total_welfare"]
    _game, _concept = GAMES["prisoner"], "total_welfare"

    @property
    def description(self) -> str:  # type: ignore[override]
        """The game with its four outcomes."""
        outcomes = " ".join(self.describe(event) for event in self.events())
        return f"A game of two players, {self._game.title}. It has four outcomes. {outcomes}"

    def inspect(self, env: Any) -> None:
        game = env.unwrapped
        assert isinstance(game, MatrixGame)
        self._game, self._concept, self.goal = game.game, game.concept, CONCEPTS[game.concept]

    def encode(self, transitions: Transitions) -> IntArray:
        return transitions.action.astype(np.int64)

    def describe(self, event: int) -> str:
        first, second = (self._game.moves[move] for move in divmod(event, 2))
        payoff = self._game.payoffs[event]
        return f"Player 1 {first} and gets {payoff[0]}; player 2 {second} and gets {payoff[1]}."

    def events(self) -> Iterable[int]:
        return range(len(self._game.payoffs))

    def is_right(self, event: int) -> bool:
        return is_right(self._concept, self._game.payoffs, event)


def _offer(event: int) -> tuple[int, float, bool]:
    """Return the pot and the share in dollars, and whether it is accepted."""
    place, answer = divmod(event, 2)
    pot, tenths = divmod(place, TENTHS + 1)
    return POTS[pot], POTS[pot] * tenths / TENTHS, answer == ACCEPT


def _dollars(amount: float) -> str:
    return f"${amount:.0f}" if float(amount).is_integer() else f"${amount:.2f}"
