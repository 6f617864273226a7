"""What is trained on a GPU is what is trained on the CPU, but sooner where there is enough to do.

`pytest -m gpu` runs these where CUDA is. The comparisons run on the CPU, too, where nothing may differ.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from laurel.agents.algorithms import initial_policy
from laurel.agents.device_ppo import DevicePPO
from laurel.agents.learner import Rollout
from laurel.agents.policy import ActorCritic
from laurel.agents.ppo import OnPolicyRollout
from laurel.agents.stacked_ppo import PPOGroup, StackedPPO
from laurel.data.json_file import read_json
from laurel.device import torch_device
from laurel.envs import adapter_for
from laurel.envs.vector import make_vector
from laurel.errors import ParamsError
from laurel.llm.encoder import PACKAGED, load_encoder
from laurel.params import EnvParams
from laurel.params.algorithms import PPOParams
from laurel.params.rewards import PreferenceParams, RewardParams
from laurel.params.training import ShapingParams
from laurel.rewards.bradley_terry import Comparisons, cross_validate, fit
from laurel.rewards.methods.oracle import Oracle
from laurel.training.lockstep import group_of, make_envs, make_rollout
from laurel.training.loop import train, train_together
from laurel.training.task import Assignment, Task

CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here")],
)
devices = pytest.mark.parametrize("device", ["cpu", CUDA])
ENV = EnvParams(id="CartPole-v1", backend="gymnasium")
TINY = PPOParams(n_envs=4, n_steps=16, n_epochs=1, batch_size=32, hidden=(8,))


def stopping(after: int | None) -> Callable[[int], None]:
    """Return a progress callback that interrupts training after this many steps; None: never."""
    done = 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        if after is not None and done >= after:
            raise KeyboardInterrupt

    return advance


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
    params = PreferenceParams(kind="preference", ensemble=3, hidden=(32,), max_epochs=10)
    there = torch_device(device, "rewards.preference.device")
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


def learner_on(device: str, params: PPOParams, seed: int = 0) -> StackedPPO:
    """Return a PPO with its weights on a device."""
    policy = initial_policy(adapter_for(ENV), params, 0, seed).to(torch_device(device, "agent.device"))
    assert isinstance(policy, ActorCritic)
    return StackedPPO(policy, params, np.random.default_rng(seed))


def filled(params: PPOParams) -> tuple[StackedPPO, OnPolicyRollout]:
    """A PPO on the CPU, and a rollout that it has collected."""
    adapter = adapter_for(ENV)
    ppo = learner_on("cpu", params)
    envs = make_vector(ENV, adapter, params.n_envs, 0)
    rollout = ppo.rollout(envs)
    ppo.collect(envs, envs.reset(), rollout)
    envs.close()
    return ppo, rollout


@devices
def test_an_update_is_the_same(device: str) -> None:
    params = PPOParams(n_envs=8, n_steps=32, n_epochs=2, batch_size=64)
    ppo, rollout = filled(params)
    other = learner_on(device, params)
    other.rng.bit_generator.state = ppo.rng.bit_generator.state
    losses, expected = other.learn(rollout), ppo.learn(rollout)
    assert losses["policy"] == pytest.approx(expected["policy"], abs=1e-3)
    assert losses["value"] == pytest.approx(expected["value"], rel=1e-3)
    for ours, theirs in zip(other.policy.parameters(), ppo.policy.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, atol=1e-3, rtol=1e-2)


@devices
def test_many_agents_at_once(device: str) -> None:
    """Each of hundreds of agents learns the same as alone."""
    params, n = PPOParams(n_envs=4, n_steps=16, n_epochs=1, batch_size=32, hidden=(16,)), 256
    group = PPOGroup([learner_on(device, params, seed) for seed in range(n)])
    adapter = adapter_for(ENV)
    envs = [make_vector(ENV, adapter, params.n_envs, seed) for seed in range(n)]
    rollouts = [learner.rollout(its) for learner, its in zip(group.learners, envs, strict=True)]
    group.collect(envs, [its.reset() for its in envs], rollouts)
    kept = [copy.deepcopy(rollout) for rollout in rollouts[:: n - 1]]
    said = group.learn(rollouts)
    for seed, rollout in zip((0, n - 1), kept, strict=True):
        alone = learner_on("cpu", params, seed)
        _ = alone.rng.random(params.n_envs * params.n_steps, np.float32)  # what it acted by
        expected = alone.learn(rollout)
        assert said[seed] == pytest.approx(expected, abs=1e-3, rel=1e-2)
        for ours, theirs in zip(group.learners[seed].policy.parameters(), alone.policy.parameters(), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, atol=1e-3, rtol=1e-2)


@devices
def test_training_resumes_from_its_checkpoint(device: str, tmp_path: Path) -> None:
    shaping, adapter = ShapingParams(), adapter_for(ENV)

    def run(place: Path, stop_after: int | None = None) -> None:
        train(Task("extrinsic", 0, 0, ENV, TINY, shaping, 256, 64, device), adapter, None, place, stopping(stop_after))

    run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stop_after=128)
    run(tmp_path / "stopped")
    whole, stopped = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "stopped"))
    assert whole == stopped


# -- all on the device ------------------------------------------------------------------------------------------
TENSORS = pytest.mark.parametrize("env_id", ["CartPole-v1", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-Empty-5x5-v0"])


def all_on(device: str, env_id: str, params: PPOParams, n_agents: int) -> tuple[DevicePPO, list[Rollout]]:
    """A group of agents with their environments there, and what the host keeps of their steps."""
    env = EnvParams(id=env_id)
    adapter, there = adapter_for(env), torch_device(device, "agent.device")
    learners = []
    for seed in range(n_agents):
        policy = initial_policy(adapter, params, 0, seed).to(there)
        assert isinstance(policy, ActorCritic)
        learners.append(StackedPPO(policy, params, np.random.default_rng(seed)))
    envs = [make_envs(env, adapter, params.n_envs, seed, there) for seed in range(n_agents)]
    rollouts = [make_rollout(learner, its, True) for learner, its in zip(learners, envs, strict=True)]
    group = group_of(learners, envs, rollouts)
    assert isinstance(group, DevicePPO)
    assert {tensor.device.type for tensor in (group.stack.weights, group.envs.observation)} == {device}
    return group, rollouts


@devices
@TENSORS
def test_environments_are_the_same_there(env_id: str, device: str) -> None:
    """From the same seeds by the same actions: random numbers are the same on any device."""
    params = PPOParams(n_envs=16, n_steps=200)
    (group, rollouts), (reference, expected) = (all_on(d, env_id, params, 3) for d in (device, "cpu"))
    rng = np.random.default_rng(0)
    for _ in range(2):
        actions = [rng.integers(0, group.stack.n_actions, (params.n_steps, params.n_envs)) for _ in rollouts]
        for each, kept in ((group, rollouts), (reference, expected)):
            each.replay([], [], kept, actions)
        for ours, theirs in zip(rollouts, expected, strict=True):
            np.testing.assert_allclose(ours.observation, theirs.observation, atol=1e-5)
            for name in ("extrinsic", "terminated", "truncated", "valid"):
                np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert any(not rollout.valid.all() for rollout in rollouts) or "Random" in env_id or "Empty" in env_id


@devices
@TENSORS
def test_an_update_is_the_same_there(env_id: str, device: str) -> None:
    params = PPOParams(n_envs=8, n_steps=32, n_epochs=2, batch_size=64)
    (group, rollouts), (reference, expected) = (all_on(d, env_id, params, 3) for d in (device, "cpu"))
    for each, kept in ((group, rollouts), (reference, expected)):
        each.collect([], [], kept)
    actions = [rollout.action for rollout in expected]
    alike = [np.array_equal(rollout.action, action) for rollout, action in zip(rollouts, actions, strict=True)]
    assert sum(alike) >= 2  # a draw may lie just between two actions
    told, wanted = group.learn(rollouts), reference.learn(expected)
    for s in np.flatnonzero(alike):
        for name in ("policy", "value", "entropy"):
            assert told[s][name] == pytest.approx(wanted[s][name], abs=1e-3, rel=1e-2)
        ours, theirs = (each.learners[s].policy.parameters() for each in (group, reference))
        for tensor, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(tensor.cpu(), other, atol=1e-3, rtol=1e-2)


@devices
@TENSORS
def test_hundreds_act_and_learn_there(env_id: str, device: str) -> None:
    """Without waiting for it: CUDA says so where something does."""
    params = PPOParams(n_envs=4, n_steps=16, n_epochs=1, batch_size=32, hidden=(16,))
    group, rollouts = all_on(device, env_id, params, 256)
    for _ in range(2):
        group.collect([], [], rollouts)  # the first time, libraries are loaded
        said = group.learn(rollouts)
    assert np.isfinite([list(figures.values())[:5] for figures in said]).all()
    assert len({rollout.action.tobytes() for rollout in rollouts}) == 256
    update, reward = group.update(), group.stack.put(np.zeros((16, 256, 4), dtype=np.float32))
    mode = torch.cuda.set_sync_debug_mode if device == "cuda" else lambda level: None
    mode("error")
    try:
        with torch.no_grad():
            group.act()
            group.improve(update, reward)
    finally:
        mode("default")


@devices
@TENSORS
def test_training_entirely_on_the_device_resumes_from_its_checkpoint(env_id: str, device: str, tmp_path: Path) -> None:
    """On a GPU this is the default; on the CPU it is requested explicitly."""
    env = EnvParams(id=env_id)
    adapter = adapter_for(env)
    adapter.oracle = lambda caption: float("turn" in caption)  # type: ignore[method-assign]

    def run(place: Path, stop_after: int | None = None) -> None:
        tasks = [Task("oracle", seed, 0, env, TINY, ShapingParams(), 256, 64, device) for seed in range(3)]
        rewards = [
            Oracle(RewardParams(kind="oracle")).load(Path(), adapter, 0.5),
            None,
            Oracle(RewardParams(kind="oracle")).load(Path(), adapter, 0.5),
        ]
        agents = [Assignment(*pair, place / str(seed)) for seed, pair in enumerate(zip(tasks, rewards, strict=True))]
        train_together(agents, adapter, stopping(stop_after), tensors=True if device == "cpu" else None)

    run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stop_after=3 * 128)
    assert read_json(tmp_path / "stopped/0/state.json")["backend"] == "tensors"
    run(tmp_path / "stopped")
    for seed in "012":
        whole, stopped = ((tmp_path / name / seed / "model.safetensors").read_bytes() for name in ("whole", "stopped"))
        assert whole == stopped


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ParamsError, match=r'preference.device is "cuda", but PyTorch finds no GPU here'):
        torch_device("cuda", "rewards.preference.device")
    assert torch_device("auto", "rewards.preference.device").type == "cpu"


def seconds(work: Callable[[], object]) -> float:
    """Time the second call; the first loads what is loaded once."""
    work()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here")
def test_a_gpu_is_faster_with_enough_work() -> None:
    features, compared = comparisons(20_000, 20_000, 384)
    params = PreferenceParams(kind="preference", ensemble=8, hidden=(1024, 1024), batch_size=4096)
    taken = {
        device: seconds(lambda device=device: fit(features, compared, params, 2, 0, torch.device(device)))
        for device in ("cpu", "cuda")
    }
    assert taken["cuda"] < taken["cpu"]

    wide = PPOParams(n_envs=64, n_steps=128, n_epochs=2, batch_size=4096, hidden=(2048, 2048))
    ppo, rollout = filled(wide)
    on_gpu = learner_on("cuda", wide)
    assert seconds(lambda: on_gpu.learn(rollout)) < seconds(lambda: ppo.learn(rollout))
