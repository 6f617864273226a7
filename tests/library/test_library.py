"""The API of `import laurel` besides wrappers: rewards, agents, labels and tables; and that the import is cheap."""

from __future__ import annotations

import ast
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import laurel
from laurel.agents.checkpoint import save_policy
from laurel.agents.policy import ActorCritic
from laurel.agents.recurrent import RecurrentActorCritic
from laurel.data.preferences import read_preferences
from laurel.envs import adapter_for
from laurel.errors import AnnotationError, DataError, EnvError, ParamsError
from laurel.rewards.shaping import shape
from laurel.rewards.stored import StoredRewards
from tiny_project import REPOSITORY, Project

Made = Callable[..., Path]
HEAVY = ("numpy", "torch", "gymnasium", "pandas", "pydantic", "transformers", "mlflow", "yaml", "pyarrow", "scipy")


def test_importing_it_imports_no_other_modules() -> None:
    code = f"import laurel, sys; print([name for name in {HEAVY} if name in sys.modules], dir(laurel))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[] {sorted(laurel.__all__)}"


def test_the_public_names_are_those_that_type_checkers_see() -> None:
    stub = ast.parse((REPOSITORY / "src/laurel/__init__.pyi").read_text())
    names = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names == set(laurel.__all__) - {"__version__"}
    assert all(getattr(laurel, name).__doc__ for name in names)
    with pytest.raises(AttributeError, match="public are: RewardVecEnv"):
        laurel.reward  # noqa: B018
    readable = (REPOSITORY / "docs/library.md").read_text()
    assert all(f"laurel.{name}" in readable for name in names)


def test_a_reward_scores_captions_and_gives_rewards(made: Made) -> None:
    reward = pickle.loads(pickle.dumps(laurel.load_reward(made("MiniGrid-Empty-5x5-v0"))))
    turn, new, again = reward.score(["You turn.", "A caption of its own.", "You turn."])
    assert turn == again
    assert np.isfinite(new)
    paid = reward.pay(["You turn.", "", "You turn."], {"beta": 2.0, "quantile": 0.0})
    threshold = reward.on(None, 0.0).threshold
    first, second = shape(np.float32([turn, turn]), np.array([1, 2]), threshold=threshold, beta=2.0)
    assert paid.tolist() == [first, 0.0, second]
    assert len(reward.pay([])) == 0


def test_rewards_are_found_in_a_runs_output(rewarded: Project, tmp_path: Path) -> None:
    folder = rewarded.path / "data/reward"
    assert laurel.load_reward(folder / "preference").env.id == "FrozenLake-v1"
    with pytest.raises(ParamsError, match=r"texts is a single text, but must be a list of texts: \['You fall\.'\]"):
        laurel.load_reward(folder / "random_reward").score("You fall.")
    with pytest.raises(ParamsError, match="captions is a single text"):
        laurel.load_reward(folder / "random_reward").pay("You fall.")
    with pytest.raises(ParamsError, match="but must be a list of texts"):  # its keys are no captions
        laurel.load_reward(folder / "random_reward").score({"caption": ["You fall."]})  # type: ignore[arg-type]
    drawn = [laurel.load_reward(folder / "random_reward", seed=seed).score(["You fall."])[0] for seed in (0, 1)]
    assert drawn[0] != drawn[1]
    assert laurel.load_reward(folder / "random_reward/seed-1").score(["You fall."])[0] == drawn[1]
    shuffled = [laurel.load_reward(folder / "shuffled_labels", seed=seed).score(["You fall."])[0] for seed in (0, 1)]
    assert shuffled[0] != shuffled[1]
    assert laurel.load_reward(folder / "shuffled_labels/seed-1").score(["You fall."])[0] == shuffled[1]
    with pytest.raises(DataError, match="holds several rewards"):
        laurel.load_reward(folder)
    for nothing in (rewarded.path / "data/captions", rewarded.path):
        with pytest.raises(DataError, match="is not a reward"):
            laurel.load_reward(nothing)
    copied = shutil.copytree(folder / "preference", tmp_path / "copied")
    with pytest.raises(
        DataError, match=r"copied: is not a reward.*copy data/reward as a whole, or what `laurel export"
    ):
        laurel.load_reward(copied)
    assert laurel.load_reward(shutil.copytree(folder, tmp_path / "whole") / "preference").name == "preference"
    with pytest.raises(DataError, match=r"no reward random_reward for seed 7. It has the seeds 0, 1"):
        laurel.load_reward(folder / "random_reward", seed=7)
    with pytest.raises(DataError, match="no such directory"):
        laurel.load_reward("data/rewards")
    with pytest.raises(DataError, match="must be hf://OWNER/NAME"):
        laurel.load_reward("hf://me")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (None, "texts is None, but must be a list"),
        (5, "texts is 5, but must be a list"),
        (["You fall.", None], r"texts\[1\] is None, but must be a text"),
        ([float("nan")], r"texts\[0\] is nan"),
        ([["You fall."]], r"texts\[0\] is \['You fall.'\]"),
    ],
)
def test_what_is_not_several_texts_is_named(rewarded: Project, texts: Any, said: str) -> None:
    reward = laurel.load_reward(rewarded.path / "data/reward/random_reward")
    with pytest.raises(ParamsError, match=said):
        reward.score(texts)
    with pytest.raises(ParamsError, match=said.replace("texts", "captions")):
        reward.pay(texts)


