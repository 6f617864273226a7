"""Blackjack with an endless deck, computed exactly: what Monte Carlo is to find by playing, at many tables at once.

The rules of Gymnasium's Blackjack-v1 by default: the dealer draws up to 17 or more, an ace counts 11 where that does
not bust, equal hands tie, and 21 with two cards wins no more than 21. States are Gymnasium's: the player's sum, the
dealer's open card, whether the player has a usable ace.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from laurel.arrays import BoolArray, DoubleArray, IntArray

CARDS = {card: 4 / 13 if card == 10 else 1 / 13 for card in range(1, 11)}
STICK, HIT = 0, 1
SHAPE = (32, 11, 2)


def draw(total: int, ace: int, card: int) -> tuple[int, int]:
    """Add a card to a hand; an ace counts 11 where that does not bust."""
    hard = total - 10 * ace + card
    usable = int((ace or card == 1) and hard + 10 <= 21)
    return hard + 10 * usable, usable


@cache
def dealer(total: int, ace: int) -> tuple[float, ...]:
    """Return the probabilities of the dealer's final sum, 0 to 21; index 0 is bust."""
    found = np.zeros(22)
    if total > 21:
        found[0] = 1.0
    elif total >= 17:
        found[total] = 1.0
    else:
        for card, probability in CARDS.items():
            found += probability * np.array(dealer(*draw(total, ace, card)))
    return tuple(found)


@cache
def stick(total: int, card: int) -> float:
    """Return what it is worth to stick."""
    ends = np.array(dealer(11, 1) if card == 1 else dealer(card, 0))
    return float(ends[:total].sum() - ends[total + 1 :].sum())


def values(policy: DoubleArray | None = None) -> tuple[DoubleArray, DoubleArray]:
    """Return Q (32, 11, 2, 2) of a policy, (32, 11, 2, 2) as well, and V; of the best policy where none is given."""
    Q, V = np.zeros((*SHAPE, 2)), np.zeros(SHAPE)

    @cache
    def value(total: int, card: int, ace: int) -> float:
        hit = 0.0
        for drawn, probability in CARDS.items():
            after, usable = draw(total, ace, drawn)
            hit += probability * (-1.0 if after > 21 else value(after, card, usable))
        worth = stick(total, card), hit
        Q[total, card, ace] = worth
        V[total, card, ace] = max(worth) if policy is None else policy[total, card, ace] @ worth
        return float(V[total, card, ace])

    for card in range(1, 11):
        for total in range(4, 22):
            value(total, card, 0)
            if total >= 12:
                value(total, card, 1)
    return Q, V


class Tables(gym.vector.VectorEnv[Any, Any, Any]):
    """N tables of Blackjack; Gymnasium's own, one after the other, take twenty times as long."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int) -> None:
        single = gym.make("Blackjack-v1")
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self.observation_space = batch_space(single.observation_space, num_envs)
        self.action_space = batch_space(single.action_space, num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._rng = np.random.default_rng(seed)
        self._card, self._total, self._ace = (np.zeros(self.num_envs, dtype=np.int64) for _ in range(3))
        self._over = np.ones(self.num_envs, dtype=np.bool_)
        self._deal()
        return self._seen(), {}

    def step(self, actions: Any) -> tuple[Any, DoubleArray, BoolArray, BoolArray, dict[str, Any]]:
        reward, playing = np.zeros(self.num_envs), ~self._over
        self._deal()
        hits, sticks = np.flatnonzero(playing & (actions == HIT)), np.flatnonzero(playing & (actions == STICK))
        self._total[hits], self._ace[hits] = self._more(self._total[hits], self._ace[hits])
        reward[hits[self._total[hits] > 21]] = -1.0
        reward[sticks] = np.sign(self._total[sticks] - self._dealers(self._card[sticks]))
        self._over = np.isin(np.arange(self.num_envs), sticks) | (reward < 0)
        return self._seen(), reward, self._over, np.zeros_like(self._over), {}

    def _deal(self) -> None:
        """Deal new hands where the last is over."""
        over = np.flatnonzero(self._over)
        nothing = np.zeros(len(over), dtype=np.int64)
        self._card[over] = self._drawn(len(over))
        self._total[over], self._ace[over] = self._more(*self._more(nothing, nothing))
        self._over = np.zeros(self.num_envs, dtype=np.bool_)

    def _dealers(self, card: IntArray) -> IntArray:
        """Return the dealer's final sums, 0 if bust."""
        total, ace = np.where(card == 1, 11, card), (card == 1).astype(np.int64)
        while len(drawing := np.flatnonzero(total < 17)):
            total[drawing], ace[drawing] = self._more(total[drawing], ace[drawing])
        return np.where(total > 21, 0, total)

    def _more(self, total: IntArray, ace: IntArray) -> tuple[IntArray, IntArray]:
        """Add a card to each hand, as `draw`."""
        card = self._drawn(len(total))
        hard = total - 10 * ace + card
        usable = (((ace == 1) | (card == 1)) & (hard <= 11)).astype(np.int64)
        return hard + 10 * usable, usable

    def _drawn(self, number: int) -> IntArray:
        return np.minimum(self._rng.integers(1, 14, number), 10)

    def _seen(self) -> tuple[IntArray, IntArray, IntArray]:
        return self._total.copy(), self._card.copy(), self._ace.copy()
