from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env

from laurel.envs import EnvAdapter, make_reference
from laurel.envs.builtin import POSITION_ONLY
from laurel.envs.vector import VectorEnv, make_vector
from laurel.params import EnvParams


def test_it_passes_gymnasiums_checks() -> None:
    check_env(gym.make(POSITION_ONLY).unwrapped, skip_render_check=True)


def test_one_is_cartpole_without_its_velocities() -> None:
    whole, half = gym.make("CartPole-v1"), gym.make(POSITION_ONLY)
    seen, expected = half.reset(seed=3)[0], whole.reset(seed=3)[0]
    rng = np.random.default_rng(0)
    for _ in range(200):
        assert seen.tolist() == expected[[0, 2]].tolist()
        assert half.observation_space.contains(seen)
        action = int(rng.integers(2))
        seen, *outcome = half.step(action)
        expected, *outcomes = whole.step(action)
        assert outcome[:3] == outcomes[:3]
        if outcome[1] or outcome[2]:
            seen, expected = half.reset()[0], whole.reset()[0]


def five(env: EnvParams) -> VectorEnv:
    reference = make_reference(env)
    return make_vector(env, EnvAdapter(env.id, reference.observation_space, reference.action_space), 5, 7)


def test_many_are_cartpoles_without_their_velocities() -> None:
    """Stepped by their own vector form, which resets as CartPole's does."""
    env, whole = EnvParams(id=POSITION_ONLY), EnvParams(id="CartPole-v1")
    adapters = [
        EnvAdapter(of.id, reference.observation_space, reference.action_space)
        for of in (env, whole)
        for reference in [make_reference(of)]
    ]
    half_envs, whole_envs = make_vector(env, adapters[0], 5, 7), make_vector(whole, adapters[1], 5, 7)
    assert type(half_envs._envs.unwrapped).__name__ == "PositionOnlyCartPoleVector"
    assert np.array_equal(half_envs.reset(), whole_envs.reset()[:, [0, 2]])
    rng, ended = np.random.default_rng(0), 0
    for _ in range(100):
        action = rng.integers(2, size=5)
        step, expected = half_envs.step(action), whole_envs.step(action)
        assert np.array_equal(step.observation, expected.observation[:, [0, 2]])
        for found, wanted in zip(step[1:], expected[1:], strict=True):
            assert np.array_equal(found, wanted)
        ended += int(step.terminated.sum())
    assert ended > 5
