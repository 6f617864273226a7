"""A reward made by another run, in the same or another environment: `path` is that run's data/reward."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laurel.data.json_file import read_json, write_json
from laurel.data.manifest import checked_manifest
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError, closest
from laurel.params.rewards import RewardParams, method_of, resolved
from laurel.rewards.base import Reward
from laurel.rewards.method import Inputs, LearningMethod, Method, PayTable, Program, RewardContext
from laurel.rewards.stored import StoredRewards

MADE, CONFIG = "made", "config.json"


class StoredParams(RewardParams):
    """The settings; the reward's name usually differs from its kind, as in {from_5x5: {kind: stored, path: ...}}."""

    kind: str = "stored"
    """The method that makes the reward."""
    path: str
    """The output of the other run's train-reward."""
    name: str = "preference"
    """Name of the reward, which must not be per seed. Of several label sets, the first is used."""
    digest: str | None = None
    """Digest of that output, as in its manifest.json; any other is refused. null: not checked."""


class Stored(Method[StoredParams]):
    """Copies the artefact, so that the output is self-contained."""

    kind = "stored"
    summary = "a reward made by another run"
    Settings = StoredParams

    def named_files(self) -> Mapping[str, str]:
        return {"path": self.settings.path}

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        """Refuse a path that does not hold the reward."""
        _source_of(self.settings)
        return None

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        settings, folder = _source_of(self.settings)
        shutil.copytree(folder, place / MADE, ignore=shutil.ignore_patterns("set-*"))
        write_json(place / CONFIG, {"settings": settings.model_dump(mode="json")})

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        return _method(place).load(place / MADE, adapter, quantile)

    def program(self, place: Path) -> Program | None:
        return _method(place).program(place / MADE)

    def table(self, place: Path, quantile: float) -> PayTable | None:
        return _method(place).table(place / MADE, quantile)


def _source_of(ref: StoredParams) -> tuple[RewardParams, Path]:
    """Return the settings and directory of the named reward.

    Raises:
        DataError: it is missing, was modified, does not match the digest, or is made separately for each seed or agent.
    """
    path = Path(ref.path)
    manifest = checked_manifest(path, "train-reward")
    if ref.digest not in (None, manifest["digest"]):
        raise DataError(f"{path}: its digest is {manifest['digest']}, but the params require {ref.digest}.")
    rewards = StoredRewards.read(path)
    if ref.name not in rewards.settings:
        known = ", ".join(rewards.settings) or "none"
        raise DataError(f"{path}: holds no reward {ref.name}.{closest(ref.name, rewards.settings)} It has {known}.")
    if rewards.seeds[ref.name] is not None:
        raise DataError(
            f"{path}: its reward {ref.name} is made separately for each agent's seed, so there is no single one to use."
        )
    settings = rewards.settings[ref.name]
    if isinstance(method_of(settings), LearningMethod):
        raise DataError(
            f"{path}: its reward {ref.name} is learned while agents are trained, and each agent has its own, so there "
            "is no single one to use."
        )
    return settings, path / ref.name


def _method(place: Path) -> Method[Any]:
    """Return the method of a copied artefact, with its settings.

    Raises:
        DataError: it is damaged.
    """
    method: Method[Any] = method_of(resolved({"made": read_json(place / CONFIG)["settings"]}, ())["made"])
    return method


METHOD = Stored
