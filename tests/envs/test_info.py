"""What an adapter names of the environment's `info` reaches transitions, files, captions and rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

from acting import Acting
from laurel.agents.algorithms import initial_policy, make_learner
from laurel.agents.episodes import Episodes
from laurel.agents.sb3.env import LearnedRewardEnvs, PackedEnvs
from laurel.arrays import BoolArray, FloatArray
from laurel.data.minari import export
from laurel.data.trajectories import read_trajectories
from laurel.envs import EnvAdapter, Transition, Transitions, adapter_for, make_reference
from laurel.envs.captioner import Captioner
from laurel.envs.info import named_info
from laurel.envs.vector import make_vector
from laurel.errors import EnvError
from laurel.evaluation.episode import moments
from laurel.evaluation.rollout import LearnedReward, roll_out
from laurel.params import CaptionParams, CollectParams, EnvParams, TrackingParams, parse_params
from laurel.params.algorithms import PPOParams
from laurel.params.training import ShapingParams
from laurel.rewards.base import Steps
from laurel.rewards.methods.outcome import collected_outcomes
from laurel.stages import caption, collect
from laurel.training.pay import TrainingReward

ENV = EnvParams(id="TestHeat-v0")


class Heat(gym.Env[int, int]):
    """Each step warms by the action; only `info` has the temperature. Ends after four steps."""

    observation_space = gym.spaces.Discrete(5)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.heat = 0, 0
        return 0, {"not told": "at resets"}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps, self.heat = self.steps + 1, self.heat + int(action)
        heat: float = 0 if self.heat == 0 else self.heat / 2  # a whole number at first, as users write it
        changing = None if self.heat == 1 else {"so far": self.heat} if self.heat else 0
        info = {"heat": heat, "hot": self.heat >= 2, "unused": "words", "path": np.zeros(self.heat), "odd": changing}
        return self.steps, 0.0, self.steps == 4, False, info


class HeatAdapter(EnvAdapter):
    ids = ("TestHeat-v0",)
    description = goal = "Get warm."
    info_fields: ClassVar[Mapping[str, str]] = {"heat": "float32", "hot": "bool"}

    def caption(self, transition: Transition) -> str:
        return f"It is {'hot' if transition.info['hot'] else 'cold'}, {transition.info['heat']:g} degrees."

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        """Return which episodes end hot; no return tells."""
        hot: BoolArray = last.info["hot"]
        return hot


class HeatReward:
    """Pays the heat itself, which no caption of a network's observation holds."""

    threshold, unseen = 0.0, 0

    def begin(self, n_envs: int) -> None: ...

    def pay(self, steps: Steps) -> np.ndarray:
        paid: np.ndarray = steps.transitions.info["heat"].reshape(steps.valid.shape)
        return paid


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    gym.register("TestHeat-v0", Heat)
    yield
    del gym.registry["TestHeat-v0"]


def test_info_is_collected_stored_and_captioned(tmp_path: Path) -> None:
    params = parse_params(
        {
            "env": {"id": ENV.id},
            "collect": {"steps": 200, "n_envs": 3},
            "arms": "full",
            "agent": {"seeds": [0], "steps": 1},
        },
        "params",
    )
    collect.run(params.seed, params.env, params.collect, params.tracking, tmp_path / "trajectories")
    (found, position), *_ = read_trajectories(tmp_path / "trajectories")
    heat, running = [], 0.0
    for action, t in zip(found.action.tolist(), position.t.tolist(), strict=True):
        running = (running if t else 0.0) + action / 2
        heat.append(running)
    assert found.info["heat"].tolist() == heat
    assert found.info["heat"].dtype == np.float32
    assert found.info["hot"].tolist() == [degrees >= 1 for degrees in heat]
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("minari")
    export(tmp_path / "trajectories", "heat/test-v0", tmp_path / "minari")
    with h5py.File(tmp_path / "minari/heat/test-v0/data/main_data.hdf5") as file:
        assert file["episode_0/infos/heat"][:].tolist() == [0, *heat[:4]], "nothing is kept of a reset"
    captioner = Captioner(adapter_for(ENV))
    texts = [captioner.texts[i] for i in captioner.ids(found)]
    assert texts == [f"It is {'hot' if degrees >= 1 else 'cold'}, {degrees:g} degrees." for degrees in heat]


