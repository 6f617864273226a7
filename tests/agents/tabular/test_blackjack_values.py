"""Blackjack by Monte Carlo, as in Sutton & Barto (2018), figures 5.1 and 5.2, against values computed exactly."""

from __future__ import annotations

import gymnasium as gym
import infinite_deck
import numpy as np
import pytest
from infinite_deck import HIT, SHAPE, STICK, Tables

from laurel.agents.tabular import MonteCarlo, OffPolicyMonteCarlo
from laurel.arrays import DoubleArray
from laurel.classics.running import run_episodes

ENVS = 50
TABLES = 500
BOOK = {  # the sums from which on figure 5.2 sticks, against an ace, 2, 3 … 10
    0: [17, 13, 13, 12, 12, 12, 17, 17, 17, 17],
    1: [19, 18, 18, 18, 18, 18, 18, 18, 19, 19],
}


def figure_5_1() -> DoubleArray:
    """Return the policy that sticks on 20 and 21 only."""
    policy = np.zeros((*SHAPE, 2))
    policy[..., HIT] = 1.0
    policy[20:] = [1.0, 0.0]
    return policy


def boundaries(q: DoubleArray) -> dict[int, list[int]]:
    """Return the lowest sum from which on to stick, by usable ace and the dealer's card."""
    sticks = q[..., STICK] > q[..., HIT]
    found: dict[int, list[int]] = {}
    for ace in (0, 1):
        for card in range(1, 11):
            total = 21
            while total > 11 and sticks[total - 1, card, ace]:
                total -= 1
            found.setdefault(ace, []).append(total)
    return found


def test_the_exact_values_are_those_of_the_book() -> None:
    q, _ = infinite_deck.values()
    assert boundaries(q) == BOOK
    _, v = infinite_deck.values(figure_5_1())
    assert v[13, 2, 1] == pytest.approx(-0.27726, abs=2e-3), "the state of example 5.4, of which the book prints this"


def test_a_policy_is_evaluated_off_policy_as_in_example_5_4() -> None:
    """Whoever plays at random learns what the policy of figure 5.1 is worth, not what playing at random is."""
    anything = np.full((2048, 2), 0.5)
    agent = OffPolicyMonteCarlo(
        *spaces(), gamma=1.0, policy=figure_5_1().reshape(-1, 2), behaviour=anything, shared=True
    )
    run_episodes(gym.make("Blackjack-v1"), agent, ENVS, 0, n_episodes=400)
    hit = np.s_[12:20, 1:11, 0, HIT]
    weights = agent.weights.reshape(*SHAPE, 2)[hit]

    def bias(policy: DoubleArray) -> float:
        exact, _ = infinite_deck.values(policy)
        return abs(float(np.average((agent.q.reshape(*SHAPE, 2) - exact)[hit], weights=weights)))

    assert weights.sum() > 5000
    assert bias(figure_5_1()) < 0.03 < bias(np.full((*SHAPE, 2), 0.5))


@pytest.mark.slow
def test_figure_5_1_is_found_by_prediction() -> None:
    agent = MonteCarlo(*spaces(), gamma=1.0, policy=figure_5_1().reshape(-1, 2), shared=True)
    run_episodes(Tables(TABLES), agent, TABLES, 0, n_episodes=200_000 // TABLES)
    _, exact = infinite_deck.values(figure_5_1())
    found = (agent.q * agent.fixed).sum(axis=2).reshape(SHAPE)
    visits = agent.updates.sum(axis=2).reshape(SHAPE)
    for ace in (0, 1):
        shown = np.s_[12:22, 1:11, ace]
        assert visits[shown].min() > 50
        deviations = (found[shown] - exact[shown]) * np.sqrt(visits[shown])  # a return's deviation is about 1
        assert np.abs(deviations).max() < 4.5
        assert deviations.std() < 1.1


@pytest.mark.slow
def test_figure_5_2_is_found_by_control() -> None:
    """Wherever the two actions differ by three standard errors of what was seen of them, the better is chosen."""
    agent = MonteCarlo(*spaces(), gamma=1.0, epsilon=0.0, exploring_starts=True, shared=True)
    run_episodes(Tables(TABLES), agent, TABLES, 0, n_episodes=500_000 // TABLES)
    exact_q, exact_v = infinite_deck.values()
    assert boundaries(exact_q) == BOOK
    q, visits = agent.q.reshape(*SHAPE, 2), agent.updates.reshape(*SHAPE, 2)
    for ace, error in ((0, 0.03), (1, 0.08)):
        shown = np.s_[12:22, 1:11, ace]
        gap = np.abs(exact_q[shown][..., STICK] - exact_q[shown][..., HIT])
        clear = gap > 3 * np.sqrt((1 / np.maximum(visits[shown], 1)).sum(axis=2))
        assert clear.mean() > 0.6
        np.testing.assert_array_equal(q[shown].argmax(axis=2)[clear], exact_q[shown].argmax(axis=2)[clear])
        assert np.abs(q[shown].max(axis=2) - exact_v[shown]).mean() < error


def spaces() -> tuple[gym.Space, gym.Space]:
    env = gym.make("Blackjack-v1")
    return env.observation_space, env.action_space
