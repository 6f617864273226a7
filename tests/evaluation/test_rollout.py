"""Evaluation episodes against a plain loop over single environments, one step and one caption at a time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text import FrozenLakeEnv

from acting import Acting
from laurel.agents.actor import Acted, View
from laurel.arrays import Array, FloatArray
from laurel.envs import adapter_for, make_reference
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.captioner import Captioner
from laurel.errors import EnvError
from laurel.evaluation import rollout
from laurel.evaluation.rollout import LearnedReward, roll_out
from laurel.evaluation.summary import FURTHER
from laurel.params import EnvParams
from laurel.params.training import ShapingParams
from laurel.rewards.functions import CaptionReward

Row = dict[str, Any]
THRESHOLD = 1.5


class Policy(Acting):
    """Acts by the features alone, but in a way that leads everywhere."""

    def __init__(self, adapter: EnvAdapter) -> None:
        self.n = int(adapter.action_space.n) if isinstance(adapter.action_space, gym.spaces.Discrete) else 0
        super().__init__(self)

    def __call__(self, features: FloatArray) -> Array:
        weights = np.sin(np.arange(features.shape[1]) * 12.9898) * 43.758
        mixed = np.abs(features.astype(np.float64) @ weights + 0.5)
        if self.n:
            return (mixed * 7919).astype(np.int64) % self.n
        return (np.sin(mixed * 7919)[:, None]).astype(np.float32)


def score(texts: list[str]) -> FloatArray:
    return np.array([len(text) % 7 - 2 for text in texts], dtype=np.float32)


def learned(beta: float = 1.0) -> LearnedReward:
    return LearnedReward(CaptionReward({}, THRESHOLD, score), ShapingParams(beta=beta))


def plain_loop(env: EnvParams, adapter: EnvAdapter, shares: list[int], seed: int, beta: float) -> list[Row]:
    rows = []
    for number, share in enumerate(shares):
        single = make_reference(env)
        for episode in range(share):
            raw, _ = single.reset(seed=seed + number) if episode == 0 else single.reset()
            rows.append(_plain_episode(single, adapter, adapter.pack_one(raw), beta))
        single.close()
    return rows


def _plain_episode(single: Any, adapter: EnvAdapter, observation: Array, beta: float) -> Row:
    captioner = Captioner(adapter)
    total, length, paid = 0.0, 0, 0.0
    raw_rewards: list[float] = []
    met: Counter[str] = Counter()
    while True:
        action = Policy(adapter)(adapter.features(observation[None]))
        raw, reward, terminated, truncated, _ = single.step(action[0])
        after = adapter.pack_one(raw)
        total += float(reward)
        length += 1
        step = Transitions(
            observation[None],
            action,
            np.float32([reward]),
            after[None],
            np.array([terminated]),
            np.array([truncated and not terminated]),
        )
        caption = captioner.ids(step)[0]
        if caption >= 0:
            text = captioner.texts[caption]
            value = float(score([text])[0])
            met[text] += 1
            raw_rewards.append(value)
            paid += max(value - THRESHOLD, 0.0) / met[text] ** beta
        observation = after
        if terminated or truncated:
            return {
                "return": total,
                "length": length,
                "terminated": bool(terminated),
                "raw_reward": float(np.mean(raw_rewards)) if raw_rewards else 0.0,
                "shaped_reward": paid,
            }


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize(
    ("env", "limit"),
    [
        ("FrozenLake-v1", 20),
        ("MiniGrid-Empty-Random-5x5-v0", 15),
        ("Acrobot-v1", 30),
        ("Pendulum-v1", 12),
        ("MountainCar-v0", 25),
    ],
)
def test_episodes_are_those_of_a_plain_loop(env: str, limit: int, beta: float) -> None:
    params = EnvParams(id=env, max_episode_steps=limit)
    adapter = adapter_for(params)
    found = roll_out(params, adapter, Policy(adapter), n_envs=3, episodes=7, seed=11, learned=learned(beta))
    expected = plain_loop(params, adapter, [3, 2, 2], 11, beta)
    assert len(found) == 7
    for row, wanted in zip(found, expected, strict=True):
        assert {key: row[key] for key in wanted} == pytest.approx(wanted, abs=1e-4)
    if env == "FrozenLake-v1":
        assert len({row["length"] for row in found}) > 2, "short and long ones"
        assert any(row["terminated"] for row in found)


@pytest.mark.parametrize(
    ("episodes", "n_envs", "shares"),
    [(7, 3, [3, 2, 2]), (2, 5, [1, 1]), (6, 3, [2, 2, 2]), (5, 1, [5]), (4, 4, [1, 1, 1, 1])],
)
def test_each_environment_plays_its_share(episodes: int, n_envs: int, shares: list[int]) -> None:
    """However long its episodes are: which of them are short must not decide how many count."""
    params = EnvParams(id="FrozenLake-v1", max_episode_steps=20)
    adapter = adapter_for(params)
    found = roll_out(params, adapter, Policy(adapter), n_envs=n_envs, episodes=episodes, seed=0, learned=None)
    expected = plain_loop(params, adapter, shares, 0, 0.0)
    assert [(row["return"], row["length"]) for row in found] == [(row["return"], row["length"]) for row in expected]


def test_an_environment_that_has_played_its_share_is_not_stepped_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time would be lost: an agent that fails once would take as long as one that always does."""
    taken = 0
    original = FrozenLakeEnv.step

    def counted(self: FrozenLakeEnv, action: int) -> Any:
        nonlocal taken
        taken += 1
        return original(self, action)

    monkeypatch.setattr(FrozenLakeEnv, "step", counted)
    params = EnvParams(id="FrozenLake-v1", max_episode_steps=50)
    adapter = adapter_for(params)
    found = roll_out(params, adapter, Policy(adapter), n_envs=4, episodes=6, seed=0, learned=learned())
    assert len({row["length"] for row in found}) > 2
    assert taken == sum(row["length"] for row in found)


