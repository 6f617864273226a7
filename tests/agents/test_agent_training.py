"""Training of one agent: resumption to the bit, rewards by hand, checkpoints that are whole or refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_environments import RewardByAction, probe_id
from safetensors.numpy import load_file, save_file

from laurel.agents.algorithms import initial_policy
from laurel.agents.checkpoint import load_policy
from laurel.agents.episodes import Episodes
from laurel.agents.ppo import OnPolicyRollout
from laurel.agents.signal import Signal
from laurel.agents.stacked_ppo import PPOGroup
from laurel.agents.training import CURVE_SCHEMA, Assignment, Task, is_finished, train, train_together
from laurel.data.directory import read_json
from laurel.envs import room_for
from laurel.envs.base import IntArray, Room, Transitions
from laurel.envs.vector import VectorEnv
from laurel.errors import DataError, TrainingError
from laurel.params import EnvParams
from laurel.params.training import PPOParams, ShapingParams
from laurel.rewards.functions import CaptionReward, RewardFunction

torch.set_num_threads(1)
FILES = {"config.json", "curve.parquet", "model.safetensors", "optimizer.safetensors", "state.json"}


def make_task(env: str = "FrozenLake-v1", **changes: Any) -> Task:
    ppo = {"n_envs": 3, "n_steps": 16, "batch_size": 16, "n_epochs": 2, "hidden": (8,), **changes.pop("ppo", {})}
    task = Task(
        arm="preference",
        seed=1,
        run_seed=5,
        env=EnvParams(id=env, backend=changes.pop("backend", "gymnasium")),
        settings=PPOParams.model_validate(ppo),
        shaping=ShapingParams(beta=1.0, quantile=0.0),
        steps=8 * 48,
        checkpoint_steps=2 * 48,
    )
    return replace(task, **changes)


@pytest.fixture(scope="module")
def frozen_lake() -> Room:
    return room_for(EnvParams(id="FrozenLake-v1"))


def caption_reward(known: dict[str, float] | None = None) -> CaptionReward:
    """Rewards that depend on the caption; but for `known`, none is foreseen."""

    def score(texts: list[str]) -> np.ndarray:
        return np.array([len(text) % 7 - 2 for text in texts], dtype=np.float32)

    return CaptionReward(known or {"You turn.": 1.0}, 0.0, score)


class StoppedError(Exception):
    """As if the process had been killed."""


def run(
    task: Task, room: Room, directory: Path, reward: RewardFunction | None = None, *, updates: int | None = None
) -> int:
    """Train for some updates more, or to the end; return how many steps were told."""
    told: list[int] = []

    def advance(n: int) -> None:
        told.append(n)
        if updates is not None and len(told) > updates:  # the first says what the checkpoint had
            raise StoppedError

    try:
        train(task, room, reward, directory, advance)
    except StoppedError:
        assert updates is not None
    return sum(told)


def content(directory: Path) -> dict[str, Any]:
    """What two equal runs have in common: everything but seconds."""
    state = read_json(directory / "state.json")
    state.pop("seconds")
    return {
        "state": state,
        "curve": json.dumps(pq.read_table(directory / "curve.parquet").drop_columns("seconds").to_pylist()),
        "model": (directory / "model.safetensors").read_bytes(),
        "optimizer": (directory / "optimizer.safetensors").read_bytes(),
        "files": sorted(file.name for file in directory.iterdir()),
    }


def curve(directory: Path) -> list[dict[str, Any]]:
    return pq.read_table(directory / "curve.parquet").to_pylist()


# -- resumption -------------------------------------------------------------------------------------------------
KINDS: dict[str, dict[str, Any]] = {
    "FrozenLake-v1": {},
    "CartPole-v1": {"ppo": {"anneal": True}},
    "Pendulum-v1": {},
    "MiniGrid-Empty-5x5-v0": {"backend": "auto"},
}


@pytest.mark.parametrize("rewarded", [True, False])
@pytest.mark.parametrize("env", KINDS)
def test_a_resumed_run_is_the_run_that_it_would_have_been(env: str, rewarded: bool, tmp_path: Path) -> None:
    """To the bit, whenever it is stopped: amid two checkpoints, right after one, several times, at once."""
    task = make_task(env, **KINDS[env])
    room = room_for(task.env)

    def reward() -> RewardFunction | None:
        return caption_reward() if rewarded else None

    whole = tmp_path / "whole"
    run(task, room, whole, reward())
    expected = content(whole)
    assert expected["files"] == sorted(FILES)
    rng = np.random.default_rng(sum(env.encode()))
    stops = [[int(rng.integers(1, 8))], [2, 3], [0, 1, 5, 0]]
    for number, updates in enumerate(stops):
        place = tmp_path / str(number)
        for some in updates:
            run(task, room, place, reward(), updates=some)
        run(task, room, place, reward())
        assert content(place) == expected, updates
    if rewarded and env != "Pendulum-v1":
        assert expected["state"]["unseen"] > 0, "captions that were met before the stop are counted again"
    lengths = [row["length_mean"] for row in curve(whole) if row["length_mean"]]
    if env in ("CartPole-v1", "MiniGrid-Empty-5x5-v0"):
        assert max(lengths) > task.settings.n_steps, "episodes cross updates, and so checkpoints"


def test_training_goes_on_from_the_checkpoint_and_not_from_the_start(
    tmp_path: Path, frozen_lake: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = 0
    original = PPOGroup.learn

    def counted(self: PPOGroup, rollouts: Sequence[OnPolicyRollout]) -> Any:
        nonlocal learned
        learned += 1
        return original(self, rollouts)

    monkeypatch.setattr(PPOGroup, "learn", counted)
    task = make_task()
    run(task, frozen_lake, tmp_path / "agent", updates=5)
    assert learned == 5
    assert read_json(tmp_path / "agent" / "state.json")["update"] == 4, "the last checkpoint"
    run(task, frozen_lake, tmp_path / "agent")
    assert learned == 5 + 4


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_agents_in_lockstep_become_what_they_become_alone(env: str, tmp_path: Path) -> None:
    """To the bit: also those that go on from different checkpoints, with and without a learned reward."""
    tasks = {name: make_task(env, seed=seed) for seed, name in enumerate("abcd")}
    rewards = {"a": caption_reward, "b": lambda: None, "c": caption_reward, "d": lambda: None}
    room = room_for(tasks["a"].env)
    for name, task in tasks.items():
        run(task, room, tmp_path / "alone" / name, rewards[name]())
    for name in "cd":
        run(tasks[name], room, tmp_path / "together" / name, rewards[name](), updates=3)
    told: list[int] = []
    agents = [Assignment(task, rewards[name](), tmp_path / "together" / name) for name, task in tasks.items()]
    train_together(agents, room, told.append)
    assert told[:2] == [2 * 2 * 48, 2 * 48], "two had two updates behind them"
    assert sum(told) == sum(task.total_steps for task in tasks.values())
    for name in tasks:
        assert content(tmp_path / "together" / name) == content(tmp_path / "alone" / name), name


def test_a_stop_amid_lockstep_leaves_every_checkpoint_whole(tmp_path: Path, frozen_lake: Room) -> None:
    tasks = [make_task(seed=seed) for seed in range(3)]
    for task in tasks:
        run(task, frozen_lake, tmp_path / "alone" / str(task.seed), caption_reward())

    def agents() -> list[Assignment]:
        return [Assignment(task, caption_reward(), tmp_path / "together" / str(task.seed)) for task in tasks]

    told: list[int] = []

    def stop(n: int) -> None:
        told.append(n)
        if len(told) == 6:
            raise StoppedError

    with pytest.raises(StoppedError):
        train_together(agents(), frozen_lake, stop)
    assert [read_json(tmp_path / "together" / str(seed) / "state.json")["update"] for seed in range(3)] == [4, 4, 4]
    train_together(agents(), frozen_lake, lambda n: None)
    for seed in "012":
        assert content(tmp_path / "together" / seed) == content(tmp_path / "alone" / seed)


def test_all_steps_are_told_those_of_the_checkpoint_included(tmp_path: Path, frozen_lake: Room) -> None:
    task = make_task()
    assert run(task, frozen_lake, tmp_path / "a") == task.total_steps == 384
    assert run(task, frozen_lake, tmp_path / "b", updates=3) == 3 * 48
    assert run(task, frozen_lake, tmp_path / "b") == 384
    assert run(task, frozen_lake, tmp_path / "b") == 384, "nothing is left to do"


def test_a_finished_agent_is_left_as_it_is(tmp_path: Path, frozen_lake: Room) -> None:
    task = make_task()
    run(task, frozen_lake, tmp_path / "agent")
    before = {file.name: file.read_bytes() for file in (tmp_path / "agent").iterdir()}
    assert set(before) == FILES, "no actions: they are needed to go on alone"
    run(task, frozen_lake, tmp_path / "agent")
    assert {file.name: file.read_bytes() for file in (tmp_path / "agent").iterdir()} == before


def test_a_checkpoint_is_a_policy_that_can_be_used(tmp_path: Path, frozen_lake: Room) -> None:
    run(make_task(), frozen_lake, tmp_path / "agent", updates=5)
    assert {file.name for file in (tmp_path / "agent").iterdir()} == FILES | {"actions.safetensors"}
    actions = load_file(tmp_path / "agent" / "actions.safetensors")
    assert {array.shape for array in actions.values()} == {(16, 3)}
    assert {array.dtype for array in actions.values()} == {np.dtype(np.uint8)}, "a byte each"
    load_policy(tmp_path / "agent")


def test_whom_the_umask_lets_read_can_read_every_file(tmp_path: Path, frozen_lake: Room) -> None:
    before = os.umask(0o027)
    try:
        run(make_task(), frozen_lake, tmp_path / "agent", updates=5)
    finally:
        os.umask(before)
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in (tmp_path / "agent").iterdir()}
    assert modes == dict.fromkeys(FILES | {"actions.safetensors"}, "0o640")


def test_what_a_killed_write_left_does_not_get_in(tmp_path: Path, frozen_lake: Room) -> None:
    run(make_task(), frozen_lake, tmp_path / "whole")
    run(make_task(), frozen_lake, tmp_path / "agent", updates=6)  # the next checkpoint is the last
    (tmp_path / ".agent.writing").mkdir()
    (tmp_path / ".agent.writing" / "actions.safetensors").write_text("half")
    (tmp_path / ".agent.writing" / "model.safetensors").write_text("half")
    run(make_task(), frozen_lake, tmp_path / "agent")
    assert content(tmp_path / "agent") == content(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent", "whole"]


def test_a_run_that_was_killed_between_two_renames(tmp_path: Path, frozen_lake: Room) -> None:
    run(make_task(), frozen_lake, tmp_path / "whole")
    run(make_task(), frozen_lake, tmp_path / "agent", updates=5)
    (tmp_path / "agent").rename(tmp_path / ".agent.previous")
    assert run(make_task(), frozen_lake, tmp_path / "agent", updates=0) == 4 * 48, "it is put back"
    run(make_task(), frozen_lake, tmp_path / "agent")
    assert content(tmp_path / "agent") == content(tmp_path / "whole")


def test_is_finished(tmp_path: Path, frozen_lake: Room) -> None:
    assert not is_finished(tmp_path / "agent")
    run(make_task(), frozen_lake, tmp_path / "agent", updates=3)
    assert not is_finished(tmp_path / "agent")
    run(make_task(), frozen_lake, tmp_path / "agent")
    assert is_finished(tmp_path / "agent")
    (tmp_path / "agent").rename(tmp_path / ".agent.previous")
    assert is_finished(tmp_path / "agent"), "as it was before it was moved aside"


# -- damage -----------------------------------------------------------------------------------------------------
def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def fewer_actions(file: Path) -> None:
    actions = load_file(file)
    actions.pop(sorted(actions)[-1])
    save_file(actions, file)


@pytest.mark.parametrize(
    ("file", "harm"),
    [
        *[(file, harm) for file in sorted(FILES | {"actions.safetensors"}) for harm in (cut, Path.unlink)],
        ("state.json", lambda file: file.write_text('{"finished": false}')),
        ("state.json", lambda file: file.write_text("{}")),
        ("actions.safetensors", fewer_actions),
        ("curve.parquet", lambda file: file.write_bytes(b"")),
    ],
)
def test_a_damaged_checkpoint_is_refused(
    file: str, harm: Callable[[Path], Any], tmp_path: Path, frozen_lake: Room
) -> None:
    run(make_task(), frozen_lake, tmp_path / "agent", updates=3)
    harm(tmp_path / "agent" / file)
    with pytest.raises(DataError) as caught:
        run(make_task(), frozen_lake, tmp_path / "agent")
    assert str(tmp_path / "agent") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path, frozen_lake: Room) -> None:
    run(make_task(), frozen_lake, tmp_path / "agent", updates=3)
    with pytest.raises(DataError, match=r"agent: not a whole checkpoint .*Delete it to train this agent anew"):
        run(make_task(ppo={"hidden": (9,)}), frozen_lake, tmp_path / "agent")


# -- rewards ----------------------------------------------------------------------------------------------------
class Sayings(Room):
    """What is said is the action: "", "good", "bad" or "fine"."""

    words = ("", "good", "bad", "fine")

    def __init__(self) -> None:
        super().__init__("Sayings-v0", gym.spaces.Discrete(4), gym.spaces.Discrete(4))

    def encode(self, transitions: Transitions) -> IntArray:
        return transitions.action

    def describe(self, event: int) -> str:
        return self.words[event]


def rollout_of(
    action: Any, *, extrinsic: Any = None, terminated: Any = None, truncated: Any = None, valid: Any = None
) -> OnPolicyRollout:
    action = np.array(action, dtype=np.int64)
    t, n = action.shape

    def flags(values: Any, otherwise: bool) -> np.ndarray:
        return np.full((t, n), otherwise) if values is None else np.array(values, dtype=np.bool_)

    return OnPolicyRollout(
        observation=np.zeros((t + 1, n, 1), dtype=np.int64),
        features=np.zeros((t + 1, n, 4), dtype=np.float32),
        action=action,
        log_prob=np.zeros((t, n), dtype=np.float32),
        value=np.zeros((t + 1, n), dtype=np.float32),
        extrinsic=np.zeros((t, n), np.float32) if extrinsic is None else np.array(extrinsic, dtype=np.float32),
        reward=np.full((t, n), np.nan, dtype=np.float32),
        terminated=flags(terminated, False),
        truncated=flags(truncated, False),
        valid=flags(valid, True),
    )


TABLE = CaptionReward({"good": 2.0, "bad": -1.0, "fine": 0.5}, 0.75, lambda texts: np.zeros(len(texts), np.float32))
SHAPING = ShapingParams(beta=1.0, intrinsic=0.1, extrinsic=10.0)


def test_the_mixed_reward_by_hand() -> None:
    signal = Signal(SHAPING, Sayings(), TABLE, 2)
    rollout = rollout_of(
        [[1, 1], [1, 3], [0, 1], [1, 2]],
        extrinsic=[[1, 0], [0, 0], [0, 2], [0, 0]],
        terminated=[[0, 0], [1, 0], [0, 0], [0, 0]],
        valid=[[1, 1], [1, 1], [0, 1], [1, 1]],
    )
    figures = signal.mix_into(rollout)
    # first: good, good for the second time and the end, a reset, good for the first time again
    # second: good, fine (below the threshold), good for the second time, bad
    shaped = np.array([[2, 2], [1, 0], [0, 1], [2, 0]])
    np.testing.assert_allclose(rollout.reward, 10 * rollout.extrinsic + 0.1 * shaped, rtol=1e-6)
    assert figures == pytest.approx(
        {
            "raw_reward": (2 + 2 + 2 + 2 + 0.5 + 2 - 1) / 7,
            "shaped_reward": 8 / 7,
            "share_paid": 5 / 7,
        }
    )
    # counts go on in the next rollout: the episode of the second has met "good" twice
    rollout = rollout_of([[3, 1], [0, 0]], valid=[[1, 1], [1, 1]])
    figures = signal.mix_into(rollout)
    np.testing.assert_allclose(rollout.reward, 0.1 * np.array([[0, 2 / 3], [0, 0]]), rtol=1e-6)
    assert figures == pytest.approx({"raw_reward": 2.5 / 2, "shaped_reward": 2 / 3 / 4, "share_paid": 1 / 4})


def test_truncation_ends_an_episodes_counts_too() -> None:
    signal = Signal(SHAPING, Sayings(), TABLE, 1)
    rollout = rollout_of([[1], [1], [1]], truncated=[[0], [1], [0]])
    signal.mix_into(rollout)
    np.testing.assert_allclose(rollout.reward[:, 0], [0.2, 0.1, 0.2], rtol=1e-6)


def test_the_learned_reward_alone() -> None:
    signal = Signal(SHAPING.model_copy(update={"extrinsic": 0.0}), Sayings(), TABLE, 1)
    rollout = rollout_of([[1], [2]], extrinsic=[[5], [7]])
    signal.mix_into(rollout)
    np.testing.assert_allclose(rollout.reward[:, 0], [0.2, 0], rtol=1e-6)


def test_the_environments_reward_alone() -> None:
    signal = Signal(SHAPING, Sayings(), None, 1)
    rollout = rollout_of([[1], [2]], extrinsic=[[5], [7]])
    assert signal.mix_into(rollout) == {"raw_reward": None, "shaped_reward": None, "share_paid": None}
    assert rollout.reward.tolist() == [[50], [70]]
    assert signal.unseen == 0


def test_a_rollout_of_nothing_but_resets_has_no_figures() -> None:
    signal = Signal(SHAPING, Sayings(), TABLE, 2)
    rollout = rollout_of([[1, 1]], valid=[[0, 0]])
    assert signal.mix_into(rollout) == {"raw_reward": None, "shaped_reward": None, "share_paid": None}
    assert not rollout.reward.any()


def test_a_rollout_about_which_there_is_nothing_to_say() -> None:
    signal = Signal(SHAPING, Sayings(), TABLE, 2)
    rollout = rollout_of([[0, 0]], extrinsic=[[1, 0]])
    assert signal.mix_into(rollout) == {"raw_reward": None, "shaped_reward": 0.0, "share_paid": 0.0}
    assert rollout.reward.tolist() == [[10, 0]], "and not minus infinity"


# -- episodes ---------------------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(0, 10**6))
def test_episodes_agree_with_a_slow_count(n_envs: int, lengths: list[int], seed: int) -> None:
    """Also of those that cross from one rollout into the next."""
    rng = np.random.default_rng(seed)

    class Half(Sayings):
        def succeeded(self, returns: Any, terminated: Any) -> Any:
            return terminated & (returns > 0)

    episodes = Episodes(Half(), n_envs)
    running: list[list[float]] = [[] for _ in range(n_envs)]
    for length in lengths:
        shape = (length, n_envs)
        terminated = rng.random(shape) < 0.2
        truncated = ~terminated & (rng.random(shape) < 0.2)
        valid = rng.random(shape) < 0.8
        terminated &= valid
        truncated &= valid
        rollout = rollout_of(
            np.zeros(shape),
            extrinsic=rng.integers(-2, 3, shape),
            terminated=terminated,
            truncated=truncated,
            valid=valid,
        )
        ended = []
        for t in range(length):
            for n in range(n_envs):
                if valid[t, n]:
                    running[n].append(float(rollout.extrinsic[t, n]))
                if terminated[t, n] or truncated[t, n]:
                    ended.append((sum(running[n]), len(running[n]), bool(terminated[t, n])))
                    running[n] = []
        found = episodes.finished(rollout)
        assert found["episodes"] == len(ended)
        if ended:
            assert found["return_mean"] == pytest.approx(np.mean([r for r, _, _ in ended]), abs=1e-5)
            assert found["length_mean"] == pytest.approx(np.mean([k for _, k, _ in ended]))
            assert found["success_rate"] == pytest.approx(np.mean([end and r > 0 for r, _, end in ended]))
        else:
            assert [found[key] for key in ("return_mean", "length_mean", "success_rate")] == [None] * 3


def test_without_a_notion_of_success_there_is_no_rate() -> None:
    found = Episodes(Sayings(), 1).finished(rollout_of([[1]], terminated=[[1]], extrinsic=[[3]]))
    assert found == {"episodes": 1, "return_mean": 3.0, "success_rate": None, "length_mean": 1.0}


# -- a run ------------------------------------------------------------------------------------------------------
def test_a_curve_has_a_row_an_update(tmp_path: Path, frozen_lake: Room) -> None:
    run(make_task(), frozen_lake, tmp_path / "agent", caption_reward())
    assert pq.read_schema(tmp_path / "agent" / "curve.parquet").equals(CURVE_SCHEMA)
    rows = curve(tmp_path / "agent")
    assert [row["env_steps"] for row in rows] == list(range(48, 385, 48))
    assert all(a["seconds"] <= b["seconds"] for a, b in pairwise(rows))
    assert sum(row["episodes"] for row in rows) > 10
    assert all(np.isfinite(row["policy"]) and row["raw_reward"] is not None for row in rows)
    run(make_task(), frozen_lake, tmp_path / "plain")
    assert all(row["raw_reward"] is None for row in curve(tmp_path / "plain"))


def test_arms_with_the_same_seed_begin_alike(frozen_lake: Room) -> None:
    """Same weights and same environments, so that what differs later is the reward's doing."""
    before = torch.random.get_rng_state()
    one, same, seed, run_seed = (
        initial_policy(frozen_lake, PPOParams(hidden=(8,)), *seeds).state_dict()
        for seeds in ((0, 1), (0, 1), (0, 2), (1, 1))
    )
    assert torch.equal(torch.random.get_rng_state(), before), "nobody else's random numbers are used up"
    assert all(torch.equal(one[name], same[name]) for name in one)
    for other in (seed, run_seed):
        assert not torch.equal(one["actor.0.weight"], other["actor.0.weight"])


