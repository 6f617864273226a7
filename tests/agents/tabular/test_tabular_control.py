"""Tabular agents in worlds whose best policy is known."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import laurel.envs.builtin
from laurel.agents.tabular import (
    ExpectedSarsa,
    MonteCarlo,
    NStepSarsa,
    OffPolicyMonteCarlo,
    QLearning,
    Sarsa,
    TabularAgent,
    TreeBackup,
    planning,
)
from laurel.arrays import DoubleArray
from laurel.classics.running import Episodes, run_episodes
from laurel.envs.builtin.model import Model, model_of
from laurel.envs.builtin.simulator import Simulator


def spaces(model: Model) -> tuple[gym.spaces.Discrete, gym.spaces.Discrete]:
    return gym.spaces.Discrete(model.n_states), gym.spaces.Discrete(model.n_actions)


def value_of_greedy(agent: TabularAgent, model: Model, gamma: float) -> DoubleArray:
    """Return what each table's greedy policy is worth at the start."""
    return np.array(
        [model.start @ planning.solve_policy(model, np.eye(model.n_actions)[table], gamma) for table in agent.greedy]
    )


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Sarsa, {}),
        (ExpectedSarsa, {}),
        (QLearning, {}),
        (NStepSarsa, {}),
        (TreeBackup, {}),
        (MonteCarlo, {}),
        (OffPolicyMonteCarlo, {"epsilon": 0.2, "shared": True}),
        (MonteCarlo, {"exploring_starts": True, "epsilon": 0.0, "shared": True}),
    ],
)
def test_the_way_around_the_trap_is_found(make: type[TabularAgent], options: dict[str, float]) -> None:
    """In the world of Russell & Norvig, most runs come near the best policy; none does by chance."""
    model, gamma = model_of(gym.make(laurel.envs.builtin.GRID_WORLD)), 0.99
    agent = make(*spaces(model), gamma=gamma, **options)
    envs = Simulator(model, 20, 100, exploring_starts=True)
    run_episodes(envs, agent, 20, 0, n_episodes=500)
    best = model.start @ planning.value_iteration(model, gamma)[1]
    assert np.median(value_of_greedy(agent, model, gamma)) > best - 0.1
    agent.reset(0, 20)
    assert np.median(value_of_greedy(agent, model, gamma)) < 0


@pytest.fixture(scope="module")
def cliff() -> dict[str, tuple[TabularAgent, Episodes, Model]]:
    model = model_of(gym.make("CliffWalking-v1"))
    found = {}
    for make in (Sarsa, ExpectedSarsa, QLearning):
        agent = make(*spaces(model), gamma=1.0, epsilon=0.1, step_size=0.5)
        found[make.__name__] = (agent, run_episodes(Simulator(model, 50, 1000), agent, 50, 0, n_episodes=300), model)
    return found


def test_on_the_cliff_q_learning_is_bold_and_sarsa_safe(cliff: dict[str, tuple[TabularAgent, Episodes, Model]]) -> None:
    """As in example 6.6: Q-learning learns the shortest way, along the edge, and falls off more often meanwhile."""
    agent, bold, model = cliff["QLearning"]
    assert np.median(value_of_greedy(agent, model, 1 - 1e-9)) == pytest.approx(-13.0, abs=1e-3)
    safe = cliff["Sarsa"][1].returns[:, -100:].mean()
    assert bold.returns[:, -100:].mean() == pytest.approx(-49.0, abs=6)
    assert safe == pytest.approx(-27.0, abs=6)
    assert cliff["ExpectedSarsa"][1].returns[:, -100:].mean() > safe, "without the noise of the next action"


def test_the_same_seed_gives_the_same_curve() -> None:
    model = model_of(gym.make("FrozenLake-v1"))
    agent = Sarsa(*spaces(model))
    first, again, other = (
        run_episodes(gym.make("FrozenLake-v1"), agent, 4, seed, n_episodes=20).lengths.tolist() for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.slow
def test_taxi_is_solved() -> None:
    model = model_of(gym.make("Taxi-v4"))
    agent = QLearning(*spaces(model), gamma=0.99, epsilon=0.1, step_size=0.5)
    run_episodes(gym.make("Taxi-v4"), agent, 3, 0, n_episodes=4000)
    best = model.start @ planning.value_iteration(model, 0.99)[1]
    assert value_of_greedy(agent, model, 0.99).min() > best - 0.2