def test_resets_are_counted_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """CartPole pays 1 a step: return and length are the same, and the sum of all lengths is what was stepped."""
    valid = 0
    original = rollout._Meter.update

    def noted(self: Any, transitions: Transitions, steps: Any) -> None:
        nonlocal valid
        valid += int(steps.sum())
        original(self, transitions, steps)

    monkeypatch.setattr(rollout._Meter, "update", noted)
    params = EnvParams(id="CartPole-v1")
    adapter = adapter_for(params)
    ones = LearnedReward(CaptionReward({}, 0.0, lambda texts: np.ones(len(texts), np.float32)), ShapingParams(beta=0.0))
    found = roll_out(params, adapter, Policy(adapter), n_envs=1, episodes=12, seed=0, learned=ones)
    assert [row["return"] for row in found] == [row["length"] for row in found]
    assert [row["shaped_reward"] for row in found] == [row["length"] for row in found]
    assert [row["raw_reward"] for row in found] == [1.0] * 12
    assert sum(row["length"] for row in found) == valid
    assert min(row["length"] for row in found) >= 8, "no pole falls in less"


def test_success_is_what_the_adapter_calls_it() -> None:
    params = EnvParams(id="FrozenLake-v1", kwargs={"is_slippery": False})
    adapter = adapter_for(params)
    way = {0: 1, 4: 1, 8: 2, 9: 2, 10: 1, 14: 2}  # to the goal

    def walk(features: FloatArray) -> Array:
        return np.array([way.get(int(state), 0) for state in features.argmax(axis=1)])

    found = roll_out(params, adapter, Acting(walk), n_envs=2, episodes=4, seed=0, learned=None)
    assert (
        found
        == [
            {
                "return": 1.0,
                "length": 6,
                "terminated": True,
                "success": True,
                "raw_reward": None,
                "shaped_reward": None,
            }
        ]
        * 4
    )
    lost = roll_out(
        params, adapter, Acting(lambda features: np.full(len(features), 1)), n_envs=2, episodes=2, seed=0, learned=None
    )
    assert [row["success"] for row in lost] == [False, False]


def test_without_a_notion_of_success() -> None:
    params = EnvParams(id="Pendulum-v1", max_episode_steps=5)
    adapter = adapter_for(params)
    found = roll_out(params, adapter, Policy(adapter), n_envs=2, episodes=2, seed=0, learned=None)
    assert [row["success"] for row in found] == [None, None]
    assert [row["terminated"] for row in found] == [False, False]


