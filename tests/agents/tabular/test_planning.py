from __future__ import annotations

from itertools import product

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_reference import random_model

import laurel.envs.builtin
from laurel.agents.tabular import planning
from laurel.arrays import DoubleArray
from laurel.envs.builtin.model import Model, from_table, model_of
from laurel.errors import TrainingError

SEEDS = st.integers(0, 10_000)
GAMMAS = st.sampled_from([0.0, 0.5, 0.9, 1.0])


def random_policy(seed: int, model: Model) -> DoubleArray:
    return np.random.default_rng(seed).dirichlet(np.ones(model.n_actions), model.n_states)


def slow_action_value(model: Model, values: DoubleArray, gamma: float, state: int, action: int) -> float:
    total = 0.0
    for after in range(model.n_states):
        paid = model.rewards[state, action, after] + gamma * values[after]
        total += model.transitions[state, action, after] * paid
    return total


@settings(deadline=None, max_examples=30)
@given(seed=SEEDS, gamma=GAMMAS)
def test_evaluation_gives_the_values_of_bellmans_equation(seed: int, gamma: float) -> None:
    model = random_model(seed)
    policy = random_policy(seed, model)
    values = planning.solve_policy(model, policy, gamma)
    q = planning.action_values(model, values, gamma)
    for state in range(5):
        slow = [slow_action_value(model, values, gamma, state, action) for action in range(3)]
        assert q[state].tolist() == pytest.approx(slow, abs=1e-9)
        assert values[state] == pytest.approx(sum(policy[state] * slow), abs=1e-8)
    assert values[-1] == 0.0, "after the end there is nothing"


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS, gamma=GAMMAS)
def test_improvement_never_makes_worse(seed: int, gamma: float) -> None:
    model = random_model(seed)
    policy = random_policy(seed, model)
    values = planning.solve_policy(model, policy, gamma)
    better = planning.improve_policy(model, values, gamma)
    assert (better.sum(axis=1) == 1).all()
    assert (planning.solve_policy(model, better, gamma) >= values - 1e-9).all()


def test_policy_improvement_keeps_ties_of_the_old_policy() -> None:
    model = from_table({0: {a: [(1.0, 1, 1.0, True)] for a in range(3)}, 1: {a: [] for a in range(3)}}, [1.0, 0.0])
    kept = np.array([[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(planning.improve_policy(model, np.zeros(2), 0.9, policy=kept), kept)
    assert planning.improve_policy(model, np.zeros(2), 0.9).argmax(axis=1).tolist() == [0, 0]


@settings(deadline=None, max_examples=10)
@given(seed=SEEDS, gamma=GAMMAS)
def test_iterations_find_the_best_of_all_policies(seed: int, gamma: float) -> None:
    model = random_model(seed, n_states=4, n_actions=2)
    everything = [np.eye(2)[list(actions)] for actions in product(range(2), repeat=4)]
    best = np.max([planning.solve_policy(model, policy, gamma) for policy in everything], axis=0)
    for policy, values in (planning.policy_iteration(model, gamma), planning.value_iteration(model, gamma)):
        np.testing.assert_allclose(values, best, atol=1e-7)
        np.testing.assert_allclose(planning.solve_policy(model, policy, gamma), best, atol=1e-7)


def test_utilities_of_russell_and_norvig() -> None:
    model = model_of(gym.make(laurel.envs.builtin.GRID_WORLD))
    printed = [[0.812, 0.868, 0.918, 0.0], [0.762, 0.0, 0.660, 0.0], [0.705, 0.655, 0.611, 0.388]]
    policy, values = planning.policy_iteration(model, 1.0)
    np.testing.assert_allclose(values.reshape(3, 4), printed, atol=5e-4)
    np.testing.assert_allclose(planning.value_iteration(model, 1.0)[1], values, atol=1e-8)
    left, _, right, up = range(4)
    actions = policy.argmax(axis=1)
    assert actions[[0, 1, 2]].tolist() == [right] * 3
    assert actions[[8, 4, 9, 10, 11]].tolist() == [up, up, left, left, left], "the long way around the trap"


@pytest.mark.parametrize(
    ("env_id", "options", "value"),
    [
        ("FrozenLake-v1", {}, 14 / 17),
        ("FrozenLake-v1", {"is_slippery": False}, 1.0),
        ("CliffWalking-v1", {}, -13.0),
        ("Taxi-v4", {}, 7.93),
    ],
)
def test_known_values_of_the_start(env_id: str, options: dict[str, bool], value: float) -> None:
    model = model_of(gym.make(env_id, **options))
    for _, values in (planning.policy_iteration(model, 1.0), planning.value_iteration(model, 1.0)):
        assert model.start @ values == pytest.approx(value, abs=5e-3)


def test_a_policy_that_never_ends_has_no_value_without_a_discount() -> None:
    table = {0: {0: [(1.0, 0, -1.0, False)], 1: [(1.0, 1, 0.0, True)]}, 1: {0: [], 1: []}}
    model = from_table(table, [1.0, 0.0])
    stay = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert planning.solve_policy(model, stay, 0.9)[0] == pytest.approx(-10.0)
    with pytest.raises(TrainingError, match="do not converge with gamma 1"):
        planning.solve_policy(model, stay, 1.0)
    paid = from_table({0: {0: [(1.0, 0, 1.0, False)]}}, [1.0])
    for iterate in (planning.policy_iteration, planning.value_iteration):
        with pytest.raises(TrainingError, match="do not converge with gamma 1"):
            iterate(paid, 1.0)
