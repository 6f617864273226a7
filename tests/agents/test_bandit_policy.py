"""Bandit agents as learners: what they know is what the agent alone knows, their chances are those of their pulls."""

from __future__ import annotations

import copy
import math
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learning import collected, learned, make, poisoned, probe, same, weights
from probe_environments import OneStep, RewardByAction

from laurel.agents.agent import Experience
from laurel.agents.algorithms import initial_policy
from laurel.agents.bandit_policy import METHODS, BanditPolicy
from laurel.agents.bandits import UCB, GaussianThompson, Gradient, RewardAveraging
from laurel.agents.bandits.agent import OpenBanditAgent
from laurel.agents.bandits.thompson import probability_of_best
from laurel.agents.checkpoint import load_policy, save_policy
from laurel.agents.learner import Rollout
from laurel.envs import adapter_for
from laurel.envs.builtin import ARMED_BANDIT
from laurel.envs.builtin.armed_bandit import Arms
from laurel.params import EnvParams
from laurel.params.algorithms import BanditParams

SMALL = BanditParams(n_envs=4, n_steps=5)
BANDIT = EnvParams(
    id=ARMED_BANDIT, backend="gymnasium", max_episode_steps=7, kwargs={"n_arms": 4, "noise": 0.5, "arms_seed": 2}
)
MEANS = Arms(n_arms=4, noise=0.5, arms_seed=2).draw(np.random.default_rng(0), 1)[0]
EACH_METHOD = pytest.mark.parametrize("method", METHODS)


def alone(params: BanditParams) -> OpenBanditAgent:
    """Return the classic agent with the same settings, as an independent reference."""
    step_size = params.step_size or None
    match params.method:
        case "reward_averaging":
            return RewardAveraging(4, epsilon=params.epsilon, optimism=params.initial, step_size=step_size)
        case "ucb":
            return UCB(4, c=params.c, step_size=step_size)
        case "gradient":
            return Gradient(4, step_size=params.step_size)
        case "gaussian_thompson":
            deviations = {"prior_deviation": params.prior_deviation, "noise": params.noise}
            return GaussianThompson(4, prior_mean=params.initial, **deviations)


def pulls(rollout: Rollout) -> list[tuple[int, float]]:
    """Return arm and reward of the steps in their order, environments in order within a step."""
    n_steps, n_envs = rollout.valid.shape
    steps = [(t, n) for t in range(n_steps) for n in range(n_envs) if rollout.valid[t, n]]
    return [(int(rollout.action[step]), float(rollout.reward[step])) for step in steps]


def test_every_method_has_its_agent() -> None:
    assert set(METHODS) == set(get_args(BanditParams.model_fields["method"].annotation))


# -- what is learned ----------------------------------------------------------------------------------------------
@EACH_METHOD
@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize("changed", [{}, {"step_size": 0.0, "initial": 2.0}, {"c": 0.3, "prior_deviation": 3.0}])
def test_a_learner_learns_what_the_agent_does(method: Any, n_envs: int, changed: dict[str, float]) -> None:
    """The agent alone, in one environment, with the same pulls one after another."""
    options = {"epsilon": 0.3, "noise": 0.5, **changed}
    if method == "gradient" and not options.get("step_size", 0.1):
        options["step_size"] = 0.4
    params = BanditParams(method=method, n_envs=n_envs, n_steps=5, **options)
    learner, envs = make(BANDIT, params)
    agent = alone(params)
    agent.reset(0)
    observation, rollout, rng = envs.reset(), learner.rollout(envs), np.random.default_rng(0)
    for _ in range(10):
        observation = learner.collect(envs, observation, rollout)
        rollout.reward += rng.normal(size=rollout.reward.shape)
        learner.learn(rollout)
        for arm, reward in pulls(rollout):
            row = np.zeros(1, dtype=np.bool_)
            agent.observe(Experience(0, np.array([arm]), np.array([reward]), 0, row, row, ~row))
    told = weights(learner)
    assert set(told) == set(agent.knowledge)
    for name in agent.knowledge:
        np.testing.assert_array_equal(told[name].numpy(), getattr(agent, name))
    assert len(np.unique(agent.merits())) == 4


