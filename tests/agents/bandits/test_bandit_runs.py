"""Bandit agents on the ten-armed testbed, where the book says how well they do."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from bandit_agents import AGENTS

from laurel.agents.bandits import UCB, BernoulliThompson, Cheater, GaussianThompson, Gradient, Random, RewardAveraging
from laurel.classics.running import Steps, run_agent
from laurel.envs.builtin import ARMED_BANDIT
from laurel.errors import EnvError

RUNS = 400


def share(steps: Steps, last: int = 100) -> float:
    assert steps.optimal is not None
    return float(steps.optimal[:, -last:].mean())


def regret(steps: Steps) -> float:
    assert steps.regret is not None
    return float(steps.regret.sum(axis=1).mean())


@pytest.mark.parametrize("name", AGENTS)
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    env = gym.make(ARMED_BANDIT, n_arms=4, rewards="bernoulli")
    agent = AGENTS[name](4)
    first, again, other = (run_agent(env, agent, 5, seed, n_steps=40) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.rewards, again.rewards)
    assert (first.rewards != other.rewards).any()


@pytest.mark.parametrize("name", AGENTS)
def test_runs_of_a_batch_are_independent(name: str) -> None:
    """Every run has arms and luck of its own: their rewards are not correlated."""
    env = gym.make(ARMED_BANDIT, n_arms=4, rewards="bernoulli" if name == "bernoulli_thompson" else "gaussian")
    steps = run_agent(env, AGENTS[name](4), 30, 0, n_steps=200)
    noise = steps.rewards - steps.rewards.mean(axis=1, keepdims=True)
    assert np.abs(np.corrcoef(noise) - np.eye(30)).max() < 0.5


def test_cheater_and_random_bound_all_others() -> None:
    cheater = run_agent(ARMED_BANDIT, Cheater(), RUNS, 0)
    assert share(cheater, last=1000) == 1.0
    assert regret(cheater) == 0.0
    assert cheater.rewards.mean() == pytest.approx(1.539, abs=0.1), "mean of the highest of ten normal numbers"
    anyone = run_agent(ARMED_BANDIT, Random(10), RUNS, 0)
    assert share(anyone, last=1000) == pytest.approx(0.1, abs=0.01)
    assert anyone.rewards.mean() == pytest.approx(0.0, abs=0.05)
    for name in ("averaging", "optimistic", "ucb", "gradient", "gaussian_thompson"):
        assert 0 < regret(run_agent(ARMED_BANDIT, AGENTS[name](10), RUNS, 0)) < 0.4 * regret(anyone)


def test_epsilon_greedy_matches_figure_2_2() -> None:
    tenth = run_agent(ARMED_BANDIT, RewardAveraging(10, epsilon=0.1), RUNS, 0)
    hundredth = run_agent(ARMED_BANDIT, RewardAveraging(10, epsilon=0.01), RUNS, 0)
    greedy = run_agent(ARMED_BANDIT, RewardAveraging(10, epsilon=0.0), RUNS, 0)
    assert share(tenth) == pytest.approx(0.80, abs=0.06)
    assert share(greedy) == pytest.approx(0.36, abs=0.08)
    assert share(greedy) < share(hundredth) < share(tenth)
    assert tenth.rewards[:, -100:].mean() == pytest.approx(1.38, abs=0.1)


def test_optimistic_values_match_figure_2_3() -> None:
    hopeful = run_agent(ARMED_BANDIT, RewardAveraging(10, epsilon=0.0, optimism=5.0, step_size=0.1), RUNS, 0)
    realistic = run_agent(ARMED_BANDIT, RewardAveraging(10, epsilon=0.1, step_size=0.1), RUNS, 0)
    assert hopeful.optimal is not None
    assert hopeful.optimal[:, :10].sum(axis=1).min() >= 1 - 1e-9, "each arm is tried among the first ten"
    assert share(hopeful) > share(realistic) + 0.03


def test_ucb_beats_epsilon_greedy_as_in_figure_2_4() -> None:
    ucb = run_agent(ARMED_BANDIT, UCB(10, c=2.0), RUNS, 0)
    greedy = run_agent(ARMED_BANDIT, RewardAveraging(10, epsilon=0.1), RUNS, 0)
    assert ucb.rewards[:, -500:].mean() > greedy.rewards[:, -500:].mean() + 0.05


def test_the_baseline_helps_as_in_figure_2_5() -> None:
    env = gym.make(ARMED_BANDIT, offset=4.0)
    with_it = run_agent(env, Gradient(10, step_size=0.1), RUNS, 0)
    without = run_agent(env, Gradient(10, step_size=0.1, baseline=False), RUNS, 0)
    assert share(with_it) > 0.75
    assert share(with_it) > share(without) + 0.15


def test_a_constant_step_follows_arms_that_drift() -> None:
    env = gym.make(ARMED_BANDIT, spread=0.0, drift=0.1)
    averages = run_agent(env, RewardAveraging(10, epsilon=0.1), RUNS, 0)
    recent = run_agent(env, RewardAveraging(10, epsilon=0.1, step_size=0.2), RUNS, 0)
    assert share(recent) > share(averages) + 0.1


def test_thompson_has_the_least_regret_where_its_belief_is_right() -> None:
    thompson = run_agent(ARMED_BANDIT, GaussianThompson(10), RUNS, 0)
    assert regret(thompson) < 0.7 * regret(run_agent(ARMED_BANDIT, UCB(10), RUNS, 0))
    coins = gym.make(ARMED_BANDIT, rewards="bernoulli")
    assert regret(run_agent(coins, BernoulliThompson(10), RUNS, 0)) < 0.5 * regret(
        run_agent(coins, RewardAveraging(10), RUNS, 0)
    )


def test_the_cheater_requires_the_best_arm_in_info() -> None:
    with pytest.raises(EnvError, match="best_arm"):
        run_agent("FrozenLake-v1", Cheater(), 2, 0, n_steps=3)
