"""Cart pole as tensors beside Gymnasium's: the same transitions, resets, limits and beginnings."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from laurel.envs import adapter_for
from laurel.envs.tensor import has_tensors, make_tensors
from laurel.envs.tensor.base import TensorEnv
from laurel.params import EnvParams

ENV = EnvParams(id="CartPole-v1")
CPU = torch.device("cpu")


def make(n_envs: int, seed: int, env: EnvParams = ENV) -> TensorEnv:
    return make_tensors(env, adapter_for(env), n_envs, seed, CPU)


@pytest.mark.parametrize("lasting", [False, True])
def test_transitions_are_those_of_gymnasium(lasting: bool) -> None:
    """Also in long episodes: pushing against the lean reaches the limit."""
    n, rng = 8, np.random.default_rng(0)
    rows = make(n, 0)
    envs = gym.make_vec("CartPole-v1", num_envs=n, vectorization_mode="vector_entry_point").unwrapped
    envs.reset(seed=0)
    observation, ends = rows.observation, np.zeros(2, dtype=int)
    envs.state = rows.state["motion"].numpy().T.copy()
    for _ in range(1100 if lasting else 200):
        balance = (observation[:, 2] + 0.3 * observation[:, 3] + 0.05 * observation[:, 0] > 0).long().numpy()
        action = balance if lasting else rng.integers(0, 2, n)
        step = rows.step(torch.from_numpy(action), rows.draw(1)[0])
        valid = ~envs.prev_done
        expected, reward, terminated, truncated, _ = envs.step(action)
        begins = ~valid
        envs.state[:, begins] = rows.state["motion"].numpy().T[:, begins]  # its random numbers are others
        observation = step.observation
        np.testing.assert_allclose(observation[valid], expected[valid], rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(step.reward, reward)
        np.testing.assert_array_equal(step.terminated, terminated)
        np.testing.assert_array_equal(step.truncated, truncated & ~terminated)
        np.testing.assert_array_equal(step.valid, valid)
        envs.state[:] = rows.state["motion"].numpy().T  # so that differences do not add up
        ends += [int(step.terminated.sum()), int(step.truncated.sum())]
    assert ends[int(lasting)] > 5


def test_no_episode_begins_as_another() -> None:
    """Over time, in other copies, with other seeds, or after another reset; and drawn in parts or at once."""
    rows, parts = make(3, 4), make(3, 4)
    drawn = rows.draw(5)
    assert torch.equal(torch.cat([parts.draw(2), parts.draw(3)]), drawn)
    begun = [rows.observation.clone(), rows.reset().clone(), make(3, 5).observation]
    for words in [*drawn, *rows.draw(4)]:
        rows.state["ended"][:] = True
        begun.append(rows.step(torch.zeros(3), words).observation.clone())
    together = torch.cat(begun)
    assert together.unique(dim=0).shape == together.shape


def test_episodes_begin_evenly_within_bounds() -> None:
    begun = make(20_000, 1).observation.numpy()
    assert (np.abs(begun) <= 0.05).all()
    shares = np.stack([np.histogram(column, bins=10, range=(-0.05, 0.05))[0] for column in begun.T]) / len(begun)
    np.testing.assert_allclose(shares, 0.1, atol=0.01)
    assert np.abs(np.corrcoef(begun.T) - np.eye(4)).max() < 0.03


def test_features_are_those_of_the_adapter() -> None:
    adapter, rows = adapter_for(ENV), make(5, 2)
    observation = rows.observation * 30
    np.testing.assert_array_equal(rows.features(observation), adapter.features(observation.numpy()))
    assert rows.features(observation[None]).shape == (1, 5, 4)


def test_a_limit_of_ones_own() -> None:
    rows = make(2, 0, EnvParams(id="CartPole-v1", max_episode_steps=3))
    ended = [rows.step(torch.zeros(2), rows.draw(1)[0]).truncated.tolist() for _ in range(7)]
    assert ended == [[False] * 2, [False] * 2, [True] * 2, [False] * 2, [False] * 2, [False] * 2, [True] * 2]


def test_different_tasks_have_no_tensor_version() -> None:
    adapter = adapter_for(ENV)
    assert has_tensors(ENV, adapter)
    for changes in ({"backend": "gymnasium"}, {"kwargs": {"sutton_barto_reward": True}}, {"id": "Acrobot-v1"}):
        env = EnvParams.model_validate({"id": "CartPole-v1", **changes})
        assert not has_tensors(env, adapter_for(env))

    class OwnAdapter(type(adapter)):  # type: ignore[misc]
        ids = ()

    own_adapter = OwnAdapter("CartPole-v1", adapter.packed.space, adapter.action_space)
    assert not has_tensors(ENV, own_adapter)
