"""A negotiation over a few items, in coarse dialogue acts, against a scripted partner.

The goal is a user's preferred negotiating style. After Kwon et al. 2023, "Reward Design with Language Models" (arXiv
2303.00001), whose four styles these are, for Deal or No Deal (Lewis et al. 2017, arXiv 1706.05125). Simplified: items
and their values are fixed, and there are five acts and three turns, so that all dialogues can be enumerated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.arrays import IntArray
from laurel.errors import EnvError, no_such


@dataclass(frozen=True)
class Split:
    """A division of a book, two hats and a ball."""

    yours: str
    """Your share, as a phrase."""
    points: tuple[int, int]
    """Points of both sides."""


DESCRIPTION = (
    "You and a partner divide a book, two hats and a ball. To you the book is worth 4 points, a hat 2 and the ball 2; "
    "to your partner the book 2 points, a hat 3 and the ball 2. In each of three turns at most you make a proposal or "
    "agree to your partner's. Without a deal nobody gets a point."
)
PROPOSALS = (
    Split("everything", (10, 0)),
    Split("the book and both hats", (8, 2)),
    Split("the book and a hat", (6, 5)),
    Split("the ball", (2, 8)),
)
"""Yours: acts 1 to 4."""
OFFERS = (Split("the ball", (2, 8)), Split("a hat and the ball", (4, 5)), Split("the book and a hat", (6, 5)))
"""Your partner's, one a turn."""
TURNS = len(OFFERS)
NOT_YET, AGREE = 0, len(PROPOSALS) + 1
LIMITS = (2, 5, 8)
"""Points that the partner accepts, unless its own offer gives it fewer; drawn for each episode and hidden."""
STYLES: Mapping[str, str] = MappingProxyType(
    {
        "versatile": "You make at least two proposals, and none of them twice.",
        "stubborn": "You make at least two proposals, and all of them are the same.",
        "competitive": "There is a deal in which you get more points than your partner.",
        "pushover": "There is a deal in which you get fewer points than your partner.",
    }
)
"""Name -> how the user wants you to negotiate, in words."""


def row(acts: Sequence[int], accepted: bool) -> tuple[int, ...]:
    """Return a dialogue as an observation."""
    return *acts, *(NOT_YET,) * (TURNS - len(acts)), int(accepted)


def points(acts: Sequence[int], accepted: bool) -> tuple[int, int]:
    """Return both sides' points after these acts of yours, the last of which your partner accepted or not."""
    if acts and acts[-1] == AGREE:
        return OFFERS[len(acts) - 1].points
    return PROPOSALS[acts[-1] - 1].points if accepted else (0, 0)


def shows(style: str, acts: Sequence[int], accepted: bool) -> bool:
    """Whether a finished dialogue shows a style."""
    proposed = [act for act in acts if act != AGREE]
    mine, partner = points(acts, accepted)
    match style:
        case "versatile":
            return len(proposed) > 1 and len({*proposed}) == len(proposed)
        case "stubborn":
            return len(proposed) > 1 and len({*proposed}) == 1
        case "competitive":
            return mine > partner
        case "pushover":
            return mine < partner
        case _:
            raise ValueError(f"unknown style: {style}")


def accepts(limit: int, turn: int, act: int) -> bool:
    """Whether a partner with this limit accepts your act in a turn, if it is a proposal."""
    return act != AGREE and PROPOSALS[act - 1].points[1] >= min(limit, OFFERS[turn].points[1])


def has_ended(acts: Sequence[int], accepted: bool) -> bool:
    """Whether a dialogue is over: by a deal, or because there are no further turns."""
    return accepted or len(acts) == TURNS or (len(acts) > 0 and acts[-1] == AGREE)


def dialogues(acts: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], bool]]:
    """List all complete dialogues that start with these acts: the acts, and whether the last was accepted."""
    refused_by = [limit for limit in LIMITS if not any(accepts(limit, turn, act) for turn, act in enumerate(acts))]
    for act in range(1, AGREE + 1):
        tried = (*acts, act)
        for accepted in sorted({accepts(limit, len(acts), act) for limit in refused_by}):
            if has_ended(tried, accepted):
                yield tried, accepted
            else:
                yield from dialogues(tried)


class Negotiation(gym.Env[IntArray, np.int64]):
    """One negotiation per episode: reward 1 at its end if it shows the style, else 0.

    Observations hold your acts so far, NOT_YET for turns to come, and whether the last one was accepted. Actions are
    the four proposals and agreeing.

    Args:
        style: a key of STYLES.

    Raises:
        EnvError: there is no such style.

    >>> env = Negotiation(style="stubborn")
    >>> env.reset(seed=0)[0].tolist()
    [0, 0, 0, 0]
    >>> [env.step(0)[1] for _ in range(3)]  # everything, three times
    [0.0, 0.0, 1.0]
    """

    def __init__(self, *, style: str = "versatile") -> None:
        if style not in STYLES:
            raise EnvError(f"Negotiation: {no_such('style', style, STYLES)}.")
        self.style = style
        self.observation_space = gym.spaces.MultiDiscrete([AGREE + 1] * TURNS + [2])
        self.action_space = gym.spaces.Discrete(AGREE)
        self._acts: list[int] = []
        self._limit = LIMITS[0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[IntArray, dict[str, Any]]:
        super().reset(seed=seed)
        self._acts = []
        self._limit = int(self.np_random.choice(LIMITS))
        return self._observed(False), {}

    def step(self, action: np.int64) -> tuple[IntArray, float, bool, bool, dict[str, Any]]:
        act = int(action) + 1
        accepted = accepts(self._limit, len(self._acts), act)
        self._acts.append(act)
        ended = has_ended(self._acts, accepted)
        paid = ended and shows(self.style, self._acts, accepted)
        return self._observed(accepted), float(paid), ended, False, {}

    def _observed(self, accepted: bool) -> IntArray:
        return np.array(row(self._acts, accepted), dtype=np.int64)
