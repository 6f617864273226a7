"""The vector seam: what a step means is the same on EnvPool and on Gymnasium."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from laurel.envs import adapter_for, make_reference
from laurel.envs.vector import Step, make_vector
from laurel.errors import EnvError
from laurel.params import EnvParams

needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed")
BACKENDS = ["gymnasium", pytest.param("envpool", marks=needs_envpool)]
on_each_backend = pytest.mark.parametrize("backend", BACKENDS)


def make(env_id, backend="auto", n_envs=4, seed=0, reference=False, threads=1, **options):
    env = EnvParams.model_validate({"id": env_id, "backend": backend, **options})
    return make_vector(env, adapter_for(env), n_envs, seed, reference=reference, threads=threads)


@on_each_backend
@pytest.mark.parametrize(
    "env_id", ["FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1", "Taxi-v3"]
)
def test_every_valid_row_is_a_transition_of_the_task(roll, env_id, backend):
    if backend == "envpool" and env_id.startswith(("CliffWalking", "Taxi")):
        pytest.skip("not run on EnvPool")
    walk = roll(env_id, backend, steps=4000)
    task = gym.make(env_id.replace("Taxi-v3", "Taxi-v4")).unwrapped.P
    rows = walk.transitions[walk.valid]
    assert len(rows) > 3000
    for i in range(len(rows)):
        said = (int(rows.next_observation[i, 0]), float(rows.reward[i]), bool(rows.terminated[i]))
        possible = task[int(rows.observation[i, 0])][int(rows.action[i])]
        assert said in [(int(after), float(reward), bool(end)) for _, after, reward, end in possible]


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v3", "Taxi-v4", "laurel/GridWorld-v0"])
def test_episodes_begin_where_the_tasks_begin(env_id):
    envs = make(env_id, n_envs=64, max_episode_steps=1)
    chances = make_reference(EnvParams(id=env_id)).unwrapped.initial_state_distrib
    begun = [envs.reset(), *(envs.step(np.zeros(64, np.int64)).observation for _ in range(2))][::2]
    assert all((np.asarray(chances)[states[:, 0]] > 0).all() for states in begun)


def restore(env, env_id, observation):
    o = observation.astype(np.float64)
    env.steps_beyond_terminated = None
    if env_id == "Acrobot-v1":
        env.state = np.array([np.arctan2(o[1], o[0]), np.arctan2(o[3], o[2]), o[4], o[5]])
    else:
        env.state = o


@on_each_backend
@pytest.mark.parametrize("limit", [None, 9])
@pytest.mark.parametrize("env_id", ["MountainCar-v0", "CartPole-v1", "Acrobot-v1"])
def test_every_valid_row_obeys_the_physics_to_the_last_observation(roll, env_id, backend, limit):
    walk = roll(env_id, backend, steps=600, env={"max_episode_steps": limit})
    task = gym.make(env_id).unwrapped
    task.reset(seed=0)
    rows = walk.transitions[walk.valid]
    assert rows.truncated.any() == (limit is not None)
    for i in range(len(rows)):
        restore(task, env_id, rows.observation[i])
        after, reward, terminated, _, _ = task.step(int(rows.action[i]))
        np.testing.assert_allclose(after, rows.next_observation[i], atol=2e-6)
        assert reward == rows.reward[i]
        if not (backend == "envpool" and rows.truncated[i]):  # EnvPool cannot tell an end by itself at the limit
            assert terminated == rows.terminated[i]


@on_each_backend
@pytest.mark.parametrize(
    ("env_id", "limit"),
    [
        ("MountainCar-v0", 9),
        ("FrozenLake-v1", 5),
        ("MiniGrid-DoorKey-5x5-v0", 12),
        ("CartPole-v1", 8),
        ("LunarLander-v3", 6),
    ],
)
def test_a_limit_truncates_and_the_next_row_is_the_reset(roll, env_id, limit, backend):
    walk = roll(env_id, backend, steps=800, env={"max_episode_steps": limit})
    ended = walk.by_time("terminated") | walk.by_time("truncated")
    valid = walk.valid.reshape(ended.shape)
    np.testing.assert_array_equal(valid[1:], ~ended[:-1])
    assert valid[0].all()
    assert not (walk.by_time("terminated") & walk.by_time("truncated")).any()
    assert (walk.by_time("reward")[~valid] == 0).all()
    assert not ended[~valid].any()
    length = np.zeros(walk.n_envs, dtype=int)
    for t in range(len(ended)):
        length = np.where(valid[t], length + 1, 0)
        assert (length <= limit).all()
        np.testing.assert_array_equal(walk.by_time("truncated")[t], (length == limit) & ~walk.by_time("terminated")[t])
    assert walk.by_time("truncated").any()


@on_each_backend
@pytest.mark.parametrize(
    ("env_id", "limit"),
    [
        ("MountainCar-v0", 200),
        ("CliffWalking-v1", 200),
        ("MiniGrid-Empty-5x5-v0", 100),
        ("Taxi-v3", 200),
        ("Pendulum-v1", 200),
    ],
)
def test_without_a_configured_limit_the_task_has_its_own(roll, env_id, limit, backend):
    if backend == "envpool" and env_id.startswith(("CliffWalking", "Taxi")):
        pytest.skip("not run on EnvPool")
    walk = roll(env_id, backend, steps=2000)
    first = walk.by_time("truncated").argmax(axis=0)
    assert (first == limit - 1).any()
    assert (first[walk.by_time("truncated").any(axis=0)] >= limit - 1).all()


@on_each_backend
@pytest.mark.parametrize(
    "env_id", ["MiniGrid-DoorKey-5x5-v0", "FrozenLake-v1", "CartPole-v1", "LunarLander-v3", "MountainCarContinuous-v0"]
)
def test_a_seed_fixes_the_steps(env_id, backend):
    def steps(seed):
        envs = make(env_id, backend, n_envs=3, seed=seed)
        rng = np.random.default_rng(0)
        continuous = isinstance(envs.adapter.action_space, gym.spaces.Box)
        rows = [envs.reset().tobytes()]
        for _ in range(60):
            action = rng.uniform(-1, 1, (3, 1)).astype(np.float32) if continuous else rng.integers(0, 2, 3)
            rows += [column.tobytes() for column in envs.step(action)[:-1]]
        envs.close()
        return rows

    assert steps(5) == steps(5)
    assert steps(5) != steps(6)


@on_each_backend
@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCar-v0"])
def test_a_second_reset_begins_other_episodes(env_id, backend):
    envs = make(env_id, backend)
    first = envs.reset()
    envs.step(np.zeros(4, dtype=np.int64))
    second = envs.reset()
    assert first.shape == second.shape
    assert not (first == second).all(axis=1).any()
    assert envs.step(np.zeros(4, dtype=np.int64)).valid.all()


@on_each_backend
@pytest.mark.parametrize("env_id", ["CartPole-v1", "CliffWalking-v1", "MiniGrid-Empty-5x5-v0", "MountainCar-v0"])
def test_later_steps_leave_earlier_arrays_alone(env_id, backend):
    if backend == "envpool" and env_id.startswith("CliffWalking"):
        pytest.skip("not run on EnvPool")
    envs = make(env_id, backend)
    kept = [envs.reset()]
    copies = [kept[0].copy()]
    for t in range(30):
        for column in envs.step(np.full(4, t % 2))[:-1]:
            kept.append(column)
            copies.append(column.copy())
    assert all((array == copy).all() for array, copy in zip(kept, copies, strict=True))


@needs_envpool
@pytest.mark.parametrize("limit", [None, 20])
def test_minigrid_gives_the_same_reward_on_both_backends_whatever_the_limit(limit):
    rewards = {}
    for backend in ("gymnasium", "envpool"):
        envs = make("MiniGrid-Empty-5x5-v0", backend, max_episode_steps=limit)
        envs.reset()
        for action in (2, 2, 1, 2, 2):  # forward twice, right, forward twice: from one corner to the other
            step = envs.step(np.full(4, action))
        assert step.terminated.all()
        rewards[backend] = step.reward
    np.testing.assert_allclose(rewards["gymnasium"], 1 - 0.9 * 5 / (limit or 100), rtol=1e-6)
    np.testing.assert_allclose(rewards["envpool"], rewards["gymnasium"], rtol=1e-6)


@needs_envpool
def test_auto_uses_envpool_if_it_is_the_same_task():
    assert make("FrozenLake-v1").backend == "envpool"
    assert make("CartPole-v1").backend == "gymnasium", "its own vector form is quicker"
    assert make("CartPole-v1", max_episode_steps=5).backend == "envpool"
    assert make("CartPole-v1", "envpool").backend == "envpool"
    assert make("FrozenLake-v1", reference=True).backend == "gymnasium"
    assert make("FrozenLake-v1", kwargs={"is_slippery": False}).backend == "gymnasium"
    assert make("Blackjack-v1").backend == "gymnasium"
    assert make("CliffWalking-v1").backend == "gymnasium"
    assert make("Taxi-v3").backend == "gymnasium"
    assert make("Taxi-v4").backend == "gymnasium"


@needs_envpool
def test_envpool_asked_for_in_vain_is_an_error():
    with pytest.raises(EnvError, match=r"takes no env\.kwargs"):
        make("FrozenLake-v1", "envpool", kwargs={"is_slippery": False})
    with pytest.raises(EnvError, match="calls any ace"):
        make("Blackjack-v1", "envpool")
    with pytest.raises(EnvError, match="does not end its episodes"):
        make("CliffWalking-v1", "envpool")
    with pytest.raises(EnvError, match="with the passenger at the destination"):
        make("Taxi-v4", "envpool")


@needs_envpool
def test_an_id_that_the_user_registered_over_is_not_taken_from_envpool(monkeypatch):
    from gymnasium.envs.registration import EnvSpec

    spec = EnvSpec("FrozenLake-v1", entry_point="elsewhere:Lake", max_episode_steps=9)
    monkeypatch.setitem(gym.registry, "FrozenLake-v1", spec)
    from laurel.envs.vector import _choose_envpool

    adapter: Any = SimpleNamespace(env_id="FrozenLake-v1", info_fields={})

    assert _choose_envpool(EnvParams(id="FrozenLake-v1"), adapter) is None
    with pytest.raises(EnvError, match="does not have it"):
        _choose_envpool(EnvParams(id="FrozenLake-v1", backend="envpool"), adapter)


def test_without_envpool_auto_is_gymnasium_and_asking_for_it_an_error(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert make("FrozenLake-v1").backend == "gymnasium"
    with pytest.raises(EnvError, match=r'is not installed\. Use "auto" or "gymnasium"'):
        make("FrozenLake-v1", "envpool")


def test_cartpole_steps_as_one_array_unless_a_limit_is_ours():
    from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
    from gymnasium.vector import SyncVectorEnv

    assert isinstance(make("CartPole-v1", "gymnasium")._envs.unwrapped, CartPoleVectorEnv)
    assert isinstance(make("CartPole-v1", "gymnasium", max_episode_steps=5)._envs, SyncVectorEnv)


@pytest.mark.parametrize("env_id", ["laurel/GridWorld-v0", "laurel/Crafting-v0"])
def test_our_own_vector_forms_keep_to_a_limit(env_id):
    from laurel.envs.builtin.batch import BatchEnv

    envs = make(env_id, max_episode_steps=3)
    assert isinstance(envs.form, BatchEnv)
    envs.reset()
    steps = [envs.step(np.zeros(4, dtype=np.int64)) for _ in range(8)]
    assert np.flatnonzero([step.truncated.all() for step in steps]).tolist() == [2, 6]
    assert np.flatnonzero([not step.valid.any() for step in steps]).tolist() == [3, 7]
    envs.close()


@pytest.mark.parametrize("limit", [None, 30])  # as one array, and one by one
def test_stopped_environments_do_not_affect_the_others(limit):
    walked, resting = (make("CartPole-v1", "gymnasium", max_episode_steps=limit) for _ in range(2))
    observations = [envs.reset() for envs in (walked, resting)]
    others = np.array([True, False, True, False])
    for t in range(100):
        steps = [envs.step(np.full(4, t % 2)) for envs in (walked, resting)]
        for name, here, there in zip(steps[0]._fields[:-1], *(step[:-1] for step in steps), strict=True):
            np.testing.assert_array_equal(here[others], there[others], err_msg=name)
        if t > 10:
            assert not steps[1].valid[~others].any()
            assert not steps[1].reward[~others].any()
        if t > 10 and limit:
            np.testing.assert_array_equal(steps[1].observation[~others], observations[1][~others], "nor stepped")
        observations = [step.observation for step in steps]
        if t >= 10:
            resting.stop(~others, steps[1].observation)
    for envs in (walked, resting):
        envs.close()


def test_a_vector_form_that_resets_at_once_is_not_used(monkeypatch):
    from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    monkeypatch.setitem(CartPoleVectorEnv.metadata, "autoreset_mode", AutoresetMode.SAME_STEP)
    assert isinstance(make("CartPole-v1", "gymnasium")._envs, SyncVectorEnv)


@on_each_backend
@pytest.mark.parametrize("env_id", ["MiniGrid-DoorKey-5x5-v0", "CartPole-v1", "FrozenLake-v1"])
def test_threads_and_split_steps_change_nothing(env_id, backend):
    """What is kept of a step, while the next one is on its way, stays what it was."""
    whole, halves = make(env_id, backend, n_envs=9), make(env_id, backend, n_envs=9, threads=3)
    np.testing.assert_array_equal(whole.reset(), halves.reset())
    actions = np.random.default_rng(0).integers(0, 2, (300, 9))
    expected = [[part.copy() for part in whole.step(action)] for action in actions]
    found = []
    for action in actions:
        halves.begin_step(action)
        found.append(halves.end_step())
    for step, (step_of_all, step_of_halves) in enumerate(zip(expected, found, strict=True)):
        for part, (mine, same) in zip(Step._fields, zip(step_of_all, step_of_halves, strict=True), strict=True):
            np.testing.assert_array_equal(mine, same, err_msg=f"{part} of step {step}")
    assert not all(step.valid.all() for step in found), "episodes end"
    whole.close()
    halves.close()
