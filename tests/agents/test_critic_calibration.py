"""A critic against values by dynamic programming: planted values, and what a learner keeps of the comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

from laurel.agents.algorithms import initial_policy, make_learner
from laurel.agents.language_model import learner as module
from laurel.agents.language_model.calibration import Calibration, calibration, values_of_random
from laurel.agents.language_model.critic import RIDGE, EncoderCritic, TableCritic
from laurel.agents.language_model.learner import LanguageModelLearner
from laurel.agents.tabular.planning import solve_policy
from laurel.envs import adapter_for
from laurel.envs.builtin.grid_world import GridWorld
from laurel.envs.builtin.model import from_table, model_of
from laurel.envs.vector import make_vector
from laurel.evaluation import plots
from laurel.evaluation.critics import critic_figure, read_calibration
from laurel.params import EnvParams
from laurel.params.language_actor import LanguageActorParams
from laurel.training.checkpoint import OPTIMIZER

LISTS = EnvParams(
    id="laurel/GridWorld-v0",
    kwargs={"squares": ["S.X", ".#.", "..G"], "actions": "sequence", "max_moves": 3, "slip": 0.0},
)
LAKE = EnvParams(id="FrozenLake-v1", kwargs={"desc": ["SFF", "FHF", "FFG"], "is_slippery": False})
GAMMA = 0.9


def test_values_of_random_lists_are_those_of_playing_every_list() -> None:
    world = GridWorld(**{**LISTS.kwargs})
    model = from_table(world.outcomes, world.initial_state_distrib)
    every = [(world.lists.moves(number), number) for number in range(world.lists.count)]
    chance = {number: 1 / (world.lists.longest * len(world.moves) ** len(moves)) for moves, number in every}
    assert sum(chance.values()) == pytest.approx(1)
    states = np.flatnonzero(model.reachable() & ~model.terminal).tolist()
    leads: dict[int, list[tuple[float, int, float, bool]]] = {state: [] for state in states}
    world.reset(seed=0)
    for state in states:
        for _, number in every:
            world.reset(options={"state": state})
            after, reward, ended, *_ = world.step(np.int64(number))
            leads[state].append((chance[number], int(after), reward, ended))
    values = dict.fromkeys(states, 0.0)
    for _ in range(150):
        values = {
            state: sum(p * (reward + (0.0 if ended else GAMMA * values[after])) for p, after, reward, ended in outcomes)
            for state, outcomes in leads.items()
        }
    found = values_of_random(model, world.lists, GAMMA)
    np.testing.assert_allclose(found[states], [values[state] for state in states], atol=1e-7)


def test_values_of_single_moves_are_those_of_the_uniform_policy() -> None:
    world = GridWorld()
    model = model_of(world)
    uniform = np.full((model.n_states, model.n_actions), 1 / model.n_actions)
    np.testing.assert_allclose(values_of_random(model, world.lists, GAMMA), solve_policy(model, uniform, GAMMA))


def test_rounding_errors_do_not_order_mirrored_states() -> None:
    kwargs = {"size": 3, "goal": [1, 1], "heading": True, "actions": "sequence", "max_moves": 3, "slip": 0.0}
    env = EnvParams(id="laurel/GridWorld-v0", kwargs=kwargs)
    adapter, world = adapter_for(env), GridWorld(**kwargs)  # type: ignore[arg-type]
    model = from_table(world.outcomes, world.initial_state_distrib)
    found = calibration(TableCritic(), adapter, model, world.lists, GAMMA)
    assert len(set(found.values)) > len(set(found.values.round(9))), "the solver's rounding errors"
    assert np.isnan(found.rank), "a critic of one value has no order"
    mirrored = found.values.copy()
    for value in set(found.values.round(9)):
        mirrored[found.values.round(9) == value] = value
    noise = np.random.default_rng(0).normal(size=len(mirrored))
    assert found._replace(critic=noise).rank == pytest.approx(found._replace(critic=noise, values=mirrored).rank)
    assert found._replace(critic=found.values * 1e-9).rank == pytest.approx(1)


def test_a_critic_that_knows_the_values_has_no_error() -> None:
    adapter, world = adapter_for(LISTS), GridWorld(**{**LISTS.kwargs})
    model = from_table(world.outcomes, world.initial_state_distrib)
    values = values_of_random(model, world.lists, GAMMA)
    states = np.flatnonzero(model.reachable() & ~model.terminal)
    texts = [adapter.describe_observation(state) for state in states.tolist()]
    critic = TableCritic()
    critic.fit(texts, values[states].astype(np.float32))
    found = calibration(critic, adapter, model, world.lists, GAMMA)
    assert (len(found.values), found.rank) == (len(states), pytest.approx(1))
    assert found.error < 1e-6
    critic.fit(texts, -values[states].astype(np.float32))
    assert calibration(critic, adapter, model, world.lists, GAMMA).rank == pytest.approx(-1)


@pytest.mark.parametrize(("env", "weight"), [(LISTS, 1.0), (LISTS, 0.5), (LAKE, 1.0)])
def test_random_rounds_are_measured_and_kept(
    env: EnvParams, weight: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the reward is not only the environment's: then the true values are unknown."""
    monkeypatch.setattr(module, "tune", lambda *_: 0.0)
    adapter = adapter_for(env)
    params = LanguageActorParams.model_validate(
        {"n_envs": 512, "n_steps": 8, "critic": "table", "imitation_examples": 8, "gamma": GAMMA, "proposals": 4}
    )
    learner = make_learner(initial_policy(adapter, params, 0, 0), params, np.random.default_rng(0))
    assert isinstance(learner, LanguageModelLearner)
    envs = make_vector(env, adapter, params.n_envs, 0)
    rollout = learner.rollout(envs)
    learner.collect(envs, envs.reset(), rollout)
    rollout.reward *= weight
    figures = learner.learn(rollout)
    save_file(learner.state(), tmp_path / OPTIMIZER)
    found = read_calibration(tmp_path)
    if weight < 1:
        assert found is None
        assert "critic_error" not in figures
        return
    assert found is not None
    assert found.error == figures["critic_error"] < 0.1
    assert found.rank == figures["critic_rank"] > 0.5
    learner.params = params.model_copy(update={"refresh_critic": True})
    assert learner._calibrated(rollout) == {}, "a refitted critic does not value the random policy"
    again = make_learner(initial_policy(adapter, params, 0, 0), params, np.random.default_rng(0))
    assert isinstance(again, LanguageModelLearner)
    again.restore(learner.state())
    assert again.calibration is not None
    np.testing.assert_array_equal(again.calibration.values, found.values)


