"""Blackjack: the player's hand against the dealer's open card, and how the round ends.

Observations are the player's sum, the dealer's card (1 is an ace) and whether the player holds an ace that
counts as 11 (https://gymnasium.farama.org/environments/toy_text/blackjack/).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from laurel.arrays import BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Example, Feature, Transitions

STICK, HIT = 0, 1
LIMIT = 21
DEALER_STOPS = 17
"""The dealer draws until this sum or more: a lower hand can only win if the dealer goes bust."""
HAND, BUST, LOSE, TIE, WIN = range(5)
SHAPE = (5, 32, 2, 32, 2, 11)
"""Event; sum and usable ace before the card, if the caption names the action; the same after it; dealer's card."""

_ENDS = {
    LOSE: "You lose with {}: your hand is worse.",
    TIE: "You tie with {}: the hands are equal.",
    WIN: "You win with {}: your hand is better, or the dealer goes bust.",
}


_GOALS = {
    "safe": "Never go bust. You do not care whether the dealer's hand is better.",
    "bold": "Get as near to 21 as possible. You do not care about going bust.",
    "aces": "Hold a usable ace. You do not care about winning.",
}


class BlackjackAdapter(EnvAdapter):
    """One round of blackjack."""

    ids = ("Blackjack-v*",)
    action_names = ("stick", "hit")
    observation_features = (
        Feature("player_sum", "the player's hand, over 21 where it is bust", whole=True),
        Feature("dealer_card", "the dealer's open card, from 1 (an ace) to 10", whole=True),
        Feature("usable_ace", "1 where the player holds an ace that counts as 11, otherwise 0", whole=True),
    )
    description = (
        "Blackjack against a dealer, of whose two cards one is open. The player hits, to draw a card, or sticks. "
        "More than 21 loses at once; otherwise the dealer draws up to 17 or more. A dealer with more than 21 goes bust "
        "and loses, too; otherwise the hand nearer to 21 wins."
    )
    goal = "You have a better hand than the dealer, or the dealer goes bust, and you win."
    anti_goal = "You have a worse hand than the dealer, or go bust, and lose."
    goals = _GOALS
    success_words = ("You win",)
    example = Example(
        "You have 19 against the dealer's 9.",
        "You have 15 against the dealer's 9.",
        "A hand of 19 often wins as it is, and one of 15 seldom does.",
    )

    def encode(self, transitions: Transitions) -> IntArray:
        before, after = transitions.observation, transitions.next_observation
        total, dealer, ace = after[:, 0], after[:, 1], after[:, 2]
        ended = transitions.terminated
        bust = ended & (total > LIMIT)
        event = np.select(
            [bust, ended & (transitions.reward < 0), ended & (transitions.reward > 0), ended],
            [BUST, LOSE, WIN, TIE],
            HAND,
        )
        drawn = (transitions.action == HIT) & self.with_action
        digits = (
            event,
            np.where(drawn, before[:, 0], 0),
            np.where(drawn, before[:, 2], 0),
            total,
            np.where(bust, 0, ace),
            np.where(bust & ~drawn, 0, dealer),
        )
        return np.ravel_multi_index(digits, SHAPE).astype(np.int64)

    def describe(self, event: int) -> str:
        verb, before, ace_before, total, ace, dealer = (int(digit) for digit in np.unravel_index(event, SHAPE))
        hand = f"{total} with a usable ace" if ace else str(total)
        dealer_text = f"against the dealer's {'ace' if dealer == 1 else dealer}"
        if before:
            hit = f"You hit on {before}{' with a usable ace' if ace_before else ''} {dealer_text}"
            return f"{hit} and go bust at {total}: you lose." if verb == BUST else f"{hit} and have {hand}."
        if verb == BUST:
            return f"You go bust at {total}: you lose."
        if verb == HAND:
            return f"You have {hand} {dealer_text}."
        if verb == WIN and total <= DEALER_STOPS:
            text = f"You win with {hand} {dealer_text}: the dealer goes bust."
        else:
            text = _ENDS[verb].format(f"{hand} {dealer_text}")
        return f"You stick. {text}" if self.with_action else text

    def events(self) -> Iterable[int]:
        digits = set()
        for dealer in range(1, 11):
            for total, ace in _hands():
                ends = [WIN] + [LOSE] * (total < LIMIT) + [TIE] * (total >= DEALER_STOPS)
                digits |= {(verb, 0, 0, total, ace, dealer) for verb in ends}
                for card in range(1, 11):
                    new, new_ace = _draw(total, ace, card)
                    before = (total, ace) if self.with_action else (0, 0)
                    if new > LIMIT:
                        digits.add((BUST, *before, new, 0, dealer if self.with_action else 0))
                    else:
                        digits.add((HAND, *before, new, new_ace, dealer))
        for key in sorted(digits):
            yield int(np.ravel_multi_index(key, SHAPE))

    def describe_observation(self, observation: Any) -> str:
        total, dealer, ace = (int(part) for part in observation)
        hand = f"{total} with a usable ace" if ace else str(total)
        return f"You have {hand} against the dealer's {'ace' if dealer == 1 else dealer}."

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return returns > 0

    def oracle(self, caption: str) -> float:
        """Reward winning, and a little a hand that is hard to beat."""
        if "you lose" in caption.lower():
            return -1.0
        if "You win" in caption:
            return 1.0
        return 0.3 if any(f"have {hand}" in caption for hand in (18, 19, 20, 21)) else 0.0


def _hands() -> list[tuple[int, int]]:
    """List the hands on which a player can act: sum, usable ace."""
    return [(total, 0) for total in range(4, LIMIT + 1)] + [(total, 1) for total in range(12, LIMIT + 1)]


def _draw(total: int, ace: int, card: int) -> tuple[int, int]:
    """Add a card (1 is an ace) to a hand."""
    hard = total - 10 * ace + card
    ace = int((ace or card == 1) and hard + 10 <= LIMIT)
    return hard + 10 * ace, ace
