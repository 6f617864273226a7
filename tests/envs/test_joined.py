"""Joined environments: each of them is what it is alone, to the bit, before, while and after it is joined."""

from __future__ import annotations

import importlib.util

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.arrays import Array
from laurel.envs import adapter_for
from laurel.envs.joined import joined
from laurel.envs.vector import VectorEnv, make_vector
from laurel.params import EnvParams

N = 3
needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed")
KINDS = {
    "CartPole-v1": EnvParams(id="CartPole-v1", backend="gymnasium"),
    "CartPole-v0, other rewards": EnvParams(
        id="CartPole-v0", backend="gymnasium", kwargs={"sutton_barto_reward": True}
    ),
    "CartPole-v1 with a limit": EnvParams(id="CartPole-v1", backend="gymnasium", max_episode_steps=7),
    "Pendulum-v1": EnvParams(id="Pendulum-v1", backend="gymnasium"),
}
ON_ENVPOOL = EnvParams(id="FrozenLake-v1", backend="envpool")
on_each = pytest.mark.parametrize("env", [*KINDS.values(), pytest.param(ON_ENVPOOL, marks=needs_envpool)], ids=str)


def make(env: EnvParams, n: int) -> list[VectorEnv]:
    adapter = adapter_for(env)
    return [make_vector(env, adapter, N, seed) for seed in range(n)]


def actions_of(env: VectorEnv, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    space = env.adapter.action_space
    if isinstance(space, gym.spaces.Discrete):
        return rng.integers(0, space.n, shape)
    return rng.normal(size=(*shape, *(space.shape or ()))).astype(np.float32)


@on_each
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(0, 40), min_size=1, max_size=4), st.integers(0, 2**31 - 1))
def test_joined_environments_equal_separate_ones(env: EnvParams, n: int, spells: list[int], seed: int) -> None:
    """Joined for some steps, apart for some, and joined again in another order."""
    alone, together = make(env, n), make(env, n)
    rng = np.random.default_rng(seed)
    for its in (*alone, *together):
        if its.form is not None:
            its.form.max_episode_steps = 12  # within which some poles fall, and some do not
    for single, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(single.reset(), other.reset())
    resets = 0
    for spell, steps in enumerate(spells):
        order = rng.permutation(n) if spell % 2 else np.arange(n)
        for apart in (False, True):
            taken = actions_of(alone[0], (steps if not apart else 2, n, N), rng)
            expected = [[alone[s].step(action[s]) for s in order] for action in taken]
            if apart:
                found = [[together[s].step(action[s]) for s in order] for action in taken]
            else:
                with joined([together[s] for s in order]) as whole:
                    assert whole.n_envs == n * N
                    steps_of_all = [whole.step(action[order].reshape(n * N, *action.shape[2:])) for action in taken]
                found = [[step.rows(slice(s * N, (s + 1) * N)) for s in range(n)] for step in steps_of_all]
            for at, (answers, others) in enumerate(zip(expected, found, strict=True)):
                for answer, other in zip(answers, others, strict=True):
                    for name, here, there in zip(answer._fields[:-1], answer[:-1], other[:-1], strict=True):
                        assert here.dtype == there.dtype
                        np.testing.assert_array_equal(here, there, err_msg=f"{name} at {at}")
                    resets += int((~answer.valid).sum())
    if env.id.startswith("CartPole") and sum(spells) > 80:
        assert resets > 0, "streams are drawn from at resets"
    for its in (*alone, *together):
        its.close()


def test_cart_poles_are_one_array_and_others_are_not() -> None:
    for env, is_one in ((KINDS["CartPole-v1"], True), (KINDS["CartPole-v1 with a limit"], False)):
        members = make(env, 2)
        for its in members:
            its.reset()
        with joined(members) as whole:
            assert isinstance(whole.form, CartPoleVectorEnv) is is_one
        for its in members:
            its.close()


def test_a_single_environment_is_not_joined() -> None:
    (only,) = make(KINDS["CartPole-v1"], 1)
    with joined([only]) as whole:
        assert whole is only
    only.close()


def test_environments_that_rest_do_so_together() -> None:
    members = make(KINDS["CartPole-v1"], 2)
    observations = [its.reset() for its in members]
    members[1].stop(np.array([True, False, True]), observations[1])
    with joined(members) as whole:
        step = whole.step(np.zeros(2 * N, dtype=np.int64))
    np.testing.assert_array_equal(step.valid, [True, True, True, False, True, False])
    for its in members:
        its.close()
