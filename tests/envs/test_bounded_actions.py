"""A policy may draw continuous actions beyond their bounds: everything else knows those that the environment took."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import laurel
from acting import Acting
from laurel.agents.behaviour import Behaviour, collect_steps
from laurel.agents.checkpoint import save_policy
from laurel.agents.learner import Rollout
from laurel.agents.policy import ActorCritic
from laurel.data.trajectories import Rows
from laurel.envs import EnvAdapter, Transition, adapter_for, make_reference
from laurel.envs.captioner import Captioner
from laurel.envs.vector import make_vector
from laurel.evaluation.episode import moments
from laurel.evaluation.rollout import LearnedReward, roll_out
from laurel.params import EnvParams, PolicyShare
from laurel.params.training import ShapingParams
from laurel.rewards.functions import CaptionReward
from laurel.training.pay import TrainingReward

ENV = EnvParams(id="TestLever-v0")
LOW, HIGH = np.array([-1, 10], np.float32), np.array([1, 20], np.float32)
BEYOND = np.array([[-3, 9], [0.5, 12], [7, 99]], np.float32)
WITHIN = np.array([[-1, 10], [0.5, 12], [1, 20]], np.float32)


class Lever(gym.Env[Any, Any]):
    """Refuses actions outside its space."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Box(LOW, HIGH)
    render_mode = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        return np.zeros(1, np.float32), 0.0, False, False, {}


class LeverAdapter(EnvAdapter):
    ids = ("TestLever-v0",)
    description = goal = "Pull the lever."

    def caption(self, transition: Transition) -> str:
        return " ".join(f"{value:g}" for value in transition.action)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    gym.register("TestLever-v0", lambda **_: Lever(), max_episode_steps=3)
    yield
    del gym.registry["TestLever-v0"]


@pytest.fixture
def adapter() -> EnvAdapter:
    return adapter_for(ENV)


def actor() -> Acting:
    return Acting(lambda features: np.resize(BEYOND, (len(features), 2)))


def captioned(said: list[str]) -> CaptionReward:
    """Return a reward that notes the captions that it is asked about."""

    def score(texts: list[str]) -> Any:
        said.extend(texts)
        return np.zeros(len(texts), np.float32)

    return CaptionReward({}, 0.0, score)


def test_evaluation_scores_the_actions_taken(adapter: EnvAdapter) -> None:
    said: list[str] = []
    learned = LearnedReward(captioned(said), ShapingParams())
    roll_out(ENV, adapter, actor(), n_envs=3, episodes=3, seed=0, learned=learned)
    assert sorted(said) == ["-1 10", "0.5 12", "1 20"]


def test_training_scores_the_actions_taken_and_learns_from_those_drawn(adapter: EnvAdapter) -> None:
    said: list[str] = []
    with closing(make_vector(ENV, adapter, 3, 0)) as envs:
        network = ActorCritic(adapter.n_features, 2, continuous=True, hidden=(4,))
        rollout = Rollout(**Rollout.shapes(1, envs, network))
        envs.reset()
        rollout.record(0, BEYOND, envs.step(BEYOND))
    TrainingReward(ShapingParams(), adapter, captioned(said), 3).mix_into(rollout)
    assert sorted(said) == ["-1 10", "0.5 12", "1 20"]
    np.testing.assert_array_equal(rollout.action[0], BEYOND)


def test_an_episode_that_is_watched_takes_them_too(adapter: EnvAdapter) -> None:
    with closing(make_reference(ENV)) as reference:
        beyond_actor = Acting(lambda _: BEYOND[:1])
        found = list(
            moments(reference, adapter, beyond_actor, np.random.default_rng(0), Captioner(adapter), 2, 0, None)
        )
    assert [(moment.action, moment.caption) for moment in found[1:]] == [("-1.00, +10.00", "-1 10")] * 2


def test_collected_steps_hold_the_actions_taken(adapter: EnvAdapter, tmp_path: Path) -> None:
    save_policy(tmp_path, ActorCritic(adapter.n_features, 2, continuous=True, hidden=(4,)))  # about 0, below 10
    behaviour = Behaviour([PolicyShare(kind="checkpoint", path=tmp_path)], adapter, 4, 0)
    written: list[Rows] = []
    with closing(make_vector(ENV, adapter, 4, 0)) as envs:
        collect_steps(envs, behaviour, 12, written.append, lambda _: None)
    actions = np.concatenate([rows.action[~rows.final] for rows in written])
    assert ((actions >= LOW) & (actions <= HIGH)).all()
    assert all(np.isfinite(rows.log_prob[~rows.final]).all() for rows in written)


def test_a_loaded_agent_acts_within_the_bounds(adapter: EnvAdapter, tmp_path: Path) -> None:
    network = ActorCritic(adapter.n_features, 2, continuous=True, hidden=(4,))
    save_policy(tmp_path / "agent", network, env={"id": "TestLever-v0"})
    agent, env = laurel.load_agent(tmp_path / "agent"), gym.make("TestLever-v0")
    action, _ = agent.predict(env.reset(seed=0)[0])
    env.step(action)
    actions, _ = agent.predict(np.zeros((5, 1), np.float32))
    assert all(env.action_space.contains(action) for action in actions)


def test_discrete_actions_are_taken_as_they_are() -> None:
    actions = np.array([0, 3])
    assert adapter_for(EnvParams(id="FrozenLake-v1")).taken(actions) is actions


def test_no_axis_is_lost(adapter: EnvAdapter) -> None:
    np.testing.assert_array_equal(adapter.taken(BEYOND[None]), WITHIN[None])
