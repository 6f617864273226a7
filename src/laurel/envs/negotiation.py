"""A negotiation as text: each caption is the dialogue so far; the last one is the whole dialogue with the points."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from laurel.arrays import IntArray
from laurel.envs.base import Transitions
from laurel.envs.builtin.negotiation import (
    AGREE,
    DESCRIPTION,
    NOT_YET,
    OFFERS,
    PROPOSALS,
    STYLES,
    TURNS,
    Negotiation,
    dialogues,
    has_ended,
    points,
    row,
    shows,
)
from laurel.envs.one_shot import ObjectiveAdapter

_SHAPE = (AGREE + 1,) * TURNS + (2,)


class NegotiationAdapter(ObjectiveAdapter):
    """An event is a dialogue: the acts, and whether the last one was accepted."""

    ids = ("laurel/Negotiation-v*",)
    description = DESCRIPTION
    goal = STYLES["versatile"]
    action_names = (*(f"propose that you get {proposal.yours}" for proposal in PROPOSALS), "agree")
    _style = "versatile"

    def inspect(self, env: Any) -> None:
        game = env.unwrapped
        assert isinstance(game, Negotiation)
        self._style, self.goal = game.style, STYLES[game.style]

    def encode(self, transitions: Transitions) -> IntArray:
        return np.ravel_multi_index(tuple(transitions.next_observation.astype(np.int64).T), _SHAPE)

    def describe(self, event: int) -> str:
        return _dialogue_text(*_dialogue(event))

    def describe_observation(self, observation: Any) -> str:
        return self.describe(int(np.ravel_multi_index(tuple(observation), _SHAPE)))

    def events(self) -> Iterable[int]:
        """List the finished dialogues."""
        for acts, accepted in dialogues():
            yield int(np.ravel_multi_index(row(acts, accepted), _SHAPE))

    def is_right(self, event: int) -> bool:
        return shows(self._style, *_dialogue(event))


def _dialogue(event: int) -> tuple[list[int], bool]:
    *acts, accepted = (int(digit) for digit in np.unravel_index(event, _SHAPE))
    return [act for act in acts if act != NOT_YET], bool(accepted)


def _dialogue_text(acts: list[int], accepted: bool) -> str:
    """Write out a dialogue, with its outcome if it has ended."""
    sentences = [f"Your partner proposes that you get {OFFERS[0].yours}."]
    for turn, act in enumerate(acts):
        if act == AGREE:
            sentences.append("You agree.")
            continue
        agreed = accepted and turn + 1 == len(acts)
        sentences.append(f"You propose that you get {PROPOSALS[act - 1].yours}.")
        sentences.append("Your partner agrees." if agreed else "Your partner refuses.")
        if not agreed and turn + 1 < TURNS:
            sentences.append(f"Your partner proposes that you get {OFFERS[turn + 1].yours}.")
    if has_ended(acts, accepted):
        mine, partner = points(acts, accepted)
        deal = accepted or acts[-1] == AGREE
        sentences.append(f"Deal: you get {mine} points, your partner gets {partner}." if deal else "There is no deal.")
    return " ".join(sentences)
