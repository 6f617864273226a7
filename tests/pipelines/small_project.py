"""A project on CartPole in which all stages run in half a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from laurel.data.manifest import read_manifest
from tiny_project import VOLATILE

SMALL = {
    "tracking.enabled": False,
    "env.id": "CartPole-v1",
    "env.backend": "gymnasium",
    "collect.steps": 600,
    "collect.n_envs": 4,
    "collect.shard_steps": 250,
    "annotate.annotator": "scripted",
    "annotate.n_pairs": 60,
    "rewards.preference.input": "observation",
    "rewards.preference.ensemble": 2,
    "rewards.preference.max_epochs": 3,
    "arms": ["preference", "random_policy", "extrinsic"],
    "agent.steps": 256,
    "evaluate.animation_steps": 2,
    "evaluate.bootstrap": 20,
}


def lasting(path: Path) -> dict[str, Any]:
    return {key: value for key, value in read_manifest(path).items() if key not in VOLATILE}
