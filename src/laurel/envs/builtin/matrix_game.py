"""Two-player matrix games: the agent moves for both players and must pick an outcome that a solution concept selects.

After Kwon et al. 2023, "Reward Design with Language Models" (arXiv 2303.00001): four games, and the concepts total
welfare, equality, Rawlsian fairness and Pareto optimality. Payoffs are those of a textbook (Osborne and Rubinstein
1994).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.errors import EnvError, no_such

Payoff = tuple[int, int]


@dataclass(frozen=True)
class Game:
    """Two moves for each player; outcome 2 i + j is the first player's move i and the second's j."""

    title: str
    moves: tuple[str, str]
    payoffs: tuple[Payoff, Payoff, Payoff, Payoff]


GAMES: Mapping[str, Game] = MappingProxyType(
    {
        "prisoner": Game("the prisoner's dilemma", ("cooperates", "defects"), ((3, 3), (0, 4), (4, 0), (1, 1))),
        "chicken": Game("chicken", ("swerves", "drives straight on"), ((3, 3), (1, 4), (4, 1), (0, 0))),
        "stag_hunt": Game("the stag hunt", ("hunts the stag", "hunts a hare"), ((4, 4), (0, 3), (3, 0), (2, 2))),
        "battle": Game("Bach or Stravinsky", ("goes to Bach", "goes to Stravinsky"), ((2, 1), (0, 0), (0, 0), (1, 2))),
    }
)
CONCEPTS: Mapping[str, str] = MappingProxyType(
    {
        "total_welfare": "The outcome has the highest sum of both players' payoffs that any outcome has.",
        "equality": "Both players get the same payoff.",
        "rawls": "The player who gets less gets the most that such a player gets in any outcome.",
        "pareto": "No other outcome is better for one player without being worse for the other.",
    }
)
"""Name -> description of the right outcomes."""


def is_right(concept: str, payoffs: tuple[Payoff, ...], outcome: int) -> bool:
    """Whether a concept selects an outcome."""
    payoff = payoffs[outcome]
    match concept:
        case "total_welfare":
            return sum(payoff) == max(map(sum, payoffs))
        case "equality":
            return payoff[0] == payoff[1]
        case "rawls":
            return min(payoff) == max(map(min, payoffs))
        case _:
            return not any(rival != payoff and rival[0] >= payoff[0] and rival[1] >= payoff[1] for rival in payoffs)


class MatrixGame(gym.Env[np.int64, np.int64]):
    """One outcome per episode: reward 1 if the concept selects it, else 0.

    Args:
        game: a key of GAMES.
        concept: a key of CONCEPTS.

    Raises:
        EnvError: there is no such game or concept.

    >>> env = MatrixGame(game="stag_hunt", concept="equality")
    >>> env.reset()[0], [env.step(outcome)[1] for outcome in range(4)]
    (np.int64(0), [1.0, 0.0, 0.0, 1.0])
    """

    def __init__(self, *, game: str = "prisoner", concept: str = "total_welfare") -> None:
        for value, known, noun in ((game, GAMES, "game"), (concept, CONCEPTS, "concept")):
            if value not in known:
                raise EnvError(f"MatrixGame: {no_such(noun, value, known)}.")
        self.game, self.concept = GAMES[game], concept
        self.observation_space = gym.spaces.Discrete(1)
        self.action_space = gym.spaces.Discrete(len(self.game.payoffs))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        return np.int64(0), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        return np.int64(0), float(is_right(self.concept, self.game.payoffs, int(action))), True, False, {}
