"""Several environments as one: which task an episode is of, and that each is described as in its own environment."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

from laurel.agents.actors import make_actor
from laurel.arrays import BoolArray, FloatArray
from laurel.envs import adapter_for, make_reference, words_of
from laurel.envs.base import EnvAdapter, Transition, Transitions
from laurel.envs.tasks import tasks_of
from laurel.envs.vector import make_vector
from laurel.errors import EnvError
from laurel.evaluation.rollout import roll_out
from laurel.evaluation.statistics import further_measures
from laurel.evaluation.summary import FURTHER
from laurel.params import EnvParams

EMPTY, LAVA, DOOR = "MiniGrid-Empty-5x5-v0", "MiniGrid-LavaGapS5-v0", "MiniGrid-DoorKey-5x5-v0"


class Line(gym.Env[int, int]):
    """Walk right, up to a place."""

    observation_space = gym.spaces.Discrete(9)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, end: int) -> None:
        self.end = end

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.place += 1
        return self.place, 0.0, self.place == self.end, False, {}


class LineAdapter(EnvAdapter):
    """Success is the place where the task's own line ends."""

    ids = ("Line-*",)
    description, goal = "A line.", "You arrive."

    def inspect(self, env: Any) -> None:
        self.end = env.unwrapped.end
        self.success_words = (f"the end at {self.end}",)

    def caption(self, step: Transition) -> str:
        return f"You reach the end at {self.end}." if step.terminated else "You walk."

    def success_captions(self) -> tuple[str, ...]:
        return (f"You reach the end at {self.end}.",)

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray:
        return np.array([self.unpack(row) == self.end for row in last.next_observation])


for end in (3, 5, 7):
    gym.register(f"Line-{end}-v0", Line, kwargs={"end": end})


def tasks_env(*tasks: str) -> EnvParams:
    return EnvParams(id="laurel/Tasks-v0", kwargs={"tasks": list(tasks or (EMPTY, LAVA, DOOR))})


def played(env: Any, episodes: int, seed: int | None = 0) -> list[int]:
    """Return the task of each episode."""
    found = []
    for number in range(episodes):
        env.reset(seed=seed if number == 0 else None)
        found.append(env.unwrapped.task)
    return found


def test_steps_and_captions_name_the_adapter_of_the_tasks() -> None:
    """Whose version increases when their captions change, while that of the environment around them does not."""
    env, of_a_task = tasks_env(), words_of(EMPTY, {})
    assert of_a_task.startswith("MiniGridAdapter ")
    assert words_of(env.id, env.kwargs) == f"TasksAdapter 1 of {of_a_task}"
    assert words_of(env.id, {}) == "TasksAdapter 1", "what the environment itself refuses"


def test_tasks_come_in_turns_or_by_chances() -> None:
    env = make_reference(tasks_env())
    turns = played(env, 6)
    assert sorted(turns[:3]) == [0, 1, 2]
    assert turns[3:] == turns[:3]
    env.unwrapped.chances = np.float32([0.0, 0.25, 0.75])
    drawn = played(env, 200)
    assert set(drawn) == {1, 2}
    assert 130 < sum(task == 2 for task in drawn) < 170
    assert played(env, 200) == drawn, "the same seed draws the same tasks"


@pytest.mark.parametrize("seed", [0, 4, 12345])
def test_copies_of_the_environment_play_all_tasks_equally_often(seed: int) -> None:
    """Evaluation plays one episode in each of many copies, and its mean is that of all tasks."""
    adapter = adapter_for(tasks_env())
    envs = make_vector(tasks_env(), adapter, 6, seed, reference=True)
    assert sorted(envs.reset()[:, -1].tolist()) == [0, 0, 1, 1, 2, 2]
    envs.close()