def test_seeds_make_the_run(tmp_path: Path, frozen_lake: Room) -> None:
    tasks = {
        "one": make_task(steps=48),
        "again": make_task(steps=48),
        "arm": make_task(steps=48, arm="extrinsic"),
        "seed": make_task(steps=48, seed=2),
        "run": make_task(steps=48, run_seed=6),
    }
    for name, task in tasks.items():
        run(task, frozen_lake, tmp_path / name)
    model = {name: content(tmp_path / name)["model"] for name in tasks}
    assert model["one"] == model["again"] == model["arm"]
    assert len({model["one"], model["seed"], model["run"]}) == 3


def test_the_learning_rate_falls_to_zero_also_across_a_stop(
    tmp_path: Path, frozen_lake: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []
    original = PPOGroup.learn

    def noted(self: PPOGroup, rollouts: Sequence[OnPolicyRollout]) -> Any:
        rates.append(self.learners[0].learning_rate)
        return original(self, rollouts)

    monkeypatch.setattr(PPOGroup, "learn", noted)
    task = make_task(ppo={"anneal": True, "learning_rate": 0.8}, steps=4 * 48, checkpoint_steps=48)
    run(task, frozen_lake, tmp_path / "agent", updates=2)
    run(task, frozen_lake, tmp_path / "agent")
    assert rates == pytest.approx([0.8, 0.6, 0.4, 0.2])


def test_replayed_steps_are_those_that_were_taken(
    tmp_path: Path, frozen_lake: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bytes] = []
    original = VectorEnv.step

    def noted(self: VectorEnv, actions: Any) -> Any:
        step = original(self, actions)
        taken.append(actions.tobytes() + step.observation.tobytes())
        return step

    monkeypatch.setattr(VectorEnv, "step", noted)
    run(make_task(), frozen_lake, tmp_path / "agent", updates=4)
    first, taken = taken, []
    run(make_task(), frozen_lake, tmp_path / "agent", updates=1)
    assert taken[: 4 * 16] == first


@pytest.mark.parametrize(
    ("steps", "checkpoint_steps", "updates", "per_checkpoint"),
    [(48, 48, 1, 1), (1, 1, 1, 1), (49, 100, 2, 2), (480, 10**6, 10, 20833), (96, 47, 2, 1)],
)
def test_steps_are_whole_updates(steps: int, checkpoint_steps: int, updates: int, per_checkpoint: int) -> None:
    task = make_task(steps=steps, checkpoint_steps=checkpoint_steps)
    assert (task.updates, task.total_steps) == (updates, updates * 48)
    assert task.updates_per_checkpoint == per_checkpoint


def test_the_learned_reward_steers_what_is_learned(tmp_path: Path) -> None:
    """The environment pays action 1; a reward for what is said of the other, weighed alone, teaches that one."""
    env = EnvParams(id=probe_id(RewardByAction), backend="gymnasium")
    room = room_for(env, with_action=True)
    shaping = ShapingParams(beta=0.0, intrinsic=1.0, extrinsic=0.0)
    task = make_task(
        env.id, steps=30 * 48, checkpoint_steps=10**6, shaping=shaping, ppo={"learning_rate": 0.01, "n_epochs": 4}
    )

    def score(texts: list[str]) -> np.ndarray:
        return np.array([1.0 if "negative" in text else -1.0 for text in texts], dtype=np.float32)

    run(task, room, tmp_path / "learned", CaptionReward({"": 0.0}, 0.0, score))
    run(task, room, tmp_path / "extrinsic")
    assert curve(tmp_path / "learned")[-1]["return_mean"] < -0.8
    assert curve(tmp_path / "learned")[-1]["share_paid"] > 0.9
    plain = replace(task, shaping=ShapingParams())
    run(plain, room, tmp_path / "plain")
    assert curve(tmp_path / "plain")[-1]["return_mean"] > 0.8


def test_a_run_that_diverges_says_so(tmp_path: Path, frozen_lake: Room) -> None:
    task = make_task(ppo={"learning_rate": 1e30})
    with pytest.raises(TrainingError, match=r"preference seed 1: training diverged .*agent\.ppo\.learning_rate"):
        run(task, frozen_lake, tmp_path / "agent")
