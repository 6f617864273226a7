"""Wrappers give exactly the reward of training, whoever steps the environment and with any wrapper in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import minigrid.wrappers as mini
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import laurel
from laurel.agents.learner import Rollout
from laurel.envs import adapter_for
from laurel.envs.vector import make_vector
from laurel.errors import EnvError, ParamsError
from laurel.library.reward import load_reward, shaping_of
from laurel.training.pay import TrainingReward

N, STEPS = 3, 60
SHAPINGS = (
    {"beta": 1.0, "extrinsic": 2.0, "quantile": 0.0},
    {"form": "potential", "gamma": 0.9, "quantile": 0.0},
)
LAKE = {"id": "FrozenLake-v1", "max_episode_steps": 9}
"""Episodes that end by the rules, and that are cut."""
Made = Callable[..., Path]
Pays = list[list[float]]
"""What each environment's steps were paid, without those that only reset it."""


class Actions:
    """The same actions for each environment, however many steps only reset it."""

    def __init__(self, n_actions: int) -> None:
        self.n_actions = n_actions
        self.rngs = [np.random.default_rng(i) for i in range(N)]
        self.last = np.zeros(N, np.int64)

    def next(self, which: Any) -> np.ndarray:
        for i in np.flatnonzero(which):
            self.last[i] = self.rngs[i].integers(self.n_actions)
        return self.last.copy()


def trained(place: Path, shaping: dict[str, Any]) -> Pays:
    """What Laurel's own training pays."""
    loaded = load_reward(place)
    adapter = adapter_for(loaded.env)
    settings = shaping_of(shaping)
    paying = TrainingReward(settings, adapter, loaded.on(adapter, settings.quantile), N)
    env = loaded.env.model_copy(update={"backend": "gymnasium"})
    envs, pays, actions = make_vector(env, adapter, N, 5), Pays([[] for _ in range(N)]), Actions(adapter.action_space.n)
    before, valid = envs.reset(), np.ones(N, np.bool_)
    while min(map(len, pays)) < STEPS:
        action = actions.next(~envs.ended)
        step = envs.step(action)
        valid = step.valid
        ends = step.terminated[None], step.truncated[None]
        rollout = Rollout(
            np.stack([before, step.observation]), action[None], step.reward[None], np.empty((1, N), np.float32), *ends,
            valid[None],
        )  # fmt: skip
        paying.mix_into(rollout)
        for i in np.flatnonzero(valid):
            pays[i].append(float(rollout.reward[0, i]))
        before = step.observation.copy()
    return [pay[:STEPS] for pay in pays]


def alone(make: Callable[[], gym.Env], place: Path, shaping: dict[str, Any]) -> Pays:
    pays, actions = Pays([[] for _ in range(N)]), Actions(0)
    for i in range(N):
        env = laurel.RewardWrapper(make(), place, shaping)
        actions.n_actions = env.action_space.n
        env.reset(seed=5 + i)
        while len(pays[i]) < STEPS:
            _, reward, terminated, truncated, _ = env.step(actions.next(np.arange(N) == i)[i])
            pays[i].append(reward)
            if terminated or truncated:
                env.reset()
    return pays


def in_a_vector(mode: AutoresetMode, place: Path, shaping: dict[str, Any]) -> Pays:
    made = [lambda: gym.make("FrozenLake-v1", max_episode_steps=9)] * N
    envs = laurel.RewardVectorWrapper(SyncVectorEnv(made, autoreset_mode=mode), place, shaping)
    envs.reset(seed=5)
    pays, actions, ended = Pays([[] for _ in range(N)]), Actions(4), np.zeros(N, np.bool_)
    while min(map(len, pays)) < STEPS:
        resets = ended if mode == AutoresetMode.NEXT_STEP else np.zeros(N, np.bool_)
        _, reward, terminated, truncated, info = envs.step(actions.next(~resets))
        np.testing.assert_array_equal(info["_laurel"], ~resets)
        for i in np.flatnonzero(~resets):
            pays[i].append(reward[i])
        ended = terminated | truncated
        if mode == AutoresetMode.DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
    return [pay[:STEPS] for pay in pays]


