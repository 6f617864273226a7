"""Every algorithm is an arm: it resumes to the bit, is steered by the learned reward, and can be loaded and played."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pyarrow.parquet as pq
import pytest
import stopping
import torch
from learning import collected, probe
from probe_environments import Bar, RewardByAction, Targets, probe_id
from stopping import caption_reward, content

from laurel.agents.a2c import A2C
from laurel.agents.algorithms import algorithm_of, initial_policy, make_learner
from laurel.agents.algorithms.ppo import PPOAlgorithm
from laurel.agents.checkpoint import load_policy
from laurel.agents.learner import LearnerGroup
from laurel.agents.policy import ActorCritic
from laurel.agents.ppo import PPO
from laurel.agents.stacked_ppo import StackedPPO
from laurel.envs import adapter_for
from laurel.envs.builtin import CATCH
from laurel.errors import PluginError
from laurel.evaluation.play import Evaluation, play_agent
from laurel.params import EnvParams
from laurel.params.algorithms import (
    A2CParams,
    AlgorithmParams,
    BanditParams,
    DQNParams,
    HintsParams,
    PPOParams,
    ReinforceParams,
    TabularParams,
)
from laurel.params.kinds import ALGORITHMS
from laurel.params.training import AgentParams, ShapingParams
from laurel.rewards.functions import CaptionReward
from laurel.rewards.method import Inputs, RewardContext
from laurel.training.arms import task_of, train_arms
from laurel.training.loop import train
from laurel.training.task import Task
from tiny_project import Project

torch.set_num_threads(1)

SMALL: dict[str, AlgorithmParams] = {
    "ppo": PPOParams(n_envs=4, n_steps=16, batch_size=32, n_epochs=4, learning_rate=0.01, hidden=(8,)),
    "ppo recurrent": PPOParams(
        n_envs=4, n_steps=16, batch_size=32, n_epochs=4, learning_rate=0.01, recurrent=True, hidden=(8,)
    ),
    "ppo cnn": PPOParams(
        n_envs=4, n_steps=16, batch_size=32, n_epochs=4, learning_rate=0.01, network="cnn", hidden=(8,)
    ),
    "a2c": A2CParams(n_envs=4, n_steps=16, learning_rate=0.02, hidden=(8,)),
    "reinforce": ReinforceParams(n_envs=4, n_steps=16, learning_rate=0.02, hidden=(8,)),
    "dqn": DQNParams(n_envs=4, n_steps=16, batch_size=16, gradient_steps=8, learning_starts=80, buffer_size=300,
                     learning_rate=0.01, target_every=5, hidden=(8,)),
    "dqn prioritized": DQNParams(n_envs=4, n_steps=16, batch_size=16, gradient_steps=8, learning_starts=80,
                                 buffer_size=300, learning_rate=0.01, target_every=5, prioritized=True, hidden=(8,)),
    "q_learning": TabularParams(n_envs=4),
    "sarsa": TabularParams(n_envs=4, method="sarsa"),
    "expected_sarsa": TabularParams(n_envs=4, method="expected_sarsa"),
    "monte_carlo": TabularParams(n_envs=4, method="monte_carlo", step_size=0.0),
    "n_step_sarsa": TabularParams(n_envs=4, method="n_step_sarsa"),
    "tree_backup": TabularParams(n_envs=4, method="tree_backup"),
    "reward_averaging": BanditParams(n_envs=4, n_steps=16),
    "ucb": BanditParams(n_envs=4, n_steps=16, method="ucb"),
    "gradient": BanditParams(n_envs=4, n_steps=16, method="gradient"),
    "gaussian_thompson": BanditParams(n_envs=4, n_steps=16, method="gaussian_thompson"),
}  # fmt: skip
DEEP = [name for name, settings in SMALL.items() if not isinstance(settings, TabularParams | BanditParams)]


def task_for(name: str, env: str, updates: int = 8) -> Task:
    return Task(
        arm="preference",
        seed=1,
        run_seed=5,
        env=EnvParams(id=env, backend="gymnasium"),
        settings=SMALL[name],
        shaping=ShapingParams(beta=1.0, quantile=0.0),
        steps=updates * 64,
        checkpoint_steps=2 * 64,
    )


def run(task: Task, directory: Path, *, updates: int | None = None) -> None:
    """Train for some updates more, or to the end, paid for captions by their length."""
    stopping.run(task, adapter_for(task.env), directory, caption_reward(), updates=updates)


@pytest.mark.parametrize("name", [name for name in SMALL if name != "ppo"])
def test_a_resumed_run_is_the_run_that_it_would_have_been(name: str, tmp_path: Path) -> None:
    """To the bit: memories, episodes and windows are filled again; the first stop comes before anything is learned."""
    task = task_for(name, CATCH if name == "ppo cnn" else "CartPole-v1" if name in DEEP else "FrozenLake-v1")
    run(task, tmp_path / "whole")
    expected = content(tmp_path / "whole")
    for number, stops in enumerate([[5], [2, 3], [0, 7, 0]]):
        place = tmp_path / str(number)
        for updates in stops:
            run(task, place, updates=updates)
        run(task, place)
        assert content(place) == expected, stops


def test_a_run_stopped_before_the_first_update_resumes(tmp_path: Path) -> None:
    """The optimiser has not made a step, so it has no state."""
    for name in ("dqn", "reinforce"):
        settings = SMALL[name].model_copy(update={"n_steps": 1})
        task = replace(task_for(name, "CartPole-v1"), settings=settings, steps=40 * 4, checkpoint_steps=4)
        run(task, tmp_path / name, updates=1)
        run(task, tmp_path / name)
        run(task, tmp_path / f"{name} whole")
        assert content(tmp_path / name) == content(tmp_path / f"{name} whole")


@pytest.mark.parametrize("name", [name for name in SMALL if name != "ppo cnn"])
def test_the_learned_reward_determines_the_policy(name: str, tmp_path: Path) -> None:
    """The environment rewards action 1; a caption reward for the other action, used alone, teaches the other."""
    env = EnvParams(id=probe_id(RewardByAction), backend="gymnasium")
    shaping = ShapingParams(beta=3.0, intrinsic=1.0, extrinsic=0.0)
    task = replace(task_for(name, env.id, updates=60), shaping=shaping, checkpoint_steps=10**6)

    def score(texts: list[str]) -> np.ndarray:
        return np.array([1.0 if "negative" in text else -1.0 for text in texts], dtype=np.float32)

    adapter = adapter_for(env, with_action=True)
    returns = []
    for mixed in (task, replace(task, shaping=ShapingParams(intrinsic=0.0))):
        place = tmp_path / str(len(returns))
        train(mixed, adapter, CaptionReward({"": 0.0}, 0.0, score), place, lambda _: None)
        returns.append(pq.read_table(place / "curve.parquet").to_pylist()[-1]["return_mean"])
    assert returns[0] < -0.7
    assert returns[1] > 0.7


@pytest.mark.parametrize("kind", [Targets, Bar])
def test_a_planted_reward_is_found_by_continuous_actions_and_with_a_picture(
    kind: type[gym.Env[Any, Any]], tmp_path: Path
) -> None:
    """Neither the high action nor action 3 is what the environment pays for."""
    pictured = kind is Bar
    ppo = {"network": "auto", "learning_rate": 2e-3} if pictured else {}
    settings = SMALL["ppo"].model_copy(update={"n_envs": 16, "batch_size": 64, "entropy_coef": 0.0, **ppo})
    task = replace(
        task_for("ppo", probe_id(kind)),
        settings=settings,
        shaping=ShapingParams(beta=0.0, quantile=0.0, intrinsic=1.0, extrinsic=0.0),
        steps=60 * 256,
        checkpoint_steps=10**6,
    )
    said = "The action is 3." if pictured else "high"

    def score(texts: list[str]) -> np.ndarray:
        return np.array([1.0 if said in text else -1.0 for text in texts], dtype=np.float32)

    adapter = adapter_for(task.env, with_action=True)
    train(task, adapter, CaptionReward({"": 0.0}, 0.0, score), tmp_path / "agent", lambda _: None)
    rows = pq.read_table(tmp_path / "agent" / "curve.parquet").to_pylist()
    assert rows[0]["raw_reward"] < 0 < 0.8 < rows[-1]["raw_reward"]
    learner = make_learner(load_policy(tmp_path / "agent"), settings, np.random.default_rng(0))
    assert type(learner) is (PPO if pictured else StackedPPO)


def test_hints_of_another_packages_algorithm_are_given_to_it() -> None:
    class OwnParams(AlgorithmParams):
        algorithm: ClassVar[str] = "own"
        n_envs: int = 1
        n_steps: int = 1
        hints: HintsParams | None = None

    assert OwnParams().helper is None
    helper = OwnParams(hints=HintsParams(options={"judge": "a"})).helper
    assert helper is not None
    assert (helper.actor, helper.options, helper.key) == ("llm_policy", {"judge": "a"}, "agent.own.hints")


def test_a_network_names_its_ppo_class() -> None:
    class Odd(ActorCritic):
        ppo_class = f"{PPO.__module__}:PPO"

    algorithm = algorithm_of(PPOParams())
    odd = Odd(4, 2, continuous=False, hidden=(4,))
    assert type(algorithm.learner(odd, np.random.default_rng(0))) is PPO
    plain = algorithm.learner(ActorCritic(4, 2, continuous=False, hidden=(4,)), np.random.default_rng(0))
    assert type(plain) is StackedPPO
    assert plain.takes_hints
    assert not PPO.takes_hints


ELSEWHERE = ("grpo", "rloo", "subgoals")
"""Algorithms that do not fit the frozen lake."""


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS.builtin() if name not in ELSEWHERE])
def test_every_algorithm_trains_arms_that_can_be_played(rewarded: Project, algorithm: str, tmp_path: Path) -> None:
    small = {
        "dqn": {"learning_starts": 100, "hidden": (8,)},
        "glam": {"n_envs": 16, "n_steps": 16, "n_epochs": 1},
        "language_model": {"n_envs": 64, "critic": "table", "proposals": 4, "imitation_examples": 100},
    }
    agent = {**rewarded.params.agent.model_dump(), "algorithm": algorithm, "steps": 512}
    agent |= {algorithm: small[algorithm]} if algorithm in small else {}
    params = rewarded.params.model_copy(update={"agent": AgentParams.model_validate(agent)})
    arms, context = params.resolved_arms, RewardContext.of(params)
    task = task_of(params.seed, params.env, arms["preference"], 0)
    assert task.settings is params.agent.section_of(algorithm)
    place, other, alone = (tmp_path / name for name in ("seed-0", "seed-1", "alone"))
    inputs = rewarded.inputs("train-agents")
    together = [(arms["preference"], 0, place), (arms["extrinsic"], 1, other)]
    for agents in (together, [(arms["preference"], 0, alone)]):
        train_arms(params.seed, context, agents, Inputs(**inputs), lambda _: None)
    assert content(place) == content(alone), "each becomes what it would have become alone"
    rows = pq.read_table(place / "curve.parquet").to_pylist()
    assert all(row["shaped_reward"] is not None for row in rows)
    assert make_learner(load_policy(place), task.settings, np.random.default_rng(0)).name == algorithm
    table = tmp_path / "episodes.parquet"
    run = Evaluation(params.seed, context, params.evaluate, Inputs(**inputs), arms["preference"])
    play_agent(run, arms["preference"], 0, place, table, lambda _: None)
    assert len(pq.read_table(table)) == params.evaluate.episodes


def test_a_learner_that_returns_no_metrics_is_named() -> None:
    class Silent(A2C):
        def learn(self, rollout: Any) -> Any:
            return None

    learner, rollout, _ = collected(probe(Targets, limit=5), A2CParams(n_envs=4, n_steps=8, hidden=(8,)))
    learner.__class__ = Silent
    with pytest.raises(
        PluginError, match=r"test_algorithms\.\S*Silent: its learn returned None, but a mapping of metrics to numbers"
    ):
        LearnerGroup([learner]).learn([rollout])


@pytest.mark.parametrize("found", [{"policy": "low"}, {"value": 1j}, np.zeros(2)])
def test_metrics_that_a_curve_cannot_hold_are_refused(found: Any) -> None:
    class Odd(A2C):
        def learn(self, rollout: Any) -> Any:
            return found

    learner, rollout, _ = collected(probe(Targets, limit=5), A2CParams(n_envs=4, n_steps=8, hidden=(8,)))
    learner.__class__ = Odd
    with pytest.raises(PluginError, match="a mapping of metrics to numbers is required"):
        LearnerGroup([learner]).learn([rollout])


@pytest.mark.parametrize("found", [np.zeros((4, 1)), (np.zeros(4),), (), None])
def test_a_policy_whose_actions_have_another_shape_is_named(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    learner, rollout, envs = collected(probe(Targets, limit=5), A2CParams(n_envs=4, n_steps=8, hidden=(8,)))
    monkeypatch.setattr(learner.policy, "act", lambda *_: found)
    with pytest.raises(
        PluginError, match=r"its act returned .* but a tuple is required whose first .* shape \(4, 1\);"
    ):
        learner.collect(envs, rollout.observation[-1], rollout)


@pytest.mark.parametrize(
    ("env", "action", "said"),
    [
        (Targets, np.nan, "actions of type float64 with NaN or infinity, but finite numbers are required"),
        (RewardByAction, 2, "actions of type int64 from 2 to 2, but whole numbers from 0 to 1 are required"),
        (RewardByAction, 0.7, r"actions of type float64 from 0\.7 to 0\.7, but whole numbers"),
        (RewardByAction, 1, None),
    ],
)
def test_actions_of_another_packages_policy_that_do_not_fit_are_named(
    env: Any, action: float, said: str | None
) -> None:
    class Network(ActorCritic):
        def act(self, features: Any, *_: Any, **__: Any) -> Any:
            return (np.full((4, *self.action_shape), action),)

    learner, rollout, envs = collected(probe(env, limit=5), A2CParams(n_envs=4, n_steps=8, hidden=(8,)))
    learner.policy.__class__ = Network
    if said is None:
        learner.collect(envs, rollout.observation[-1], rollout)
        return
    with pytest.raises(PluginError, match=f"its act returned {said}"):
        learner.collect(envs, rollout.observation[-1], rollout)


def test_an_algorithm_of_another_package_whose_policy_cannot_be_loaded_is_refused_before_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Network(ActorCritic):
        kind = "theirs"

    class Theirs(PPOAlgorithm):
        made: Any = None

        def policy(self, adapter: Any) -> Any:
            return self.made

        def learner(self, policy: Any, rng: Any) -> Any:
            return None

    monkeypatch.setattr("laurel.agents.algorithms.algorithm_of", Theirs)
    adapter, settings = adapter_for(EnvParams(id="CartPole-v1")), SMALL["ppo"]
    with pytest.raises(PluginError, match=r"\.Theirs: its policy returned None, but a PolicyNetwork is required"):
        initial_policy(adapter, settings, 0, 0)
    Theirs.made = Network(4, 2, continuous=False, hidden=(4,))
    with pytest.raises(PluginError, match=r"Network of the kind 'theirs', could not be loaded after training\. Bind"):
        initial_policy(adapter, settings, 0, 0)
    Theirs.made = ActorCritic(4, 2, continuous=False, hidden=(4,))
    assert initial_policy(adapter, settings, 0, 0) is Theirs.made
    with pytest.raises(PluginError, match=r"its learner returned None, but a Learner is required"):
        make_learner(Theirs.made, settings, np.random.default_rng(0))