def test_columns_of_texts_are_scored_like_lists(rewarded: Project) -> None:
    reward, texts = laurel.load_reward(rewarded.path / "data/reward/random_reward"), ["You fall.", "You slip."]
    expected = reward.score(texts).tolist()
    for column in (pa.array(texts), pa.chunked_array([texts]), pd.Series(texts), np.array(texts), iter(texts)):
        assert reward.score(column).tolist() == expected  # type: ignore[arg-type]


def test_a_run_without_rewards_says_so(rewarded: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = rewarded.path / "data/reward"
    none = replace(StoredRewards.read(folder), settings={}, seeds={})
    monkeypatch.setattr(StoredRewards, "read", lambda path: none)
    with pytest.raises(DataError, match=r"data/reward: holds no reward, as no arm"):
        laurel.load_reward(folder)


def test_a_network_with_memory_is_given_its_state(tmp_path: Path) -> None:
    network = RecurrentActorCritic(4, 2, continuous=False, hidden=(8, 8))
    save_policy(tmp_path / "agent", network, env={"id": "CartPole-v1"})
    agent = laurel.load_agent(tmp_path / "agent")
    envs = gym.make_vec("CartPole-v1", 3, vectorization_mode="sync")
    observation, _ = envs.reset(seed=0)
    action, state = agent.predict(observation, deterministic=True)
    assert action.shape == (3,)
    _, later = agent.predict(observation, state, np.array([False, False, True]), deterministic=True)
    features = adapter_for(agent.env).features(observation)
    expected = network.remember(features, np.where([[False], [False], [True]], 0, state))
    np.testing.assert_array_equal(later, expected)


def test_an_agent_acts_in_other_libraries_loops(tmp_path: Path) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy

    save_policy(tmp_path / "agent", ActorCritic(4, 2, continuous=False, hidden=(8,)), env={"id": "CartPole-v1"})
    agent = laurel.load_agent(tmp_path / "agent")
    mean, _ = evaluate_policy(agent, gym.make("CartPole-v1"), n_eval_episodes=2, warn=False)
    assert mean > 0
    observation = gym.make("CartPole-v1").reset(seed=0)[0]
    assert agent.predict(observation, deterministic=True)[0].shape == ()
    with pytest.raises(EnvError, match=r"an observation of this environment has \(4,\)"):
        agent.predict(np.zeros((2, 7, 7, 3)))
    with pytest.raises(DataError, match="no such directory"):
        laurel.load_agent("agent")
    with pytest.raises(DataError, match=r"holds no agent.* Name the folder of an arm's seed"):
        laurel.load_agent(tmp_path)


def test_any_texts_can_be_labelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = [("You win the game.", "You lose the game."), ("the same", "the same")]
    table = laurel.annotate(pairs, goal="You win the game.", anti_goal="You lose the game.")
    assert table["status"].tolist() == ["ok", "tie"]
    assert table["p_first"][0] > 0.9
    assert table["annotator"].str.startswith("embedding").all()
    assert table.to_arrow()["p_first"].to_pylist()[1] == 0.5
    assert len(laurel.annotate([], goal="You win the game.")) == 0
    for wrong in ("ab", 5, {"first": "You win.", "second": "You lose."}, ("You win.", None)):
        with pytest.raises(ParamsError, match=r"pair 0 is .*, but must be two texts"):
            laurel.annotate([wrong], goal="You win.")
    with pytest.raises(ParamsError, match=r'annotator.*"embeding".*Did you mean "embedding"'):
        laurel.annotate(pairs, "embeding", goal="You win.")
    with pytest.raises(AnnotationError, match="oracle"):
        laurel.annotate(pairs, "scripted", goal="You win.")


def test_outputs_are_tables(finished: Project, tmp_path: Path) -> None:
    data = finished.path / "data"
    counts = {name: len(laurel.read(data / name)) for name in ("trajectories", "captions", "reward", "agents")}
    assert min(counts.values()) > 0
    labels = laurel.read(data / "preferences")
    assert set(labels["first"]) <= set(laurel.read(data / "captions")["text"])
    assert labels.to_arrow().num_rows == len(labels)
    assert (labels["votes"] == 1).all()
    assert set(labels["annotator"]) == {read_preferences(data / "preferences").annotator}
    assert set(laurel.read(finished.path / "reports")["arm"]) == {"extrinsic", "preference", "random_policy"}
    alone = finished.copy(tmp_path / "copy", without=["caption"])
    with pytest.raises(DataError, match="Restore that folder"):
        laurel.read(alone.path / "data/preferences")


def test_models_of_the_registry_are_loaded(finished: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished.path)
    here = laurel.load_reward("data/reward/preference")
    there = laurel.load_reward(f"models:/reward.{here.env.id}@preference")
    assert there.env == here.env
    assert there.score(["You turn."]) == here.score(["You turn."])
    assert laurel.load_reward(f"models:/reward.{here.env.id}@best").score(["You turn."]) == here.score(["You turn."])
    observation = gym.make(here.env.id).reset(seed=0)[0]
    action, _ = laurel.load_agent(f"models:/agent.{here.env.id}@best").predict(observation, deterministic=True)
    assert action in range(7)
    with pytest.raises(DataError, match="MLflow does not have it"):
        laurel.load_reward("models:/reward.none@preference")
    from mlflow import pyfunc

    reward = pyfunc.load_model(f"models:/reward.{here.env.id}@preference")
    named = {"any": np.array(["You turn."])}  # as `mlflow models serve` passes {"inputs": {"any": ["You turn."]}} on
    for texts in (["You turn."], np.array(["You turn."]), pd.DataFrame(named), named):
        assert reward.predict(texts) == here.score(["You turn."])
    for several in ({"a": ["You turn."], "b": ["You turn."]}, {}):
        with pytest.raises(
            DataError, match=f"one column of captions is needed, but it has {', '.join(several) or 'none'}"
        ):
            reward.predict(several)
        with pytest.raises(
            DataError, match=f"one column of captions is needed, but it has {', '.join(several) or 'none'}"
        ):
            reward.predict(pd.DataFrame(several))
    assert pyfunc.load_model(f"models:/agent.{here.env.id}@best").predict(observation) == action
