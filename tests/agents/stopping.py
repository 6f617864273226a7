"""Training of one agent that can be stopped anywhere, and what two equal runs have in common."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from laurel.data.json_file import read_json
from laurel.envs.base import EnvAdapter
from laurel.params import EnvParams
from laurel.params.algorithms import PPOParams
from laurel.params.training import ShapingParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import CaptionReward
from laurel.training.loop import train
from laurel.training.task import Task

torch.set_num_threads(1)
FILES = {".run.json", "config.json", "curve.parquet", "model.safetensors", "optimizer.safetensors", "state.json"}


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


def caption_reward(known: dict[str, float] | None = None) -> CaptionReward:
    """Rewards that depend on the caption; but for `known`, none is foreseen."""

    def score(texts: list[str]) -> np.ndarray:
        return np.array([len(text) % 7 - 2 for text in texts], dtype=np.float32)

    return CaptionReward(known or {"You turn.": 1.0}, 0.0, score)


class StoppedError(Exception):
    """As if the process had been killed."""


def run(
    task: Task,
    adapter: EnvAdapter,
    directory: Path,
    reward: Reward | None = None,
    *,
    updates: int | None = None,
) -> int:
    """Train for some more updates, or to the end; return how many steps were reported."""
    told: list[int] = []

    def advance(n: int) -> None:
        told.append(n)
        if updates is not None and len(told) > updates:  # the first says what the checkpoint had
            raise StoppedError

    try:
        train(task, adapter, reward, directory, advance)
    except StoppedError:
        assert updates is not None
    return sum(told)


def content(directory: Path) -> dict[str, Any]:
    """What two equal runs have in common: everything but seconds."""
    state = read_json(directory / "state.json")
    return {
        "state": state,
        "curve": json.dumps(pq.read_table(directory / "curve.parquet").to_pylist()),
        "model": (directory / "model.safetensors").read_bytes(),
        "optimizer": (directory / "optimizer.safetensors").read_bytes(),
        "config": (directory / "config.json").read_text(),
        "files": sorted(file.name for file in directory.iterdir()),
    }


def curve(directory: Path) -> list[dict[str, Any]]:
    return pq.read_table(directory / "curve.parquet").to_pylist()
