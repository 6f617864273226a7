"""Agents at play: which policy acts, on which episodes, and what is written of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from laurel.agents.actor import Actor, View
from laurel.agents.algorithms import initial_policy
from laurel.agents.checkpoint import load_policy, save_policy
from laurel.arrays import Array
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError
from laurel.evaluation import play, rollout
from laurel.evaluation.play import Evaluation, load_actor, play_agent, watched_arm
from laurel.evaluation.rollout import LearnedReward
from laurel.params import Params
from laurel.params.algorithms import PPOParams
from laurel.params.resolved_arms import Arm
from laurel.rewards.method import Inputs, RewardContext
from laurel.rewards.model import RewardModel
from laurel.training import lockstep
from laurel.training.arms import train_arms
from minimal_params import MINIMAL
from tiny_project import Project, changed

pytestmark = pytest.mark.usefixtures("own_process")
COLUMNS = [
    "arm", "seed", "episode", "return", "length", "terminated", "success", "raw_reward", "shaped_reward",
]  # fmt: skip


@pytest.fixture(scope="module")
def adapter(rewarded: Project) -> EnvAdapter:
    return adapter_for(rewarded.params.env)


@pytest.fixture(scope="module")
def agent(adapter: EnvAdapter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("agent")
    save_policy(place, initial_policy(adapter, PPOParams(hidden=(16,)), 0, 0))
    return place


def everywhere(adapter: EnvAdapter) -> View:
    """All 16 squares, many times."""
    return View(adapter, np.tile(np.arange(16, dtype=adapter.observation_dtype)[:, None], (50, 1)))


def arm_of_run(project: Project, name: str) -> Arm:
    return project.params.resolved_arms[name]


def evaluation(params: Params, inputs: Inputs) -> Evaluation:
    watched = watched_arm(params.resolved_arms.values(), inputs.reward)
    return Evaluation(params.seed, RewardContext.of(params), params.evaluate, inputs, watched)


def acts(actor: Actor, adapter: EnvAdapter, seed: int) -> Array:
    actor.begin(np.ones(800, dtype=np.bool_))
    return actor.act(everywhere(adapter), np.random.default_rng(seed)).action


# -- who acts ---------------------------------------------------------------------------------------------------
def test_without_an_agent_actions_are_uniform(rewarded: Project, adapter: EnvAdapter) -> None:
    arm = arm_of_run(rewarded, "random_policy")
    first, again, other = (acts(load_actor(adapter, arm, None, greedy=False), adapter, seed) for seed in (0, 0, 1))
    assert np.bincount(first, minlength=4) == pytest.approx(200, abs=50)
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.5


def test_an_agents_actions_are_drawn_from_its_policy(rewarded: Project, adapter: EnvAdapter, agent: Path) -> None:
    arm = arm_of_run(rewarded, "preference")
    drawn, again, other = (acts(load_actor(adapter, arm, agent, greedy=False), adapter, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(drawn, again)
    assert (drawn != other).mean() > 0.3, "a fresh agent's policy is broad"
    actor, rng = load_actor(adapter, arm, agent, greedy=False), np.random.default_rng(0)
    first, second = (actor.act(everywhere(adapter), rng).action for _ in range(2))
    assert (first != second).mean() > 0.3, "and every step draws anew"


def test_a_greedy_agent_takes_the_likeliest_action(rewarded: Project, adapter: EnvAdapter, agent: Path) -> None:
    arm = arm_of_run(rewarded, "preference")
    features = everywhere(adapter).features
    likeliest = load_policy(agent).actor(torch.from_numpy(features)).argmax(dim=1).numpy()
    for seed in (0, 1):
        np.testing.assert_array_equal(acts(load_actor(adapter, arm, agent, greedy=True), adapter, seed), likeliest)


@pytest.mark.parametrize(("options", "alike"), [({}, True), ({"greedy": False}, False)])
def test_an_untrained_model_is_as_greedy_as_trained_agents(options: dict[str, bool], alike: bool) -> None:
    """The model before training is compared with the trained one, which takes its likeliest answers."""
    kwargs = {"size": 2, "goal": [1, 1], "actions": "sequence", "max_moves": 2}
    env = {"id": "laurel/GridWorld-v0", "kwargs": kwargs}
    arms = {"base": {"reward": None, "agent": {"actor": "language_model", "options": options}}}
    params = Params.model_validate({**MINIMAL, "env": env, "arms": arms})
    adapter = adapter_for(params.env)
    actor = load_actor(adapter, params.resolved_arms["base"], None, greedy=True)
    actions = actor.act(View(adapter, np.zeros((40, 1), dtype=np.int32)), np.random.default_rng(0)).action
    assert (len(set(actions.tolist())) == 1) == alike


def test_a_missing_agent_is_an_error(rewarded: Project, adapter: EnvAdapter, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such directory"):
        load_actor(adapter, arm_of_run(rewarded, "preference"), tmp_path / "none", greedy=False)


# -- what is written --------------------------------------------------------------------------------------------
def inputs_of(project: Project) -> Inputs:
    return Inputs(**project.inputs("train-agents"))


def table(project: Project, arm: str, seed: int, agent: Path | None, place: Path) -> pd.DataFrame:
    run = evaluation(project.params, inputs_of(project))
    play_agent(run, arm_of_run(project, arm), seed, agent, place, lambda n: None)
    return pd.read_parquet(place)


@pytest.mark.parametrize("arm", ["preference", "random_policy"])
def test_the_table_has_a_row_an_episode(rewarded: Project, agent: Path, tmp_path: Path, arm: str) -> None:
    told: list[int] = []
    played = agent if arm == "preference" else None
    play_agent(
        evaluation(rewarded.params, inputs_of(rewarded)),
        arm_of_run(rewarded, arm),
        3,
        played,
        tmp_path / "table.parquet",
        told.append,
    )
    found = pd.read_parquet(tmp_path / "table.parquet")
    assert list(found.columns) == COLUMNS
    assert sum(told) == len(found) == rewarded.params.evaluate.episodes == 4
    assert set(found["arm"]) == {arm}
    assert set(found["seed"]) == {3}
    assert found["episode"].tolist() == [0, 1, 2, 3]
    assert found["length"].min() > 0
    assert (found["success"] == (found["return"] > 0)).all()
    assert found[["raw_reward", "shaped_reward"]].notna().all(axis=None), "every arm's episodes are scored"


def test_the_same_agent_and_seed_give_the_same_table(rewarded: Project, agent: Path, tmp_path: Path) -> None:
    first, again, other = (table(rewarded, "preference", seed, agent, tmp_path / "t") for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again)
    assert first.drop(columns="seed").to_dict() != other.drop(columns="seed").to_dict()


def test_a_potential_scores_episodes_as_a_bonus(rewarded: Project, agent: Path, tmp_path: Path) -> None:
    """Φ is 0 where an episode is terminated: the sum of its changes would rank episodes against what they met."""
    params, inputs = rewarded.params, inputs_of(rewarded)
    runs = {form: evaluation(changed(params, shaping={"form": form}), inputs) for form in ("bonus", "potential")}
    assert runs["potential"].watched is not None
    assert runs["potential"].watched.shaping.form == "potential"
    for form, run in runs.items():
        play_agent(run, arm_of_run(rewarded, "preference"), 0, agent, tmp_path / form, lambda n: None)
    pd.testing.assert_frame_equal(*(pd.read_parquet(tmp_path / form) for form in runs))


# -- on which episodes ------------------------------------------------------------------------------------------
class StoppedError(Exception):
    """The seed of the environments is all that was wanted."""


def test_episodes_are_alike_for_all_arms_and_new_to_every_agent(
    rewarded: Project, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    inputs, arms = inputs_of(rewarded), rewarded.params.resolved_arms

    def stop(env: Any, adapter: Any, n_envs: int, seed: int, **_: Any) -> None:
        found.append(seed)
        raise StoppedError

    monkeypatch.setattr(rollout, "make_vector", stop)
    monkeypatch.setattr(lockstep, "make_vector", stop)

    def evaluated(params: Params, arm: str, seed: int) -> int:
        played = None if arm == "random_policy" else agent
        with pytest.raises(StoppedError):
            play_agent(evaluation(params, inputs), arms[arm], seed, played, tmp_path / "table", print)
        return found.pop()

    def trained(params: Params, seed: int) -> int:
        agents = [(arms["extrinsic"], seed, tmp_path / "agent")]
        with pytest.raises(StoppedError):
            train_arms(params.seed, RewardContext.of(params), agents, inputs, print)
        return found.pop()

    params = rewarded.params
    seeds = range(5)
    evaluations = [evaluated(params, "extrinsic", seed) for seed in seeds]
    for arm in ("preference", "random_policy"):
        assert [evaluated(params, arm, seed) for seed in seeds] == evaluations
    assert evaluated(params.model_copy(update={"seed": 1}), "extrinsic", 0) not in evaluations
    everyone = sorted(evaluations + [trained(params, seed) for seed in seeds])
    assert min(np.diff(everyone)) > 1000, "environments count up from their seed, and must not meet"


def test_episodes_follow_the_parameters(
    rewarded: Project, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    original = play.roll_out

    def noted(env: Any, adapter: EnvAdapter, act: Any, **options: Any) -> Any:
        calls.append({**options, "adapter": adapter, "act": act})
        return original(env, adapter, act, **options)

    monkeypatch.setattr(play, "roll_out", noted)
    model = RewardModel.load(rewarded.output("train-reward") / "preference")
    params = changed(
        rewarded.params,
        evaluate={"episodes": 3, "n_envs": 2, "greedy": True},
        shaping={"beta": 0.5, "quantile": 0.9},
        caption={"with_action": True},
    )
    run = evaluation(params, inputs_of(rewarded))
    play_agent(run, params.resolved_arms["oracle"], 0, agent, tmp_path / "table", lambda n: None)
    (call,) = calls
    assert (call["episodes"], call["n_envs"], call["adapter"].with_action) == (3, 2, True)
    learned: LearnedReward = call["learned"]
    assert learned.shaping.beta == 0.5
    assert learned.reward.threshold == pytest.approx(model.normalizer.threshold(0.9))
    rng = np.random.default_rng(0)
    twice = [call["act"].act(everywhere(call["adapter"]), rng).action for _ in range(2)]
    np.testing.assert_array_equal(*twice, "greedy")