def test_critics_are_drawn_with_their_errors() -> None:
    figure = critic_figure({"lm_a": Calibration(np.array([0.1, 0.4]), np.array([0.2, 0.3]))})
    assert figure.axes[0].get_xlabel().endswith("mean error 0.10, tau 1.00")
    assert "<svg" in plots.svg(figure)


def test_a_state_that_was_never_met_has_the_mean_of_all_returns() -> None:
    critic = TableCritic()
    critic.fit(["often"] * 3 + ["once"], np.array([1, 1, 1, 5], dtype=np.float32))
    assert critic.values(["often", "once", "never"]).tolist() == [1.0, 5.0, 2.0]


def test_an_encoders_values_are_ridge_regression_on_all_returns() -> None:
    critic, states = EncoderCritic("none"), ["often"] * 8 + ["once", "twice", "twice"]
    critic._vectors = dict(zip(("often", "once", "twice"), np.eye(3), strict=True))
    returns = np.array([1.0] * 8 + [5.0, 2.0, 3.0], dtype=np.float32)
    critic.fit(states, returns)
    rows = np.stack([critic._vectors[state] for state in states])
    rows -= rows.mean(axis=0)
    rows /= np.sqrt(np.square(rows).sum(axis=1).mean())
    squares = rows.T @ rows / len(rows) + RIDGE * np.eye(3)
    weights = np.linalg.solve(squares, rows.T @ (returns - returns.mean()) / len(rows))
    np.testing.assert_allclose(critic.values(states), returns.mean() + rows @ weights, atol=1e-5)