@EACH_METHOD
def test_a_learner_with_rollouts_of_one_step_equals_the_agent(method: Any) -> None:
    learner, envs = make(BANDIT, BanditParams(method=method, n_envs=1, n_steps=1))
    agent = alone(BanditParams(method=method))
    agent.reset(0)
    agent.rng = copy.deepcopy(learner.rng)
    observation, rollout, never = envs.reset(), learner.rollout(envs), np.zeros(1, dtype=np.bool_)
    for _ in range(60):
        observation = learner.collect(envs, observation, rollout)
        learner.learn(rollout)
        arm = agent.get_action(0)
        np.testing.assert_array_equal(rollout.action[0], arm)
        agent.observe(Experience(0, arm, rollout.reward[0].astype(np.float64), 0, never, never, rollout.valid[0]))


@EACH_METHOD
@pytest.mark.parametrize("seed", [0, 1])
def test_every_method_finds_the_best_arm(method: Any, seed: int) -> None:
    learner = learned(BANDIT, BanditParams(method=method, noise=0.5, step_size=0.2), 60, seed)
    policy = learner.policy
    features = adapter_for(BANDIT).features(np.zeros((50, 1), dtype=np.int32))
    assert set(policy.act(features, learner.rng, greedy=True)[0]) == {MEANS.argmax()}
    if method == "ucb":  # which never settles: it pulled the best most often, and is to try any
        assert policy.counts[0].argmax() == MEANS.argmax()
        return
    pulled, _, value = policy.act(np.repeat(features, 4, axis=0), learner.rng)
    assert (pulled == MEANS.argmax()).mean() > (0.6 if method == "gradient" else 0.85)
    assert value[0] == pytest.approx(MEANS.max(), abs=0.5)


def test_an_average_is_that_of_all_rewards_of_an_arm() -> None:
    params = SMALL.model_copy(update={"step_size": 0.0, "epsilon": 1.0})
    learner, envs = make(BANDIT, params)
    observation, rollout, seen = envs.reset(), learner.rollout(envs), list[tuple[int, float]]()
    for _ in range(6):
        observation = learner.collect(envs, observation, rollout)
        learner.learn(rollout)
        seen += pulls(rollout)
    expected = [np.mean([reward for arm, reward in seen if arm == pulled]) for pulled in range(4)]
    np.testing.assert_allclose(learner.policy.estimates[0].numpy(), expected)
    assert learner.policy.counts.sum() == len(seen) < 6 * 5 * 4, "the steps that were resets are not among them"


@EACH_METHOD
def test_resets_are_not_learned_from(method: Any) -> None:
    params = SMALL.model_copy(update={"method": method})
    first, rollout, _ = collected(probe(OneStep), params)
    second, _, _ = collected(probe(OneStep), params)
    assert first.learn(rollout) == second.learn(poisoned(rollout))
    assert same(weights(first), weights(second))
    nothing = copy.deepcopy(rollout)
    nothing.valid[:] = False
    assert first.learn(nothing) == {}
    assert same(weights(first), weights(second))


# -- the policy ---------------------------------------------------------------------------------------------------
def taught(method: str, n_actions: int = 4) -> BanditPolicy:
    """Return a policy that believes arm 0 best; by their bounds, 2 and 3 are better, and equal."""
    params = BanditParams.model_validate({"method": method, "step_size": 0.5, "epsilon": 0.3, "c": 2.0})
    adapter = adapter_for(EnvParams(id=ARMED_BANDIT, kwargs={"n_arms": n_actions}))
    policy = initial_policy(adapter, params, 0, 0)
    assert isinstance(policy, BanditPolicy)
    agent = policy.agent()
    row = np.zeros(1, dtype=np.bool_)
    for arm, reward in [(0, 1.0), (1, 0.5), (2, 1.0), (3, 1.0), (1, 0.4), (0, 1.0)]:
        agent.observe(Experience(0, np.array([arm]), np.array([reward]), 0, row, row, ~row))
    policy.keep(agent)
    return policy


