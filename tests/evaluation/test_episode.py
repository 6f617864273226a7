"""An episode moment by moment agrees with the environment, and with what evaluation makes of its rewards."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

from acting import Acting
from laurel.arrays import FloatArray
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import Captioner
from laurel.evaluation.episode import Moment, moments
from laurel.evaluation.rendering import NotRenderedError, rendering, view
from laurel.evaluation.rollout import LearnedReward, roll_out
from laurel.params import EnvParams
from laurel.params.training import ShapingParams
from laurel.rewards.base import UNPAID
from laurel.rewards.functions import CaptionReward

LAKE = EnvParams(id="FrozenLake-v1", kwargs={"is_slippery": False})


RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def adapter() -> EnvAdapter:
    return adapter_for(LAKE)


def learned() -> LearnedReward:
    def score(texts: list[str]) -> FloatArray:
        return np.array([len(text) % 7 - 2 for text in texts], dtype=np.float32)

    return LearnedReward(CaptionReward({}, 0.0, score), ShapingParams(beta=1.0))


def episode(
    env: EnvParams, adapter: EnvAdapter, actions: list[int], reward: LearnedReward | None, steps: int = 99
) -> list[Moment]:
    queue = iter(actions)
    with rendering(env, None) as reference:
        actor = Acting(lambda _: np.array([next(queue)]))
        return list(moments(reference, adapter, actor, RNG, Captioner(adapter), steps, 0, reward))


def test_an_episode_by_hand(adapter: EnvAdapter) -> None:
    left, down, right, up = range(4)
    found = episode(LAKE, adapter, [left, up, right, down], learned())
    assert [moment.step for moment in found] == [0, 1, 2, 3, 4]
    assert [moment.action for moment in found] == ["", "left", "up", "right", "down"]
    assert found[0].caption == ""
    assert (
        found[1].caption == found[2].caption == "You stay where you are, 6 squares from the goal, at row 1, column 1."
    )
    first, again = found[1], found[2]
    assert first.learned == again.learned == len(first.caption) % 7 - 2
    assert first.learned is not None
    assert first.learned > 0, "else the next line says nothing"
    assert (first.shaped, again.shaped) == (first.learned, first.learned / 2), "its second time in the episode"
    last = found[-1]
    assert "hole" in last.caption
    assert (last.over, last.terminated, last.success, last.outcome) == (True, True, False, "not solved")
    assert not any(moment.last for moment in found[:-1])


def test_a_truncated_episode_is_marked(adapter: EnvAdapter) -> None:
    found = episode(LAKE, adapter, [0] * 9, None, steps=3)
    assert (found[-1].step, found[-1].cut, found[-1].last, found[-1].over) == (3, True, True, False)
    assert found[-1].outcome == "cut after 3 steps"
    assert episode(LAKE, adapter, [0], None, steps=1)[-1].outcome == "cut after 1 step"
    assert {moment.learned for moment in found} == {moment.shaped for moment in found} == {None}
    limited = EnvParams(id="FrozenLake-v1", max_episode_steps=3)
    found = episode(limited, adapter_for(limited), [0] * 9, None, steps=3)
    assert (found[-1].truncated, found[-1].cut) == (True, False), "its own limit is no cut"


def test_rewards_are_those_of_evaluation() -> None:
    env = EnvParams(id="CartPole-v1")
    adapter = adapter_for(env)
    (row,) = roll_out(
        env,
        adapter,
        Acting(lambda features: np.zeros(len(features), np.int64)),
        n_envs=1,
        episodes=1,
        seed=0,
        learned=learned(),
    )
    found = episode(env, adapter, [0] * 99, learned())[1:]
    assert len(found) == row["length"]
    assert found[-1].total == row["return"]
    assert list(accumulate(moment.reward for moment in found)) == [moment.total for moment in found]
    assert sum(moment.shaped or 0 for moment in found) == pytest.approx(row["shaped_reward"], rel=1e-5)
    assert np.mean([moment.learned for moment in found if moment.learned is not None]) == pytest.approx(
        row["raw_reward"]
    )


def test_a_potential_pays_steps_that_are_not_scored(adapter: EnvAdapter) -> None:
    left, down, right = range(3)

    def score(texts: list[str]) -> FloatArray:
        return np.array([1.0 if "column 2" in text else UNPAID for text in texts], dtype=np.float32)

    potential = LearnedReward(CaptionReward({}, 0.0, score), ShapingParams(form="potential", gamma=0.9))
    shown = [
        (moment.learned, moment.shaped) for moment in episode(LAKE, adapter, [right, left, down], potential, steps=3)
    ][1:]
    assert shown == [(1.0, pytest.approx(0.9)), (None, pytest.approx(-0.1)), (None, pytest.approx(-0.1))]


def test_continuous_actions_are_shown_as_numbers() -> None:
    env = EnvParams(id="Pendulum-v1")
    adapter = adapter_for(env)
    with rendering(env, None) as reference:
        actor = Acting(lambda _: np.array([[0.5]], dtype=np.float32))
        found = list(moments(reference, adapter, actor, RNG, Captioner(adapter), 2, 0, None))
    assert found[1].action == "+0.50"


def test_every_named_action_is_one_of_the_environments() -> None:
    for env_id in (
        "FrozenLake-v1", "Taxi-v3", "CliffWalking-v1", "Blackjack-v1", "MiniGrid-Empty-5x5-v0", "CartPole-v1",
        "Acrobot-v1", "MountainCar-v0", "LunarLander-v3",
    ):  # fmt: skip
        adapter = adapter_for(EnvParams(id=env_id))
        assert len(adapter.action_names) == adapter.action_space.n, env_id  # type: ignore[attr-defined]
        assert adapter.action_name(np.int64(1)) == adapter.action_names[1]


@pytest.mark.parametrize(("mode", "kind"), [("ansi", str), ("rgb_array", np.ndarray), (None, str)])
def test_views_are_of_the_mode(adapter: EnvAdapter, mode: str, kind: type) -> None:
    with rendering(LAKE, mode) as reference:  # type: ignore[arg-type]
        (first, *_) = moments(reference, adapter, Acting(lambda _: np.array([0])), RNG, Captioner(adapter), 1, 0, None)
    assert isinstance(first.view, kind)
    assert (len(first.view) > 0) == (mode is not None)


class Dark(gym.Env[np.ndarray, int]):
    """An environment of a user's that was not written to be rendered."""

    observation_space = gym.spaces.Box(0, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        pass

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(1, np.float32), {}


class Broken(Dark):
    metadata: ClassVar = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def render(self) -> None:
        raise ValueError("no pictures today")


class Grey(Broken):
    def render(self) -> Any:
        return np.zeros((40, 40, 1), np.uint8)


class Fractions(Broken):
    def render(self) -> Any:
        return np.full((40, 40, 3), 0.7, np.float32)


@pytest.mark.filterwarnings("ignore:.*RGB-array")
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Dark, "tests/Dark-v0 has no render_mode rgb_array"),
        (Broken, "the render of tests/Broken-v0 raised ValueError"),
        (Grey, r"tests/Grey-v0 renders an array of shape \(40, 40, 1\) and type uint8, but a picture has the shape"),
        (Fractions, r"tests/Fractions-v0 renders an array of shape \(40, 40, 3\) and type float32, but a picture"),
    ],
)
def test_an_environment_of_a_user_that_cannot_be_rendered_says_so(kind: type[Dark], says: str) -> None:
    env_id = f"tests/{kind.__name__}-v0"
    gym.register(env_id, entry_point=kind)

    def render() -> None:
        with rendering(EnvParams(id=env_id), "rgb_array") as reference:
            reference.reset()
            view(reference)

    try:
        with pytest.raises(NotRenderedError, match=f"^{says}"):
            render()
    finally:
        del gym.registry[env_id]


def test_unsupported_render_modes_are_explained() -> None:
    with pytest.raises(NotRenderedError, match=r"^CartPole-v1 has no render_mode ansi\.$"):
        rendering(EnvParams(id="CartPole-v1"), "ansi").__enter__()