def of_stable_baselines3(place: Path, shaping: dict[str, Any]) -> Pays:
    plain = DummyVecEnv([lambda: gym.make("FrozenLake-v1", max_episode_steps=9)] * N)
    plain.seed(5)
    envs = laurel.RewardVecEnv(VecNormalize(plain, norm_obs=False, norm_reward=False), place, shaping)
    envs.reset()
    pays, actions = Pays([[] for _ in range(N)]), Actions(4)
    for _ in range(STEPS):
        for i, reward in enumerate(envs.step(actions.next(np.ones(N)))[1]):
            pays[i].append(float(reward))
    return pays


def test_a_potential_without_the_trainers_discount_is_remarked_on(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    """Its shaping is that of an agent with a discount of 1, and keeps the optimal policies of no other."""
    place = made(env_id=LAKE["id"], max_episode_steps=9)
    laurel.RewardWrapper(gym.make("FrozenLake-v1", max_episode_steps=9), place, {"form": "potential", "gamma": 1.0})
    assert not caplog.messages
    laurel.RewardWrapper(gym.make("FrozenLake-v1", max_episode_steps=9), place, {"form": "potential"})
    assert "shaping.gamma is not set" in caplog.text


@pytest.mark.parametrize("shaping", SHAPINGS, ids=("bonus", "potential"))
def test_every_wrapper_gives_the_reward_of_training(made: Made, shaping: dict[str, Any]) -> None:
    place = made(**{"env_id": LAKE["id"], "max_episode_steps": 9})
    expected = trained(place, shaping)
    assert len({pay for row in expected for pay in row}) > 5
    found = {mode.name: in_a_vector(mode, place, shaping) for mode in AutoresetMode}
    found["alone"] = alone(lambda: gym.make("FrozenLake-v1", max_episode_steps=9), place, shaping)
    found["sb3"] = of_stable_baselines3(place, shaping)
    for name, pays in found.items():
        assert pays == expected, name


ORDERS: dict[str, Callable[[gym.Env], gym.Env]] = {
    "none": lambda env: env,
    "image": mini.ImgObsWrapper,
    "flat": mini.FlatObsWrapper,
    "whole grid, then image": lambda env: mini.ImgObsWrapper(mini.FullyObsWrapper(env)),
    "pixels, stacked": lambda env: gym.wrappers.FrameStackObservation(
        mini.ImgObsWrapper(mini.RGBImgPartialObsWrapper(env)), 2
    ),
    "Dict to one row": lambda env: gym.wrappers.FlattenObservation(
        gym.wrappers.FilterObservation(env, ["image", "direction"])
    ),
    "statistics": gym.wrappers.RecordEpisodeStatistics,
}


@pytest.mark.parametrize("order", ORDERS)
def test_it_can_wrap_any_wrapper(made: Made, order: str) -> None:
    """Captions need the environment's own observation, which wrappers below have changed."""
    place = made("MiniGrid-Empty-5x5-v0", max_episode_steps=20)
    make = lambda: ORDERS[order](gym.make("MiniGrid-Empty-5x5-v0", max_steps=20))  # noqa: E731
    assert alone(make, place, SHAPINGS[0]) == trained(place, SHAPINGS[0])


class Mirrored(gym.ObservationWrapper):
    """The same squares, numbered from the other end."""

    def observation(self, observation: Any) -> Any:
        return self.observation_space.n - 1 - observation


def test_layers_inside_a_registered_environment_are_not_captioned(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training sees the whole environment; a layer in it with the same spaces may show other observations."""
    spec = EnvSpec("Mirrored-v0", lambda: Mirrored(CliffWalkingEnv()), max_episode_steps=9)
    monkeypatch.setitem(gym.registry, spec.id, spec)
    place = made("Mirrored-v0")
    expected = trained(place, SHAPINGS[0])
    assert alone(lambda: gym.make("Mirrored-v0"), place, SHAPINGS[0]) == expected
    assert alone(lambda: Mirrored(Mirrored(gym.make("Mirrored-v0"))), place, SHAPINGS[0]) == expected


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_a_vector_without_a_spec_is_captioned_as_its_environments_are(made: Made, kind: Any) -> None:
    """Only `make_vec` gives one; the environment's arguments, such as its map, must count all the same."""
    place = made("FrozenLake-v1")
    make = lambda: gym.make("FrozenLake-v1", desc=["SFFG", "FFFF", "FFFF", "FFFF"], is_slippery=False)  # noqa: E731
    alone, envs = laurel.RewardWrapper(make(), place), laurel.RewardVectorWrapper(kind([make] * 2), place)
    alone.reset(seed=0)
    envs.reset(seed=0)
    expected = alone.step(2)[4]["laurel"]["caption"]
    assert "closer to the goal: you are 2 squares" in expected
    assert envs.step(np.array([2, 2]))[4]["laurel"]["caption"].tolist() == [expected] * 2
    envs.close()


def test_info_has_the_reward_and_the_caption(made: Made) -> None:
    place = made("FrozenLake-v1")
    env = laurel.RewardWrapper(gym.make("FrozenLake-v1", is_slippery=False), place, {"beta": 1.0, "quantile": 0.0})
    env.reset(seed=0)
    infos = [env.step(action) for action in (2, 0, 2)]
    about = [info["laurel"] for *_, info in infos]
    assert about[2]["caption"] == about[0]["caption"]
    assert about[1]["caption"] not in ("", about[0]["caption"])
    assert [info["extrinsic"] for info in about] == [0.0] * 3
    assert about[2]["shaped"] == pytest.approx(about[0]["shaped"] / 2) != 0
    assert infos[0][1] == pytest.approx(0.1 * about[0]["shaped"])
    assert infos[0][4]["prob"] == 1.0, "the environment's own info stays"


def test_counts_of_an_abandoned_episode_are_dropped(made: Made) -> None:
    shaping = {"beta": 1.0, "quantile": 0.0}
    place = made("CliffWalking-v1")
    env = laurel.RewardWrapper(gym.make("CliffWalking-v1"), place, shaping)
    envs = laurel.RewardVectorWrapper(gym.make_vec("CliffWalking-v1", 2, vectorization_mode="sync"), place, shaping)
    paid = []
    for _ in range(2):
        env.reset()
        envs.reset()
        paid.append((env.step(3)[4]["laurel"]["shaped"], *envs.step(np.array([3, 3]))[4]["laurel"]["shaped"]))
    assert paid[0] == paid[1]
    assert len(set(paid[0])) == 1
    assert paid[0][0] > 0


def test_steps_repeated_by_a_wrapper_all_get_a_reward(made: Made) -> None:
    class Twice(gym.Wrapper):
        def step(self, action: Any) -> Any:
            self.env.step(action)
            return self.env.step(action)

    place = made("CliffWalking-v1")
    shaping = {"beta": 0.0, "quantile": 0.0}
    once, twice = (
        laurel.RewardWrapper(wrapped, place, shaping)
        for wrapped in (gym.make("CliffWalking-v1"), Twice(gym.make("CliffWalking-v1")))
    )
    shaped = []
    for env, actions in ((once, (0, 0)), (twice, (0,))):
        env.reset()
        shaped.append(sum(env.step(action)[4]["laurel"]["shaped"] for action in actions))
    assert shaped[0] == pytest.approx(shaped[1])


def test_an_unsupported_reward_is_one_sentence(made: Made) -> None:
    place = made("MiniGrid-Empty-5x5-v0")
    with pytest.raises(EnvError, match=r"none of these layers shows them: .*CartPoleEnv"):
        laurel.RewardWrapper(gym.make("CartPole-v1").unwrapped.__class__(), place)
    images = SyncVectorEnv([lambda: mini.ImgObsWrapper(gym.make("MiniGrid-Empty-5x5-v0"))] * 2)
    with pytest.raises(EnvError, match=r"wrap each environment in laurel\.RewardWrapper before"):
        laurel.RewardVectorWrapper(images, place)
    single, several = gym.make("MiniGrid-Empty-5x5-v0"), SyncVectorEnv([lambda: gym.make("MiniGrid-Empty-5x5-v0")])
    wrong: Any
    for wrapper, wrong in ((laurel.RewardWrapper, several), (laurel.RewardVectorWrapper, single)):
        with pytest.raises(EnvError, match=rf"^{wrapper.__name__} cannot wrap .*Env.* RewardVectorWrapper a gymnasium"):
            wrapper(wrong, place)
    with pytest.raises(EnvError, match="is in a RewardWrapper already"):
        laurel.RewardWrapper(laurel.RewardWrapper(gym.make("MiniGrid-Empty-5x5-v0"), place), place)
    with pytest.raises(ParamsError, match=r"shaping\.betta is unknown.* Did you mean \"beta\""):
        laurel.RewardWrapper(gym.make("MiniGrid-Empty-5x5-v0"), place, {"betta": 1})
