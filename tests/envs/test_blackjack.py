from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text.blackjack import sum_hand

from last_steps import last_steps
from laurel.envs import adapter_for
from laurel.params import EnvParams

STICK, HIT = 0, 1
BETTER = "your hand is better, or the dealer goes bust."


@pytest.fixture(scope="module")
def adapter():
    return adapter_for(EnvParams(id="Blackjack-v1"))


@pytest.fixture(scope="module")
def named():
    return adapter_for(EnvParams(id="Blackjack-v1"), with_action=True)


@pytest.mark.parametrize(
    ("before", "action", "after", "reward", "end", "plain", "with_action"),
    [
        ((12, 10, 0), HIT, (15, 10, 0), 0, False, "You have 15 against the dealer's 10.",
         "You hit on 12 against the dealer's 10 and have 15."),
        ((14, 1, 1), HIT, (19, 1, 1), 0, False, "You have 19 with a usable ace against the dealer's ace.",
         "You hit on 14 with a usable ace against the dealer's ace and have 19 with a usable ace."),
        ((15, 6, 0), HIT, (24, 6, 0), -1, True, "You go bust at 24: you lose.",
         "You hit on 15 against the dealer's 6 and go bust at 24: you lose."),
        ((18, 6, 0), STICK, (18, 6, 0), 1, True, f"You win with 18 against the dealer's 6: {BETTER}",
         f"You stick. You win with 18 against the dealer's 6: {BETTER}"),
        ((13, 6, 0), STICK, (13, 6, 0), 1, True, "You win with 13 against the dealer's 6: the dealer goes bust.",
         "You stick. You win with 13 against the dealer's 6: the dealer goes bust."),
        ((20, 9, 1), STICK, (20, 9, 1), 0, True,
         "You tie with 20 with a usable ace against the dealer's 9: the hands are equal.",
         "You stick. You tie with 20 with a usable ace against the dealer's 9: the hands are equal."),
        ((17, 9, 0), STICK, (17, 9, 0), -1, True, "You lose with 17 against the dealer's 9: your hand is worse.",
         "You stick. You lose with 17 against the dealer's 9: your hand is worse."),
        ((21, 10, 1), STICK, (21, 10, 1), 1.5, True,
         f"You win with 21 with a usable ace against the dealer's 10: {BETTER}",
         f"You stick. You win with 21 with a usable ace against the dealer's 10: {BETTER}"),
    ],
)  # fmt: skip
def test_words(say, adapter, named, before, action, after, reward, end, plain, with_action):
    assert say(adapter, before, action, after, reward=reward, end=end) == plain
    assert say(named, before, action, after, reward=reward, end=end) == with_action


def test_a_natural_is_worth_more_and_reads_the_same(say):
    natural = adapter_for(EnvParams(id="Blackjack-v1", kwargs={"natural": True, "sab": False}))
    assert say(natural, (21, 2, 1), STICK, (21, 2, 1), reward=1.5, end=True).startswith("You win with 21")


def test_the_listed_hands_are_those_of_the_rules(adapter, named):
    assert 600 < len(list(adapter.events())) < 1200
    assert len(list(named.events())) < 4000
    env = gym.make("Blackjack-v1")
    env.reset(seed=0)
    listed = {named.describe(event) for event in named.events()}
    dealt = 0
    for _ in range(3000):
        before, _ = env.reset()
        while True:
            after, _, terminated, _, _ = env.step(HIT)
            dealt += 1
            ace = " with a usable ace"
            hit = (
                f"You hit on {before[0]}{ace * before[2]} against the dealer's {'ace' if before[1] == 1 else before[1]}"
            )
            bust = f"{hit} and go bust at {after[0]}: you lose."
            assert (bust if terminated else f"{hit} and have {after[0]}{ace * after[2]}.") in listed
            if terminated:
                break
            before = after
    assert dealt > 5000


def test_how_a_round_ends_is_true_of_the_dealers_hand(say, adapter):
    env = gym.make("Blackjack-v1")
    env.reset(seed=0)
    hidden = 0  # wins with a hand that may be better, where the dealer went bust
    for _ in range(2000):
        hand, _ = env.reset()
        after, reward, ended, _, _ = env.step(STICK)
        text = say(adapter, hand, STICK, after, reward=reward, end=ended)
        dealer = sum_hand(env.unwrapped.dealer)
        hidden += dealer > 21 and hand[0] > 17
        said = {
            "your hand is better": hand[0] > dealer or hand[0] == 21,
            "the dealer goes bust": dealer > 21,
            "your hand is worse": hand[0] < dealer <= 21,
            "the hands are equal": hand[0] == dealer,
        }
        claims = [true for words, true in said.items() if words in text]
        assert claims
        assert any(claims), f"{text} The dealer has {dealer}."
    assert hidden > 100


def test_winning_is_success(adapter):
    returns = np.array([1.0, 0.0, -1.0, 1.5], np.float32)
    assert adapter.succeeded(returns, last_steps(True, True, True, True)).tolist() == [True, False, False, True]
    assert adapter.oracle(f"You win with 18 against the dealer's 6: {BETTER}") == 1.0
    assert adapter.oracle("You go bust at 24: you lose.") == -1.0
    assert adapter.oracle("You have 20 against the dealer's 6.") > adapter.oracle("You have 14 against the dealer's 6.")
