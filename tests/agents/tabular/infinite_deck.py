"""Blackjack with an endless deck, computed exactly: what Monte Carlo is to find by playing.

The rules of Gymnasium's Blackjack-v1 by default: the dealer draws up to 17 or more, an ace counts 11 where that does
not bust, equal hands tie, and 21 with two cards wins no more than 21. States are Gymnasium's: the player's sum, the
dealer's open card, whether the player has a usable ace.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from laurel.arrays import DoubleArray

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
