"""What is trained on a GPU is what is trained on the CPU, but sooner where there is enough to do.

`pytest -m gpu` runs these where CUDA is. The comparisons run on the CPU, too, where nothing may differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from laurel.agents.algorithms import initial_policy
from laurel.agents.ppo import PPO, OnPolicyRollout
from laurel.agents.training import Task, train
from laurel.device import torch_device
from laurel.envs import room_for
from laurel.envs.vector import make_vector
from laurel.errors import ParamsError
from laurel.llm.encoder import PACKAGED, load_encoder
from laurel.params import EnvParams
from laurel.params.training import PPOParams, RewardParams, ShapingParams
from laurel.rewards.bradley_terry import Comparisons, cross_validate, fit

CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here")],
)
devices = pytest.mark.parametrize("device", ["cpu", CUDA])
ENV = EnvParams(id="CartPole-v1", backend="gymnasium")


def comparisons(n_items: int, n_pairs: int, n_features: int, seed: int = 0) -> tuple[Any, Comparisons]:
    """Items whose first feature is their worth, and pairs that say so."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_items, n_features), dtype=np.float32)
    first, second = rng.integers(0, n_items, (2, n_pairs))
    p_first = 1 / (1 + np.exp(features[second, 0] - features[first, 0]).astype(np.float64))
    items = np.arange(n_items, dtype=np.int64)
    return features, Comparisons(items[:, None], items, first, second, p_first)


@devices
def test_the_reward_model_is_the_same(device: str) -> None:
    features, compared = comparisons(64, 500, 16)
    params = RewardParams(ensemble=3, hidden=(32,), max_epochs=10)
    there = torch_device(device, "reward.device")
    assert there.type == device
    held_out, expected = (cross_validate(features, compared, params, 0, d) for d in (there, torch.device("cpu")))
    np.testing.assert_allclose(held_out.predicted, expected.predicted, atol=1e-3)
    assert held_out.epochs == expected.epochs
    ensemble, reference = (fit(features, compared, params, 10, 0, d) for d in (there, torch.device("cpu")))
    rows = torch.from_numpy(features)
    torch.testing.assert_close(ensemble(rows), reference(rows), atol=1e-3, rtol=1e-3)


@devices
def test_the_encoder_is_the_same(device: str) -> None:
    texts = ["You open the door.", "You bump into a wall.", "You pick up a key, and carry it to the door."]
    encoder, reference = (
        load_encoder(PACKAGED, torch_device(device, "annotate.embedding.device")),
        load_encoder(PACKAGED),
    )
    np.testing.assert_allclose(encoder.encode(texts), reference.encode(texts), atol=1e-3)


def filled(params: PPOParams) -> tuple[PPO, OnPolicyRollout]:
    """A PPO on the CPU, and a rollout that it has collected."""
    room = room_for(ENV)
    ppo = PPO(initial_policy(room, params, 0, 0), params, np.random.default_rng(0))
    envs = make_vector(ENV, room, params.n_envs, 0)
    rollout = ppo.rollout(envs)
    ppo.collect(envs, envs.reset(), rollout)
    envs.close()
    return ppo, rollout


@devices
def test_an_update_is_the_same(device: str) -> None:
    params = PPOParams(n_envs=8, n_steps=32, n_epochs=2, batch_size=64)
    ppo, rollout = filled(params)
    network = initial_policy(room_for(ENV), params, 0, 0).to(torch_device(device, "agent.device"))
    other = PPO(network, params, np.random.default_rng(0))
    other.rng.bit_generator.state = ppo.rng.bit_generator.state
    losses, expected = other.learn(rollout), ppo.learn(rollout)
    assert losses["policy"] == pytest.approx(expected["policy"], abs=1e-3)
    assert losses["value"] == pytest.approx(expected["value"], rel=1e-3)
    for ours, theirs in zip(other.policy.parameters(), ppo.policy.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, atol=1e-3, rtol=1e-2)


@devices
def test_training_goes_on_from_its_checkpoint(device: str, tmp_path: Path) -> None:
    ppo = PPOParams(n_envs=4, n_steps=16, n_epochs=1, batch_size=32, hidden=(8,))
    shaping, room = ShapingParams(), room_for(ENV)

    def run(place: Path, stop_after: int | None = None) -> None:
        done = 0

        def advance(steps: int) -> None:
            nonlocal done
            done += steps
            if stop_after is not None and done >= stop_after:
                raise KeyboardInterrupt

        train(Task("extrinsic", 0, 0, ENV, ppo, shaping, 256, 64, device), room, None, place, advance)

    run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stop_after=128)
    run(tmp_path / "stopped")
    whole, stopped = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "stopped"))
    assert whole == stopped


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ParamsError, match=r'reward.device is "cuda", but PyTorch finds no GPU here \(it is built for'):
        torch_device("cuda", "reward.device")
    assert torch_device("auto", "reward.device").type == "cpu"


def seconds(work: Callable[[], object]) -> float:
    """Time the second call; the first loads what is loaded once."""
    work()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here")
def test_a_gpu_is_quicker_where_there_is_enough_to_do() -> None:
    features, compared = comparisons(20_000, 20_000, 384)
    params = RewardParams(ensemble=8, hidden=(1024, 1024), batch_size=4096)
    taken = {
        device: seconds(lambda device=device: fit(features, compared, params, 2, 0, torch.device(device)))
        for device in ("cpu", "cuda")
    }
    assert taken["cuda"] < taken["cpu"]

    wide = PPOParams(n_envs=64, n_steps=128, n_epochs=2, batch_size=4096, hidden=(2048, 2048))
    ppo, rollout = filled(wide)
    on_gpu = PPO(initial_policy(room_for(ENV), wide, 0, 0).to("cuda"), wide, np.random.default_rng(0))
    assert seconds(lambda: on_gpu.learn(rollout)) < seconds(lambda: ppo.learn(rollout))
