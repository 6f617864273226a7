"""The negotiation: styles in hand-made dialogues; the listed dialogues are those that occur, with their rewards."""

from __future__ import annotations

from itertools import product

import gymnasium as gym
import numpy as np
import pytest

from laurel.envs import adapter_for
from laurel.envs.base import Transitions
from laurel.envs.builtin.negotiation import AGREE, LIMITS, STYLES, accepts, shows
from laurel.errors import EnvError
from laurel.params import EnvParams

ENV = "laurel/Negotiation-v0"
ALL, BOOK_AND_HATS, BOOK_AND_HAT, BALL = range(1, AGREE)


@pytest.mark.parametrize(
    ("acts", "accepted", "shown"),
    [
        ([AGREE], False, {"pushover"}),
        ([BOOK_AND_HAT], True, {"competitive"}),
        ([ALL, ALL, ALL], False, {"stubborn"}),
        ([BOOK_AND_HATS, BOOK_AND_HATS, AGREE], False, {"stubborn", "competitive"}),
        ([ALL, BOOK_AND_HATS, ALL], False, set()),
        ([ALL, BALL], True, {"versatile", "pushover"}),
        ([ALL, BOOK_AND_HATS, BOOK_AND_HAT], True, {"versatile", "competitive"}),
    ],
)
def test_what_style_a_dialogue_shows(acts: list[int], accepted: bool, shown: set[str]) -> None:
    assert {style for style in STYLES if shows(style, acts, accepted)} == shown


def test_a_partner_refuses_less_than_its_limit_but_accepts_its_own_offer() -> None:
    assert [accepts(limit, 0, BOOK_AND_HAT) for limit in LIMITS] == [True, True, False]
    assert [accepts(limit, 2, BOOK_AND_HAT) for limit in LIMITS] == [True, True, True]
    assert not any(accepts(limit, 2, ALL) for limit in LIMITS)


@pytest.mark.parametrize("style", STYLES)
def test_all_listed_dialogues_occur_with_their_rewards(style: str) -> None:
    kwargs = {"style": style}
    adapter, env = adapter_for(EnvParams(id=ENV, kwargs=kwargs)), gym.make(ENV, **kwargs)
    assert adapter.goal == STYLES[style]
    heard = set()
    for seed, actions in product(range(12), product(range(AGREE), repeat=3)):
        before, _ = env.reset(seed=seed)
        for action in actions:
            after, reward, ended, *_ = env.step(action)
            rows = (
                adapter.pack_one(before)[None],
                np.array([action]),
                np.float32([reward]),
                adapter.pack_one(after)[None],
            )
            (event,) = adapter.encode(Transitions(*rows, np.array([ended]), np.array([False])))
            told, before = adapter.describe(int(event)), after
            assert adapter.says_success(told) == bool(reward)
            if ended:
                break
        heard.add(told)
    assert heard == {adapter.describe(event) for event in adapter.events()}
    assert len(heard) == len([*adapter.events()])


def test_a_dialogue_in_words() -> None:
    adapter = adapter_for(EnvParams(id=ENV))
    told = adapter.describe_observation(np.array([ALL, BOOK_AND_HAT, 0, 1]))
    assert told == (
        "Your partner proposes that you get the ball. You propose that you get everything. Your partner refuses. Your "
        "partner proposes that you get a hat and the ball. You propose that you get the book and a hat. Your partner "
        "agrees. Deal: you get 6 points, your partner gets 5."
    )
    assert adapter.describe_observation(np.array([ALL] * 3 + [0])).endswith("Your partner refuses. There is no deal.")
    assert adapter.describe_observation(np.array([ALL, AGREE, 0, 0])).endswith(
        "Deal: you get 4 points, your partner gets 5."
    )


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(EnvError, match=r'no style "stuborn"\. Did you mean "stubborn"\?'):
        adapter_for(EnvParams(id=ENV, kwargs={"style": "stuborn"}))
