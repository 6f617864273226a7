"""Policies of Stable-Baselines3 as Laurel's: they act as they did there, and come back from plain files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, get_args

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

from laurel.agents.checkpoint import load_policy, save_policy
from laurel.agents.sb3.catalog import ALGORITHMS, algorithm_class
from laurel.agents.sb3.policy import SB3Policy
from laurel.errors import DataError, ParamsError
from laurel.params.sb3 import UNFIT, SB3Algorithm

ENVS = {name: "CartPole-v1" if "Discrete" in spaces else "Pendulum-v1" for name, (_, spaces) in ALGORITHMS.items()}


def made(name: str, env_id: str | None = None, **kwargs: Any) -> tuple[Any, SB3Policy]:
    """An algorithm of random weights, and the copy of its policy."""
    options = {"buffer_size": 10} if hasattr(algorithm_class(name), "_store_transition") else {}
    model = algorithm_class(name)(
        "MlpPolicy", gym.make(env_id or ENVS[name]), seed=0, device="cpu", **{**options, **kwargs}
    )
    noise = 0.02 if name == "CrossQ" else 0.2  # wider layers
    for weights in model.policy.parameters():  # those of the last layers begin near 0
        weights.data += noise * torch.randn(weights.shape, generator=torch.Generator().manual_seed(weights.numel()))
    return model, SB3Policy.of(model, name, "MlpPolicy")


def observations(model: Any, n: int = 40) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, *model.observation_space.shape)).astype(np.float32)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_greedy_actions_are_those_of_predict(name: str) -> None:
    model, policy = made(name)
    seen = observations(model)
    expected, _ = model.predict(seen, deterministic=True)
    found, log_prob, value = policy.act(seen, np.random.default_rng(0), greedy=True)
    clipped = found.clip(model.action_space.low, model.action_space.high) if policy.continuous else found
    np.testing.assert_allclose(clipped, expected, rtol=1e-5, atol=1e-6)
    assert len(np.unique(expected)) > 1, "else the comparison says little"
    assert log_prob.shape == value.shape == (40,)


def test_squashed_actions_are_scaled_to_the_environments_bounds() -> None:
    model, policy = made("PPO", "Pendulum-v1", use_sde=True, policy_kwargs={"squash_output": True})
    seen = observations(model)
    expected, _ = model.predict(seen, deterministic=True)
    found, _, _ = policy.act(seen, np.random.default_rng(0), greedy=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(found).max() > 1, "the bounds are 2"


@pytest.mark.parametrize("name", ["PPO", "A2C", "TRPO", "SAC", "TQC", "CrossQ", "DQN", "QRDQN"])
def test_drawn_actions_have_the_distribution_of_predict(name: str) -> None:
    model, policy = made(name)
    if name in ("DQN", "QRDQN"):
        model.exploration_rate = policy.epsilon = 0.3
    seen = np.repeat(observations(model, 1), 4000, axis=0)
    found, _, _ = policy.act(seen, np.random.default_rng(0))
    if policy.continuous:
        expected = model.predict(seen)[0]
        clipped = found.clip(model.action_space.low, model.action_space.high)
        quantiles = np.linspace(0.1, 0.9, 9)
        np.testing.assert_allclose(np.quantile(clipped, quantiles), np.quantile(expected, quantiles), atol=0.25)
    else:
        rows = [model.predict(seen[0])[0] for _ in range(1500)]  # theirs explores with whole batches
        assert found.mean() == pytest.approx(np.mean(rows), abs=0.06)
    assert len(np.unique(found)) > 1


@pytest.mark.parametrize("name", ALGORITHMS)
def test_actions_depend_on_the_generator_alone(name: str) -> None:
    model, policy = made(name)
    policy.epsilon = 0.3
    seen = observations(model)
    state, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    first, same, other = (policy.act(seen, np.random.default_rng(seed))[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert name in ("TD3", "DDPG") or (first != other).any()
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == legacy).all()  # type: ignore[index]


# -- files ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ALGORITHMS)
def test_round_trip(name: str, tmp_path: Path) -> None:
    options = {"net_arch": [24], "activation_fn": torch.nn.ELU}
    model, policy = made(name, policy_kwargs=options)
    save_policy(tmp_path, policy, arm="preference", seed=3)
    assert {file.name for file in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    loaded = load_policy(tmp_path)
    assert loaded.config() == policy.config()
    assert "ELU" in str(loaded)
    for a, b in zip(*(p.act(observations(model), np.random.default_rng(1)) for p in (policy, loaded)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_state_dependent_exploration_draws_too(tmp_path: Path) -> None:
    for name in ("PPO", "SAC"):
        model, policy = made(name, "Pendulum-v1", use_sde=True)
        save_policy(tmp_path / name, policy)
        loaded = load_policy(tmp_path / name)
        seen = np.repeat(observations(model, 1), 50, axis=0)
        found, _, _ = loaded.act(seen, np.random.default_rng(0))
        assert found.std() > 0


def test_files_are_data_and_never_code(tmp_path: Path) -> None:
    """Names in config.json are looked up in a list; nothing is unpickled in place of the weights."""
    _, policy = made("SAC")
    save_policy(tmp_path, policy)
    good = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes(pickle.dumps(_Bomb()))
    with pytest.raises(DataError, match="cannot be read as this policy"):
        load_policy(tmp_path)
    for changes in (
        {"algorithm": "os.system"},
        {"algorithm": "BaseAlgorithm"},
        {"policy": "__class__"},
        {"options": {"activation_fn": "system"}},
        {"options": {"optimizer_class": "os.system"}},
    ):
        (tmp_path / "config.json").write_text(json.dumps({**good, "network": {**good["network"], **changes}}))
        with pytest.raises((DataError, ParamsError)) as caught:
            load_policy(tmp_path)
        assert "\n" not in str(caught.value)
    assert not _Bomb.exploded


class _Bomb:
    exploded = False

    def __reduce__(self) -> Any:
        return (setattr, (_Bomb, "exploded", True))


def test_every_name_is_a_class_and_fits_its_spaces() -> None:
    import sb3_contrib
    import stable_baselines3

    there = {*stable_baselines3.__all__, *sb3_contrib.__all__} - {"HerReplayBuffer", "get_system_info"}
    assert there == {*ALGORITHMS, *UNFIT}, "a new one is to be looked at"
    assert set(get_args(SB3Algorithm)) == set(ALGORITHMS)