def test_a_reward_uses_info_in_training_and_evaluation() -> None:
    adapter, settings = adapter_for(ENV), PPOParams(n_envs=2, n_steps=10, hidden=(8,))
    learner = make_learner(initial_policy(adapter, settings, 0, 0), settings, np.random.default_rng(0))
    envs = make_vector(ENV, adapter, 2, 0)
    rollout = learner.rollout(envs)
    learner.collect(envs, envs.reset(), rollout)
    TrainingReward(ShapingParams(extrinsic=0.0, beta=0.0), adapter, HeatReward(), 2).mix_into(rollout)
    expected = np.where(rollout.valid, rollout.info["heat"], 0)
    assert expected.max() > 0
    np.testing.assert_allclose(rollout.reward, ShapingParams().intrinsic * expected)

    sb3 = PackedEnvs(ENV, adapter, 2, 0)
    paid = LearnedRewardEnvs(
        sb3, adapter, TrainingReward(ShapingParams(extrinsic=0.0, beta=0.0), adapter, HeatReward(), 2)
    )
    paid.reset()
    rewards = np.stack([paid.step(np.array([1, 0]))[1] for _ in range(5)])
    np.testing.assert_allclose(rewards[:, 0], ShapingParams().intrinsic * np.array([0.5, 1.0, 1.5, 2.0, 0.5]))
    assert (rewards[:, 1] == 0).all()

    always = learner.policy.as_actor(greedy=True)
    rows = roll_out(
        ENV, adapter, always, n_envs=2, episodes=2, seed=0, learned=LearnedReward(HeatReward(), ShapingParams(beta=0.0))
    )
    assert all(row["shaped_reward"] is not None for row in rows)


def test_success_is_what_info_says_in_the_last_step(tmp_path: Path) -> None:
    """In evaluation, in films, in the learning curve, and as the true answer about an outcome."""
    adapter = adapter_for(ENV)
    assert adapter.defines_success()
    for action, hot in ((1, True), (0, False)):
        always = Acting(lambda features, action=action: np.full(len(features), action))
        rows = roll_out(ENV, adapter, always, n_envs=2, episodes=4, seed=0, learned=None)
        assert [row["success"] for row in rows] == [hot] * 4
        rng = np.random.default_rng(0)
        told = [*moments(make_reference(ENV), adapter, always, rng, Captioner(adapter), 9, 0, None)]
        assert [moment.success for moment in told] == [None] * 4 + [hot]

    settings = PPOParams(n_envs=8, n_steps=50, hidden=(8,))
    learner = make_learner(initial_policy(adapter, settings, 0, 0), settings, np.random.default_rng(0))
    envs, episodes = make_vector(ENV, adapter, 8, 0), Episodes(adapter, 8)
    rollout = learner.rollout(envs)
    learner.collect(envs, envs.reset(), rollout)
    episodes.follow(rollout)
    ends = rollout.info["hot"][rollout.terminated]
    assert 0 < ends.mean() < 1
    assert episodes.figures()["success_rate"] == ends.mean()

    tracking, places = TrackingParams(enabled=False), (tmp_path / "trajectories", tmp_path / "captions")
    collect.run(0, ENV, CollectParams(steps=200), tracking, places[0])
    caption.run(ENV, CaptionParams(), tracking, *places)
    outcomes = collected_outcomes(*places, adapter, 1)
    known = [(text, truth) for text, truth in zip(outcomes.texts, outcomes.truth, strict=True) if truth is not None]
    assert {truth for _, truth in known} == {True, False}
    assert all(truth == text.startswith("It is hot") for text, truth in known)


def test_a_missing_field_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeatAdapter, "info_fields", {"cold": "float32"})
    envs = make_vector(ENV, adapter_for(ENV), 2, 0)
    envs.reset()
    with pytest.raises(
        EnvError, match=r'TestHeat-v0: its adapter HeatAdapter names "cold".* has only: heat, hot, odd, path, un'
    ):
        envs.step(np.array([0, 1]))


def test_a_field_that_a_step_lacks_is_not_among_those_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium joins the infos of all environments."""
    monkeypatch.setattr(HeatAdapter, "info_fields", {"hot": "float32"})
    info = {"hot": np.array([1.0, 0.0]), "_hot": np.array([True, False]), "cold": np.ones(2), "_cold": np.ones(2, bool)}
    with pytest.raises(EnvError, match=r'names "hot" in info_fields, but the info of a step has only: cold\. Add it'):
        named_info(adapter_for(ENV), info, np.ones(2, bool))


def test_a_field_that_is_not_a_number_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeatAdapter, "info_fields", {"unused": "float32"})
    envs = make_vector(ENV, adapter_for(ENV), 2, 0)
    envs.reset()
    with pytest.raises(EnvError, match=r'"unused" in the info of a step is not one float32'):
        envs.step(np.array([0, 1]))


def test_info_of_one_environment_does_not_change_that_of_another() -> None:
    envs = make_vector(ENV, adapter_for(ENV), 3, 0)
    envs.reset()
    assert envs.step(np.array([0, 1, 1])).info["heat"].tolist() == [0, 0.5, 0.5], "the first has the whole number 0"
    assert envs.step(np.array([0, 1, 0])).info["heat"].tolist() == [0, 1, 0.5], "paths differ in length"