def test_a_step_is_described_as_in_its_own_environment() -> None:
    adapter, adapters = adapter_for(tasks_env()), [adapter_for(EnvParams(id=task)) for task in (EMPTY, LAVA, DOOR)]
    envs = make_vector(tasks_env(), adapter, 16, 0)
    rng, before = np.random.default_rng(0), envs.reset().copy()
    np.testing.assert_array_equal(adapter.features(before)[:, -3:].argmax(axis=1), before[:, -1])
    met: set[tuple[int, str]] = set()
    for _ in range(40):
        action = rng.integers(7, size=16)
        step = envs.step(action)
        rows = Transitions(before, action, step.reward, step.observation, step.terminated, step.truncated)
        bare = replace(rows, observation=before[:, :-1], next_observation=step.observation[:, :-1])
        texts = [adapter.describe(event) for event in adapter.encode(rows).tolist()]
        for i in np.flatnonzero(step.valid).tolist():
            task = int(before[i, -1])
            assert texts[i] == adapters[task].describe(int(adapters[task].encode(bare[i : i + 1])[0]))
            met.add((task, texts[i]))
        before = step.observation.copy()
    envs.close()
    assert {task for task, _ in met} == {0, 1, 2}
    listed = set(map(adapter.describe, adapter.events()))
    assert {text for _, text in met} <= listed
    assert {"You fall into the lava.", "You unlock the yellow door with the key."} <= listed
    assert adapter.oracle("You unlock the yellow door with the key.") == 1.0
    assert str(adapter.describe_observation(before[0])).startswith("You face ")


def test_success_is_that_of_the_episodes_own_task() -> None:
    """Each task's adapter says so, of observations without the number of the task."""
    env = tasks_env("Line-3-v0", "Line-5-v0")
    adapter = adapter_for(env)
    rows = roll_out(env, adapter, make_actor("random", adapter, "here"), n_envs=2, episodes=4, seed=0, learned=None)
    assert sorted((row["length"], row["success"]) for row in rows) == [(3, True)] * 2 + [(5, True)] * 2
    assert adapter.success_captions() == ("You reach the end at 3.", "You reach the end at 5.")
    assert all(map(adapter.says_success, adapter.success_captions()))
    assert not adapter.says_success("You walk.")


def test_tasks_with_observations_of_floats_make_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*out of date")
        assert adapter_for(tasks_env("CartPole-v0", "CartPole-v1")).row_space.dtype == np.float32


def test_episodes_count_only_for_their_task() -> None:
    adapter = adapter_for(tasks_env(EMPTY, LAVA))
    actor = make_actor("random", adapter, "here")
    rows = roll_out(tasks_env(EMPTY, LAVA), adapter, actor, n_envs=2, episodes=4, seed=0, learned=None)
    names = [name for row in rows for name in row if name.startswith(FURTHER)]
    assert names == [f"{FURTHER}success in {task}" for task in (EMPTY, LAVA, LAVA, EMPTY)], "of each environment"
    results = pd.DataFrame(rows).assign(arm="a", seed=0)
    found = further_measures(results, draws=10, seed=0)
    other = further_measures(results[results.columns[::-1]], draws=10, seed=0)
    assert list(found) == list(other) == sorted(found), "in the order of metrics.json, not in that of the episodes"
    of_task = [row["success"] for row in rows if f"{FURTHER}success in {EMPTY}" in row]
    assert found[f"success in {EMPTY}"]["a"]["mean"] == np.mean(of_task)


@pytest.mark.parametrize("undefined", [(3, 5), (5,)])
def test_success_is_undefined_in_all_tasks_if_it_is_in_one(
    undefined: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = LineAdapter.succeeded
    monkeypatch.setattr(
        LineAdapter, "succeeded", lambda self, *last: None if self.end in undefined else known(self, *last)
    )
    env = tasks_env("Line-3-v0", "Line-5-v0")
    adapter = adapter_for(env)
    rows = roll_out(env, adapter, make_actor("random", adapter, "here"), n_envs=2, episodes=4, seed=0, learned=None)
    assert [row["success"] for row in rows] == [None] * 4
    assert not any(name.startswith(FURTHER) for row in rows for name in row)
    with pytest.raises(EnvError, match=f"which is undefined in Line-{undefined[0]}-v0"):
        tasks_of(adapter, "here")


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (EMPTY, "must be a list of 2 to 255 ids"),
        ([EMPTY], "must be a list of 2 to 255 ids"),
        ([EMPTY, EMPTY], "ids that differ"),
        ([EMPTY, "CartPole-v1"], "CartPole-v1 and MiniGrid-Empty-5x5-v0 cannot be tasks of one agent"),
        (["Line-7-v0", "Line-3-v0"], "Line-7-v0 cannot be one of several tasks, because its adapter LineAdapter needs"),
        ([EMPTY, "MiniGrid-Emty-5x5-v0"], 'Gymnasium knows no environment "MiniGrid-Emty-5x5-v0"'),
    ],
)
def test_tasks_that_do_not_go_together_are_refused(tasks: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineAdapter, "info_fields", {"place": "int64"})
    with pytest.raises(EnvError, match=message):
        adapter_for(EnvParams(id="laurel/Tasks-v0", kwargs={"tasks": tasks}))