def test_the_seed_makes_the_episodes() -> None:
    params = EnvParams(id="FrozenLake-v1")
    adapter = adapter_for(params)
    first, again, other = (
        roll_out(params, adapter, Policy(adapter), n_envs=4, episodes=8, seed=seed, learned=learned())
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_rows_hold_python_numbers() -> None:
    params = EnvParams(id="FrozenLake-v1", max_episode_steps=5)
    adapter = adapter_for(params)
    (row,) = roll_out(params, adapter, Policy(adapter), n_envs=1, episodes=1, seed=0, learned=learned())
    assert {key: type(value) for key, value in row.items()} == {
        "return": float,
        "length": int,
        "terminated": bool,
        "success": bool,
        "raw_reward": float,
        "shaped_reward": float,
    }


def test_evaluation_uses_gymnasium_whatever_the_training_backend() -> None:
    params = EnvParams(id="FrozenLake-v1", max_episode_steps=20)
    adapter = adapter_for(params)
    both = [
        roll_out(
            params.model_copy(update={"backend": backend}),
            adapter,
            Policy(adapter),
            n_envs=2,
            episodes=4,
            seed=0,
            learned=None,
        )
        for backend in ("auto", "gymnasium")
    ]
    assert both[0] == both[1]


class Walker(Acting):
    """Walks down, and records observations and notifications of new episodes."""

    def __init__(self) -> None:
        super().__init__(self)
        self.seen: list[FloatArray] = []
        self.begun: list[np.ndarray] = []

    def __call__(self, features: FloatArray) -> Array:
        self.seen.append(features)
        return np.ones(len(features), dtype=np.int64)

    def begin(self, which: np.ndarray) -> None:
        self.begun.append(which)


def test_an_actor_is_notified_of_each_new_episode() -> None:
    env = EnvParams(id="FrozenLake-v1", kwargs={"is_slippery": False})
    walker = Walker()
    rows = roll_out(env, adapter_for(env), walker, n_envs=2, episodes=6, seed=0, learned=None)
    assert [row["length"] for row in rows] == [3] * 6, "into the hole below the start"
    for which, features in zip(walker.begun, walker.seen, strict=False):
        assert which.tolist() == features[:, 0].astype(bool).tolist(), "where the start is seen next"
    assert np.sum(walker.begun) == 6


def test_an_environment_whose_episodes_never_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "MOST_WITHOUT_END", 40)
    params = EnvParams(id="FrozenLake-v1", max_episode_steps=100, kwargs={"desc": ["SFFF", "FFFF"]})
    adapter = adapter_for(params)
    with_limit = roll_out(params, adapter, Policy(adapter), n_envs=2, episodes=2, seed=0, learned=None)
    assert [row["length"] for row in with_limit] == [100, 100], "a known limit may be longer"
    monkeypatch.setattr(rollout, "episode_limit", lambda _: None)
    with pytest.raises(EnvError, match=r"no episode ended within 40 steps.*Set env\.max_episode_steps"):
        roll_out(params, adapter, Policy(adapter), n_envs=2, episodes=2, seed=0, learned=None)


def test_a_further_measure_is_the_highest_of_its_own_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    env = EnvParams(id="FrozenLake-v1", kwargs={"is_slippery": False})
    adapter, values = adapter_for(env), iter([1.0, 9.0, 2.0, 7.0, 1.0, 3.0, 2.0])  # the fourth row is a reset
    monkeypatch.setattr(
        type(adapter), "further_measures", lambda _, steps: {"height": np.full(len(steps), next(values))}
    )
    rows = roll_out(env, adapter, Walker(), n_envs=1, episodes=2, seed=0, learned=None)
    assert [row[f"{FURTHER}height"] for row in rows] == [9.0, 3.0]


def test_a_negative_measure_is_refused_and_not_made_0(monkeypatch: pytest.MonkeyPatch) -> None:
    params = EnvParams(id="FrozenLake-v1", max_episode_steps=20)
    adapter = adapter_for(params)
    monkeypatch.setattr(type(adapter), "further_measures", lambda _, steps: {"height": np.full(len(steps), -2.5)})
    with pytest.raises(EnvError, match=r"FrozenLake\w*\.further_measures: height is -2\.5, but a measure begins at 0"):
        roll_out(params, adapter, Policy(adapter), n_envs=2, episodes=2, seed=0, learned=None)


def test_an_actor_is_asked_where_a_step_follows() -> None:
    """Neither about the last observation of an episode nor about an environment that has played its share."""
    env = EnvParams(id="FrozenLake-v1", max_episode_steps=20)
    adapter, asked = adapter_for(env), 0

    class Counting(Policy):
        def act(self, view: View, rng: np.random.Generator) -> Acted:
            nonlocal asked
            asked += int(view.acting.sum())
            return super().act(view, rng)

    rows = roll_out(env, adapter, Counting(adapter), n_envs=3, episodes=7, seed=11, learned=None)
    assert asked == sum(row["length"] for row in rows) > 0


@pytest.mark.parametrize(
    ("n_envs", "episodes", "each"), [(20, 30, 10), (20, 20, 7), (4, 6, 2), (2, 9, 3), (20, 60, 20), (2, 6, 2)]
)
def test_all_tasks_are_played_equally_often(n_envs: int, episodes: int, each: int) -> None:
    """Of 30 episodes in 20 environments, three tasks had 10, 11 and 9."""
    tasks: list[Any] = ["MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-6x6-v0", "MiniGrid-DoorKey-5x5-v0"]
    env = EnvParams(id="laurel/Tasks-v0", kwargs={"tasks": tasks}, max_episode_steps=2)
    adapter = adapter_for(env)
    rows = roll_out(env, adapter, Policy(adapter), n_envs=n_envs, episodes=episodes, seed=7, learned=None)
    played = Counter(name for row in rows for name in row if name.startswith(FURTHER))
    assert set(played.values()) <= {each, each - (episodes % len(tasks) > 0)}
    assert len(played) == len(tasks)
