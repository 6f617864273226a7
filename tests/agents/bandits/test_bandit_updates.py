"""What bandit agents learn, against loops that follow the equations one pull at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bandit_agents import Pulls, show
from hypothesis import given
from hypothesis import strategies as st

from laurel.agents.agent import Experience
from laurel.agents.bandits import UCB, BernoulliThompson, GaussianThompson, Gradient, RewardAveraging

K = 3


def runs_of(reward: st.SearchStrategy[float]) -> st.SearchStrategy[list[Pulls]]:
    def runs(length: int) -> st.SearchStrategy[list[Pulls]]:
        pull = st.tuples(st.integers(0, K - 1), reward)
        return st.lists(st.lists(pull, min_size=length, max_size=length), min_size=1, max_size=4)

    return st.integers(1, 12).flatmap(runs)


REAL = runs_of(st.floats(-5, 5))
BINARY = runs_of(st.sampled_from([0.0, 1.0]))


@given(runs=REAL, step_size=st.sampled_from([None, 0.1, 0.7]), optimism=st.sampled_from([0.0, 5.0]))
def test_averages(runs: list[Pulls], step_size: float | None, optimism: float) -> None:
    agent = RewardAveraging(K, step_size=step_size, optimism=optimism)
    show(agent, runs)
    for i, pulls in enumerate(runs):
        for arm in range(K):
            rewards = [reward for pulled, reward in pulls if pulled == arm]
            if step_size is None:
                expected = sum(rewards) / len(rewards) if rewards else optimism
            else:  # an average that forgets (equation 2.6)
                n = len(rewards)
                expected = (1 - step_size) ** n * optimism
                expected += sum(step_size * (1 - step_size) ** (n - 1 - k) * r for k, r in enumerate(rewards))
            assert agent.estimates[i, arm] == pytest.approx(expected, abs=1e-9)


@given(runs=REAL, c=st.sampled_from([0.0, 0.5, 2.0]))
def test_ucb_pulls_what_might_be_best(runs: list[Pulls], c: float) -> None:
    agent = UCB(K, c=c)
    show(agent, runs)
    chosen = agent.get_action(np.zeros(len(runs), dtype=np.int64))
    for pulls, arm, told in zip(runs, chosen, agent.bounds(), strict=True):
        bounds = []
        for other in range(K):
            rewards = [reward for pulled, reward in pulls if pulled == other]
            n = len(rewards)
            bounds.append(sum(rewards) / n + c * math.sqrt(math.log(len(pulls) + 1) / n) if n else math.inf)
        assert told == pytest.approx(bounds, abs=1e-9)
        assert bounds[arm] == pytest.approx(max(bounds), abs=1e-9)


@given(runs=REAL, baseline=st.booleans())
def test_gradient(runs: list[Pulls], baseline: bool) -> None:
    agent = Gradient(K, step_size=0.3, baseline=baseline)
    show(agent, runs)
    for i, pulls in enumerate(runs):
        preferences, seen = [0.0] * K, []
        for arm, reward in pulls:
            weights = [math.exp(h) for h in preferences]
            average = sum(seen) / len(seen) if seen and baseline else 0.0
            for other in range(K):
                share = weights[other] / sum(weights)
                preferences[other] += 0.3 * (reward - average) * ((other == arm) - share)
            seen.append(reward)
        assert agent.preferences[i].tolist() == pytest.approx(preferences, abs=1e-9)


def test_the_gradient_is_that_of_the_expected_reward() -> None:
    agent = Gradient(K, step_size=1.0)
    show(agent, [[(0, 1.0), (2, -0.5), (1, 0.3)]])
    before, average = agent.preferences.copy(), float(agent.average[0])
    share, rewards = agent.probabilities()[0], np.array([0.2, 1.5, -1.0])
    moves = []
    for arm in range(K):
        agent.preferences[:], agent.average[:] = before, average
        pull = np.array([arm])
        never = np.zeros(1, dtype=np.bool_)
        agent.observe(Experience(pull * 0, pull, rewards[[arm]], pull * 0, never, never, ~never))
        moves.append(agent.preferences[0] - before[0])
    gradient = share * (rewards - share @ rewards)  # of Σ π(a) q(a) with respect to H
    np.testing.assert_allclose(share @ np.array(moves), gradient)


@given(runs=REAL)
def test_gaussian_posterior(runs: list[Pulls]) -> None:
    agent = GaussianThompson(K, prior_mean=0.5, prior_deviation=2.0, noise=0.7)
    show(agent, runs)
    for i, pulls in enumerate(runs):
        for arm in range(K):
            rewards = [reward for pulled, reward in pulls if pulled == arm]
            precision = 1 / 4 + len(rewards) / 0.49
            assert agent.precisions[i, arm] == pytest.approx(precision)
            assert agent.means[i, arm] == pytest.approx((0.5 / 4 + sum(rewards) / 0.49) / precision, abs=1e-9)


@given(runs=BINARY)
def test_beta_posterior(runs: list[Pulls]) -> None:
    agent = BernoulliThompson(K, prior=(2.0, 0.5))
    show(agent, runs)
    for i, pulls in enumerate(runs):
        for arm in range(K):
            rewards = [reward for pulled, reward in pulls if pulled == arm]
            assert agent.successes[i, arm] == 2 + sum(rewards)
            assert agent.failures[i, arm] == 0.5 + len(rewards) - sum(rewards)


def test_thompson_pulls_arms_with_their_probability_of_being_best() -> None:
    n = 20_000
    gaussian = GaussianThompson(2)
    gaussian.reset(0, n)
    gaussian.means[:] = [0.0, 3.0]
    gaussian.precisions[:] = [1 / 4, 1 / 9]  # far from 1, whose root is itself
    share = gaussian.get_action(np.zeros(n, dtype=np.int64)).mean()
    assert share == pytest.approx(0.5 * (1 + math.erf(3 / math.sqrt(2 * (4 + 9)))), abs=0.02)
    bernoulli = BernoulliThompson(2)
    bernoulli.reset(0, n)
    bernoulli.successes[:] = [1.0, 3.0]  # a Beta(3, 1) exceeds a uniform number with probability 3/4
    assert bernoulli.get_action(np.zeros(n, dtype=np.int64)).mean() == pytest.approx(0.75, abs=0.02)


@given(runs=BINARY, seed=st.integers(0, 99))
def test_resets_are_not_learned_from(runs: list[Pulls], seed: int) -> None:
    valid = np.random.default_rng(seed).random((len(runs), len(runs[0]))) < 0.5
    for make, names in (
        (lambda: RewardAveraging(K), ["estimates", "counts"]),
        (lambda: Gradient(K), ["preferences", "average"]),
        (lambda: GaussianThompson(K), ["means", "precisions"]),
        (lambda: BernoulliThompson(K), ["successes", "failures"]),
    ):
        together, alone = make(), make()
        show(together, runs, valid)
        for i, pulls in enumerate(runs):
            kept = [pull for pull, is_valid in zip(pulls, valid[i], strict=True) if is_valid]
            show(alone, [kept])
            for name in names:
                np.testing.assert_allclose(getattr(together, name)[i], getattr(alone, name)[0])
