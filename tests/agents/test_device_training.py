"""Training with all on the device, on tensors of the CPU: it resumes, takes learned rewards, and learns."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file

from laurel.data.json_file import read_json
from laurel.envs import adapter_for
from laurel.errors import DataError
from laurel.params import EnvParams
from laurel.params.algorithms import AlgorithmParams, DQNParams, PPOParams
from laurel.params.training import ShapingParams
from laurel.rewards.functions import CaptionReward
from laurel.training import lockstep
from laurel.training.loop import train, train_together
from laurel.training.task import Assignment, Task

torch.set_num_threads(1)
TINY = {"n_envs": 4, "n_steps": 32, "n_epochs": 2, "batch_size": 32, "hidden": (8,)}
DOORKEY = "MiniGrid-DoorKey-5x5-v0"


def task_of(env_id: str, seed: int = 0, updates: int = 6, **ppo: Any) -> Task:
    settings = PPOParams.model_validate({**TINY, **ppo})
    steps = settings.n_envs * settings.n_steps
    shaping = ShapingParams(extrinsic=0.5, intrinsic=1.0, beta=0.0, quantile=0.0)
    return Task("preference", seed, 3, EnvParams(id=env_id), settings, shaping, updates * steps, 2 * steps)


def reward(known: str = "You bump into a wall.") -> CaptionReward:
    def score(texts: list[str]) -> np.ndarray:
        return np.array([float(known in text) for text in texts], dtype=np.float32)

    return CaptionReward({known: 1.0}, 0.0, score)


class StoppedError(Exception):
    """As if the process had been killed."""


def run(tasks: Sequence[Task], place: Path, *, rewarded: Sequence[bool] = (), stop_after: int | None = None) -> None:
    """Train agents together; those `rewarded` on captions, too."""
    adapter, told = adapter_for(tasks[0].env), 0

    def advance(n: int) -> None:
        nonlocal told
        told += n
        if stop_after is not None and told >= stop_after * tasks[0].steps_per_update * len(tasks):
            raise StoppedError

    agents = [
        Assignment(task, reward() if i < len(rewarded) and rewarded[i] else None, place / str(task.seed))
        for i, task in enumerate(tasks)
    ]
    try:
        train_together(agents, adapter, advance, tensors=True)
    except StoppedError:
        assert stop_after is not None


def curve(place: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(place / "curve.parquet").to_pylist()
    return rows


def figures(row: dict[str, Any]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in row.items()}


def content(place: Path) -> dict[str, Any]:
    state = read_json(place / "state.json")
    files = {name: (place / f"{name}.safetensors").read_bytes() for name in ("model", "optimizer")}
    return {"state": state, "curve": json.dumps(curve(place)), **files}


@pytest.mark.parametrize("env_id", ["CartPole-v1", DOORKEY])
def test_a_resumed_run_is_the_run_that_it_would_have_been(env_id: str, tmp_path: Path) -> None:
    """To the bit, with agents that learn from captions beside one that does not."""
    counted = ShapingParams(beta=1.0, quantile=0.0)
    tasks = [replace(task_of(env_id, seed, anneal=True), shaping=counted) for seed in range(3)]
    rewarded = [True, False, True]
    run(tasks, tmp_path / "whole", rewarded=rewarded)
    for stop in (1, 3, 5):
        run(tasks, tmp_path / str(stop), rewarded=rewarded, stop_after=stop)
        if stop == 3:
            state = read_json(tmp_path / "3/0/state.json")
            assert (state["update"], state["backend"]) == (2, "tensors")
            assert load_file(tmp_path / "3/0/actions.safetensors")["000001"].dtype == np.uint8
        run(tasks, tmp_path / str(stop), rewarded=rewarded)
        for seed in "012":
            assert content(tmp_path / str(stop) / seed) == content(tmp_path / "whole" / seed)
    first, second = (curve(tmp_path / "whole" / seed) for seed in "01")
    assert [row["raw_reward"] is None for row in first] == [False] * 6
    assert [row["raw_reward"] is None for row in second] == [True] * 6
    assert env_id == DOORKEY or sum(row["episodes"] for row in first) > 10


def test_an_agent_one_checkpoint_behind_is_trained_separately_first(tmp_path: Path) -> None:
    tasks = [task_of("CartPole-v1", seed) for seed in range(2)]
    run(tasks, tmp_path / "whole")
    run(tasks[:1], tmp_path / "parted", stop_after=3)
    run(tasks, tmp_path / "parted")
    for seed in "01":
        whole, parted = (curve(tmp_path / name / seed) for name in ("whole", "parted"))
        assert [row["return_mean"] for row in whole] == pytest.approx([row["return_mean"] for row in parted])
        assert whole[-1]["policy"] == pytest.approx(parted[-1]["policy"], abs=1e-5)


def test_a_checkpoint_of_other_environments_is_not_resumed(tmp_path: Path) -> None:
    """Its actions would lead elsewhere, without a word."""
    task = task_of("CartPole-v1")
    run([task], tmp_path, stop_after=3)
    with pytest.raises(DataError, match="with the environment backend tensors, but here the backend is gymnasium"):
        train(task, adapter_for(task.env), None, tmp_path / "0", lambda n: None)
    run([task], tmp_path)
    assert read_json(tmp_path / "0/state.json")["finished"]


def test_episodes_are_reported_as_they_ended(tmp_path: Path) -> None:
    """Every step of an episode in CartPole pays one, so returns are lengths."""
    run([task_of("CartPole-v1", updates=30)], tmp_path)
    rows = [row for row in curve(tmp_path / "0") if row["return_mean"]]
    assert len(rows) > 3
    assert [row["return_mean"] for row in rows] == pytest.approx([row["length_mean"] for row in rows])
    assert all(8 <= row["return_mean"] <= 256 for row in rows)


def test_it_learns_the_rewarded_captions(tmp_path: Path) -> None:
    """Bumping into walls is rewarded more than the goal, so the agent does it; an agent without that reward does
    not."""
    tasks = [task_of(DOORKEY, seed, 60, n_envs=8, n_steps=32, batch_size=64, learning_rate=1e-2) for seed in range(2)]
    run(tasks, tmp_path, rewarded=[True, False])
    paid = curve(tmp_path / "0")
    assert paid[0]["shaped_reward"] < 0.4
    assert np.mean([row["shaped_reward"] for row in paid[-10:]]) > 0.8
    assert paid[-1]["share_paid"] == pytest.approx(paid[-1]["shaped_reward"])
    assert (tmp_path / "0/model.safetensors").read_bytes() != (tmp_path / "1/model.safetensors").read_bytes()


def test_hundreds_of_agents_at_once(tmp_path: Path) -> None:
    """Two updates of 256; some of them are what they are alone."""
    tiny = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 1}
    tasks = [task_of("CartPole-v1", seed, updates=2, **tiny) for seed in range(256)]
    run(tasks, tmp_path / "all", rewarded=[seed % 2 == 0 for seed in range(256)])
    for seed in (0, 1, 255):
        run(tasks[seed : seed + 1], tmp_path / "alone", rewarded=[seed % 2 == 0])
        theirs, alone = (curve(tmp_path / name / str(seed)) for name in ("all", "alone"))
        for row, row_alone in zip(theirs, alone, strict=True):
            assert figures(row) == pytest.approx(figures(row_alone), abs=1e-5, rel=1e-4, nan_ok=True)
    assert len({(tmp_path / "all" / str(seed) / "model.safetensors").read_bytes() for seed in range(256)}) == 256


@pytest.mark.parametrize(
    ("env", "settings", "device", "there"),
    [
        ({}, PPOParams(), "cuda", True),
        ({}, PPOParams(), "auto", True),
        ({}, PPOParams(), "cpu", False),
        ({"id": DOORKEY}, PPOParams(), "auto", True),
        ({"id": DOORKEY, "max_episode_steps": 50}, PPOParams(), "auto", True),
        ({"id": "MiniGrid-FourRooms-v0"}, PPOParams(), "auto", False),
        ({"backend": "gymnasium"}, PPOParams(), "auto", False),
        ({}, PPOParams(recurrent=True), "auto", False),
        ({}, DQNParams(), "auto", False),
    ],
)
def test_which_agents_are_trained_entirely_on_the_gpu(
    env: dict[str, Any], settings: AlgorithmParams, device: str, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    params = EnvParams.model_validate({"id": "CartPole-v1", **env})
    assert lockstep.on_device(params, adapter_for(params), settings, device) is there


# -- learning ---------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_it_solves_cart_pole(tmp_path: Path) -> None:
    """Three seeds at once, with the settings that solve it on the host."""
    settings = PPOParams(n_epochs=10, gamma=0.98, gae_lambda=0.8, entropy_coef=0.0)
    tasks = [
        Task("extrinsic", seed, 0, EnvParams(id="CartPole-v1"), settings, ShapingParams(), 200_000, 200_000)
        for seed in range(3)
    ]
    run(tasks, tmp_path)
    for seed in "012":
        assert max(row["return_mean"] or 0 for row in curve(tmp_path / seed)) >= 475


@pytest.mark.slow
def test_it_learns_doorkey(tmp_path: Path) -> None:
    tasks = [
        Task("extrinsic", seed, 0, EnvParams(id=DOORKEY), PPOParams(), ShapingParams(), 120_000, 120_000)
        for seed in (1, 2)  # not 0, one seed in eight, which never finds the goal at first
    ]
    run(tasks, tmp_path)
    for seed in "12":
        assert np.mean([row["return_mean"] for row in curve(tmp_path / seed)[-5:]]) > 0.9