@EACH_METHOD
@pytest.mark.parametrize("knows", [False, True])
def test_log_probabilities_are_those_of_the_pulls(method: str, knows: bool) -> None:
    policy = taught(method)
    if not knows:
        policy = BanditPolicy(**policy.config())
    n = 20_000
    features = np.zeros((n, policy.n_features), dtype=np.float32)
    action, log_prob, value = policy.act(features, np.random.default_rng(0))
    chances = np.exp(policy.log_prob(features[:4], np.arange(4)).astype(np.float64))
    assert chances.sum() == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(np.bincount(action, minlength=4) / n, chances, atol=0.015)
    np.testing.assert_allclose(np.exp(log_prob), chances[action], rtol=1e-5)
    np.testing.assert_allclose(value, (chances * policy.agent().expected()[0]).sum(), rtol=1e-5, atol=1e-7)
    assert np.allclose(chances, 0.25) != knows, "without knowledge all arms are equally likely"


@EACH_METHOD
def test_greedy_takes_the_best_arm_and_breaks_ties_evenly(method: str) -> None:
    features = np.zeros((1000, 1), dtype=np.float32)
    policy = taught(method)
    greedy = policy.act(features, np.random.default_rng(0), greedy=True)[0]
    assert set(greedy) == {0}
    fresh = BanditPolicy(**policy.config())
    assert np.bincount(fresh.act(features, np.random.default_rng(0), greedy=True)[0], minlength=4).min() > 150


@EACH_METHOD
def test_observations_make_no_difference(method: str, tmp_path: Path) -> None:
    """Nor does it whether the policy was saved in between."""
    policy = taught(method)
    save_policy(tmp_path / "agent", policy)
    loaded = load_policy(tmp_path / "agent")
    assert same(policy.state_dict(), loaded.state_dict())
    rng = np.random.default_rng(3)
    for rows, other_rows in pairwise([rng.normal(size=(30, policy.n_features)).astype(np.float32) for _ in range(3)]):
        drawn, again = policy.act(rows, np.random.default_rng(1)), loaded.act(other_rows, np.random.default_rng(1))
        for part, same_part in zip(drawn, again, strict=True):
            np.testing.assert_array_equal(part, same_part)


def test_it_acts_in_any_environment_with_discrete_actions() -> None:
    learner = learned(probe(RewardByAction), SMALL, 20)
    assert learner.policy.estimates[0].argmax() == 1
    policy = learned(EnvParams(id="CartPole-v1", backend="gymnasium"), SMALL, 2).policy
    assert (policy.n_features, policy.n_actions) == (4, 2)


# -- the chances of Thompson sampling -------------------------------------------------------------------------------
@given(
    means=st.lists(st.floats(-5, 5), min_size=2, max_size=2),
    deviations=st.lists(st.floats(1e-3, 10), min_size=2, max_size=2),
)
def test_probabilities_of_two_arms_are_exact(means: list[float], deviations: list[float]) -> None:
    expected = 0.5 * math.erfc((means[1] - means[0]) / math.hypot(*deviations) / math.sqrt(2))
    chances = probability_of_best(np.array(means), np.array(deviations))
    np.testing.assert_allclose(chances, [expected, 1 - expected], atol=1e-6)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0.01, 5)), min_size=1, max_size=6), st.integers(0, 99))
def test_probabilities_of_several_arms_are_their_win_rates(arms: list[tuple[float, float]], seed: int) -> None:
    means, deviations = (np.array(part) for part in zip(*arms, strict=True))
    chances = probability_of_best(means, deviations)
    assert chances.sum() == pytest.approx(1.0)
    n = 20_000
    draws = means + deviations * np.random.default_rng(seed).standard_normal((n, len(arms)))
    won = np.bincount(draws.argmax(axis=1), minlength=len(arms)) / n
    np.testing.assert_allclose(won, chances, atol=0.02)


# -- what cannot be -----------------------------------------------------------------------------------------------
def test_a_step_size_of_zero_is_refused_for_gradient() -> None:
    with pytest.raises(ValueError, match=r"has method gradient, .* set step_size above 0"):
        BanditParams(method="gradient", step_size=0.0)
