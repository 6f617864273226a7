"""What tabular agents learn, against loops that follow the book's boxes one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import slow_reference as slow
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_reference import SPACES, Step, Table, random_model, record

from laurel.agents import choice
from laurel.agents.agent import Experience
from laurel.agents.tabular import (
    ExpectedSarsa,
    MonteCarlo,
    NStepSarsa,
    OffPolicyMonteCarlo,
    QLearning,
    Sarsa,
    TabularAgent,
    TreeBackup,
)

Learn = Callable[[Sequence[Step], Table], None]
GAMMA, EPSILON = 0.9, 0.3
WORLDS = {
    "seed": st.integers(0, 10_000),
    "step_size": st.sampled_from([None, 0.1, 0.6]),
    "initial": st.sampled_from([0, 2]),
}


def check(agent: TabularAgent, learn: Learn, seed: int) -> None:
    recorder = record(agent, random_model(seed), seed=seed)
    assert any(step.terminated for steps in recorder.runs for step in steps)
    assert any(step.truncated for steps in recorder.runs for step in steps)
    for i, steps in enumerate(recorder.runs):
        table = Table(3, initial=agent.initial, step_size=agent.step_size, epsilon=EPSILON)
        learn(steps, table)
        np.testing.assert_allclose(agent.q[i], [table.q[state] for state in range(5)], atol=1e-9)


@settings(deadline=None, max_examples=25)
@pytest.mark.parametrize(
    ("make", "kind"), [(Sarsa, "sarsa"), (ExpectedSarsa, "expected_sarsa"), (QLearning, "q_learning")]
)
@given(**WORLDS)
def test_one_step(make: type[TabularAgent], kind: str, seed: int, step_size: float | None, initial: float) -> None:
    agent = make(*SPACES, gamma=GAMMA, epsilon=EPSILON, step_size=step_size, initial=initial)
    check(agent, lambda steps, table: slow.one_step(steps, table, GAMMA, kind), seed)


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 9), **WORLDS)
def test_n_step_sarsa(n: int, seed: int, step_size: float | None, initial: float) -> None:
    agent = NStepSarsa(*SPACES, n=n, gamma=GAMMA, epsilon=EPSILON, step_size=step_size, initial=initial)
    check(agent, lambda steps, table: slow.n_step_sarsa(steps, table, GAMMA, n), seed)


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 9), target=st.sampled_from([0.0, 0.2, EPSILON]), **WORLDS)
def test_tree_backup(n: int, target: float, seed: int, step_size: float | None, initial: float) -> None:
    options = {"gamma": GAMMA, "epsilon": EPSILON, "step_size": step_size, "initial": initial}
    agent = TreeBackup(*SPACES, n=n, target_epsilon=target, **options)
    check(agent, lambda steps, table: slow.tree_backup(steps, table, GAMMA, n, target), seed)


@settings(deadline=None, max_examples=25)
@given(**WORLDS)
def test_monte_carlo(seed: int, step_size: float | None, initial: float) -> None:
    agent = MonteCarlo(*SPACES, gamma=GAMMA, epsilon=EPSILON, step_size=step_size, initial=initial)
    check(agent, lambda steps, table: slow.monte_carlo(steps, table, GAMMA), seed)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_weighted_importance_sampling(seed: int) -> None:
    rng = np.random.default_rng(seed)
    behaviour, policy = rng.dirichlet(np.ones(3), 5), rng.dirichlet(np.ones(3), 5)
    policy[0] = [1.0, 0.0, 0.0]
    agent = OffPolicyMonteCarlo(*SPACES, gamma=GAMMA, policy=policy, behaviour=behaviour)
    recorder = record(agent, random_model(seed), limit=10_000, seed=seed)
    for i, steps in enumerate(recorder.runs):
        expected = slow.weighted_importance(steps, 3, GAMMA, policy, behaviour)
        assert expected
        for at, value in expected.items():
            assert agent.q[i][at] == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("policy", "worth"), [(None, 3.0), ([0.5, 0.25, 0.25], 1.25)])
def test_off_policy_a_truncated_episode_bootstraps_from_its_last_state(
    policy: list[float] | None, worth: float
) -> None:
    fixed = None if policy is None else np.tile(policy, (5, 1))
    agent = OffPolicyMonteCarlo(*SPACES, gamma=GAMMA, policy=fixed)
    for terminated in (False, True):
        agent.reset(0)
        agent.q[0, 1] = [0.5, 3.0, 1.0]
        end, zero = np.array([terminated]), np.array([0])
        agent.observe(Experience(zero, zero, np.array([2.0]), zero + 1, end, ~end, np.array([True])))
        assert agent.q[0, 0, 0] == pytest.approx(2.0 if terminated else 2.0 + GAMMA * worth)


def same(left: TabularAgent, right: TabularAgent) -> None:
    """Both act and learn identically."""
    model = random_model(1)
    first, second = record(left, model), record(right, model)
    assert first.runs == second.runs
    np.testing.assert_allclose(left.q, right.q)


def test_special_cases_are_one_another() -> None:
    options = {"gamma": GAMMA, "epsilon": EPSILON}
    same(NStepSarsa(*SPACES, n=1, **options), Sarsa(*SPACES, **options))
    same(TreeBackup(*SPACES, n=1, target_epsilon=EPSILON, **options), ExpectedSarsa(*SPACES, **options))
    same(TreeBackup(*SPACES, n=1, **options), QLearning(*SPACES, **options))
    same(ExpectedSarsa(*SPACES, gamma=GAMMA, epsilon=0.0), QLearning(*SPACES, gamma=GAMMA, epsilon=0.0))


def test_a_fixed_policy_acts_and_gives_the_bootstrap_of_a_truncated_episode() -> None:
    policy = np.random.default_rng(0).dirichlet(np.ones(3), 5)
    agent = MonteCarlo(*SPACES, gamma=GAMMA, policy=policy)
    recorder = record(agent, random_model(0), n_envs=50, n_steps=200)
    steps = [step for run in recorder.runs for step in run]
    for state in range(4):
        taken = np.bincount([step.action for step in steps if step.state == state], minlength=3)
        np.testing.assert_allclose(taken / taken.sum(), policy[state], atol=0.07)

    class Fixed(Table):
        def policy(self, state: int, epsilon: float | None = None) -> list[float]:
            return policy[state].tolist()

    for i, run in enumerate(recorder.runs[:5]):
        table = Fixed(3, initial=0.0, step_size=None, epsilon=0.0)
        slow.monte_carlo(run, table, GAMMA)
        np.testing.assert_allclose(agent.q[i], [table.q[state] for state in range(5)], atol=1e-9)


def test_exploring_starts_begin_with_any_action_and_then_are_greedy() -> None:
    agent = MonteCarlo(*SPACES, gamma=GAMMA, epsilon=0.0, exploring_starts=True, initial=-50.0)
    agent.reset(0, 3000)
    agent.q[..., 1] = 50.0
    zeros, never = np.zeros(3000, dtype=np.int64), np.zeros(3000, dtype=np.bool_)
    first = agent.get_action(zeros)
    np.testing.assert_allclose(np.bincount(first, minlength=3) / 3000, 1 / 3, atol=0.05)

    def step(*, valid: bool = True, truncated: bool = False) -> None:
        cut, was = np.full(3000, truncated), np.full(3000, valid)
        agent.observe(Experience(zeros, first, zeros * 0.0, zeros, never, cut, was))
        agent.q[:] = [-50.0, 50.0, -50.0]

    step()
    assert (agent.get_action(zeros) == 1).all()
    step(truncated=True)
    step(valid=False)  # the reset between two episodes does not use the exploring start up
    assert len(set(agent.get_action(zeros))) == 3


@pytest.mark.parametrize("make", [Sarsa, ExpectedSarsa, QLearning, NStepSarsa, TreeBackup, MonteCarlo])
def test_a_table_shared_by_one_environment_is_its_own(make: type[TabularAgent]) -> None:
    model = random_model(2)
    alone, shared = (make(*SPACES, shared=shared) for shared in (False, True))
    assert record(alone, model, n_envs=1).runs == record(shared, model, n_envs=1).runs
    np.testing.assert_allclose(alone.q, shared.q)


@pytest.mark.parametrize("make", [Sarsa, ExpectedSarsa, QLearning, NStepSarsa, TreeBackup, MonteCarlo])
def test_a_shared_table_learns_from_every_environment(make: type[TabularAgent]) -> None:
    """Without a future to speak of, an entry is the mean of all rewards that any environment paid for it."""
    agent = make(*SPACES, gamma=0.0, step_size=None, shared=True)
    recorder = record(agent, random_model(3), n_envs=20, n_steps=8, limit=1)
    paid: dict[tuple[int, int], list[float]] = {}
    for run in recorder.runs:
        for step in run:
            paid.setdefault((step.state, step.action), []).append(step.reward)
    assert agent.q.shape == (1, 5, 3)
    assert max(map(len, paid.values())) > 10
    for at, rewards in paid.items():
        assert agent.q[0][at] == pytest.approx(np.mean(rewards))


def test_actions_are_epsilon_greedy() -> None:
    agent = QLearning(*SPACES, epsilon=EPSILON)
    agent.reset(0, 20_000)
    agent.q[:, 2] = [1.0, 3.0, 3.0]
    taken = np.bincount(agent.get_action(np.full(20_000, 2)), minlength=3) / 20_000
    np.testing.assert_allclose(taken, choice.epsilon_greedy(np.array([1.0, 3.0, 3.0]), EPSILON), atol=0.015)
    assert agent.greedy[0].tolist() == [0, 0, 1, 0, 0]
