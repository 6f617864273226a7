"""What each arm trains on: the reward it is paid, and its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from single_steps import pay_captions
from threadpoolctl import threadpool_info, threadpool_limits

from laurel.agents.checkpoint import load_policy
from laurel.arrays import FloatArray
from laurel.data.json_file import read_json
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.params import Params, parse_params
from laurel.params.arms import WELL_KNOWN
from laurel.rewards.base import Reward
from laurel.rewards.method import Inputs, RewardContext
from laurel.rewards.model import RewardModel
from laurel.rewards.stored import reward_of
from laurel.training.arms import task_of, train_arms
from minimal_params import MINIMAL
from tiny_project import Project, changed

pytestmark = pytest.mark.usefixtures("own_process")
HAVE_A_REWARD = [arm for arm in WELL_KNOWN if arm not in ("extrinsic", "random_policy")]


@pytest.fixture(scope="module")
def model(rewarded: Project) -> RewardModel:
    return RewardModel.load(rewarded.output("train-reward") / "preference")


@pytest.fixture(scope="module")
def adapter(rewarded: Project) -> EnvAdapter:
    return adapter_for(rewarded.params.env)


def inputs_of(project: Project) -> Inputs:
    return Inputs(**project.inputs("train-agents"))


def reward(project: Project, arm: str, seed: int = 0, params: Params | None = None) -> Reward | None:
    params = params or project.params
    context = RewardContext.of(params)
    return reward_of(params.resolved_arms[arm], seed, context, context.adapter, inputs_of(project))


def paid(function: Reward | None, texts: tuple[str, ...]) -> FloatArray:
    """Ask about captions, each once."""
    assert function is not None
    return pay_captions(function, texts)


# -- what they are trained on -----------------------------------------------------------------------------------
@pytest.mark.parametrize("arm", WELL_KNOWN)
def test_only_intrinsic_only_does_without_the_environments_reward(rewarded: Project, arm: str) -> None:
    params = changed(rewarded.params, shaping={"extrinsic": 0.7, "intrinsic": 0.2, "beta": 1.5, "quantile": 0.3})
    task = task_of(params.seed, params.env, params.resolved_arms[arm], 4)
    assert task.shaping.extrinsic == (0.0 if arm == "intrinsic_only" else 0.7)
    assert (task.shaping.intrinsic, task.shaping.beta, task.shaping.quantile) == (0.2, 1.5, 0.3)


def test_a_task_follows_the_parameters(rewarded: Project) -> None:
    params = changed(rewarded.params, agent={"steps": 999, "checkpoint_steps": 77}).model_copy(update={"seed": 5})
    task = task_of(params.seed, params.env, params.resolved_arms["oracle"], 4)
    assert (task.arm, task.seed, task.run_seed) == ("oracle", 4, 5)
    assert (task.steps, task.checkpoint_steps) == (999, 77)
    assert (task.env, task.settings) == (params.env, params.agent.ppo)


@pytest.mark.parametrize(
    ("agent", "steps"),
    [
        ({}, 50_000),
        ({"algorithm": "language_model", "language_model": {"n_envs": 512, "n_steps": 3}}, 3 * 512),
        ({"algorithm": "language_model", "checkpoint_steps": 5000}, 5000),
    ],
)
def test_each_round_of_a_language_model_is_a_checkpoint(agent: dict[str, Any], steps: int) -> None:
    arms, agent = {"one": {"reward": None}}, {**MINIMAL["agent"], **agent}
    params = parse_params({**MINIMAL, "env": {"id": "FrozenLake-v1"}, "arms": arms, "agent": agent}, "test")
    assert task_of(0, params.env, params.resolved_arms["one"], 0).checkpoint_steps == steps


@pytest.mark.parametrize("arm", ["extrinsic", "random_policy"])
def test_the_environments_reward_alone_needs_no_reward_model(rewarded: Project, adapter: EnvAdapter, arm: str) -> None:
    nowhere = Path("/nowhere")
    params, inputs = rewarded.params, Inputs(nowhere, nowhere, nowhere)
    assert reward_of(params.resolved_arms[arm], 0, RewardContext.of(params), adapter, inputs) is None


@pytest.mark.parametrize("arm", ["preference", "intrinsic_only"])
@pytest.mark.parametrize("quantile", [0.2, 0.8])
def test_the_learned_reward_is_the_reward_models(
    rewarded: Project, model: RewardModel, arm: str, quantile: float
) -> None:
    params = changed(rewarded.params, shaping={"quantile": quantile})
    for seed in (0, 1):
        function = reward(rewarded, arm, seed, params=params)
        np.testing.assert_array_equal(paid(function, model.texts), model.rewards)
        assert function is not None
        assert function.threshold == pytest.approx(np.quantile(model.rewards, quantile), abs=0.02)


def test_the_oracle_is_the_adapters(rewarded: Project, model: RewardModel, adapter: EnvAdapter) -> None:
    progress = paid(reward(rewarded, "oracle"), model.texts)
    assert progress.tolist() == pytest.approx([adapter.oracle(text) for text in model.texts])
    assert len(set(progress.tolist())) > 1


@pytest.mark.parametrize("arm", ["random_reward", "shuffled_labels"])
def test_controls_depend_on_their_seed(rewarded: Project, model: RewardModel, arm: str) -> None:
    first, again, other = (paid(reward(rewarded, arm, seed), model.texts) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.corrcoef(first, other)[0, 1] < 0.9
    for drawn in (first, other):
        assert np.corrcoef(drawn, model.rewards)[0, 1] < 0.9, "not the learned reward"
        assert drawn.std() == pytest.approx(1, abs=1e-3), "in the same units"


@pytest.mark.parametrize("arm", HAVE_A_REWARD)
def test_every_reward_is_given_only_above_a_threshold(rewarded: Project, model: RewardModel, arm: str) -> None:
    function = reward(rewarded, arm)
    assert function is not None
    share = (paid(function, model.texts) > function.threshold).mean()
    assert 0 < share < 1


# -- training ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("arm", "learned"), [("extrinsic", False), ("intrinsic_only", True)])
def test_an_arm_is_trained_into_its_directory(rewarded: Project, tmp_path: Path, arm: str, learned: bool) -> None:
    params = changed(rewarded.params, agent={"steps": 256})
    told: list[int] = []
    place = tmp_path / arm / "seed-3"
    agents = [(params.resolved_arms[arm], 3, place)]
    train_arms(params.seed, RewardContext.of(params), agents, inputs_of(rewarded), told.append)
    assert sum(told) == 256
    config, state = read_json(place / "config.json"), read_json(place / "state.json")
    assert (config["arm"], config["seed"], state["finished"]) == (arm, 3, True)
    load_policy(place)
    rewards = [row["shaped_reward"] for row in pq.read_table(place / "curve.parquet").to_pylist()]
    assert [reward is not None for reward in rewards] == [learned] * 2


def test_captions_name_the_action_where_they_did_in_collection(
    rewarded: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapters: list[bool] = []

    def noted(agents: Any, adapter: EnvAdapter, *_: Any) -> None:
        adapters.append(adapter.with_action)

    monkeypatch.setattr("laurel.training.loop.train_together", noted)
    for with_action in (False, True):
        params = changed(rewarded.params, caption={"with_action": with_action})
        agents = [(params.resolved_arms["oracle"], 0, tmp_path)]
        train_arms(params.seed, RewardContext.of(params), agents, inputs_of(rewarded), print)
    assert adapters == [False, True]


def test_sums_do_not_depend_on_the_number_of_cores(
    rewarded: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matrix products of several threads differ in the last bits from those of one."""
    threads: list[int] = []

    def noted(*_: Any) -> None:
        threads.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

    monkeypatch.setattr("laurel.training.loop.train_together", noted)
    with threadpool_limits(2, user_api="blas"):
        agents = [(rewarded.params.resolved_arms["extrinsic"], 0, tmp_path)]
        train_arms(0, RewardContext.of(rewarded.params), agents, inputs_of(rewarded), print)
    assert set(threads) == {1}
