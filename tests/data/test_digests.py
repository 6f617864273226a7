"""What is read is what a stage wrote: changed, replaced and lost files are noticed, others are not read again."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock

from laurel.agents.checkpoint import load_policy, save_policy
from laurel.agents.policy import ActorCritic
from laurel.data import replacing
from laurel.data.directory import output_directory
from laurel.data.lineage import read_inputs
from laurel.data.manifest import checked_manifest, read_manifest
from laurel.errors import DataError
from laurel.rewards.bradley_terry import Ensemble
from laurel.rewards.model import RewardModel
from laurel.rewards.normalizer import Normalizer
from laurel.rewards.text import TextReward


def write(output: Path, text: str = "one", stage: str = "collect", inputs: dict[str, Path] | None = None) -> None:
    with output_directory(output, stage=stage, params={}, inputs=inputs) as out:
        (out.path / "file.txt").write_text(text)
        (out.path / "other.txt").write_text("other")


def keep_times(file: Path, content: str) -> None:
    """Change a file while keeping its size and time stamp."""
    before = file.stat()
    file.write_text(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose content was read for a digest."""
    names: list[str] = []
    original: Callable[..., Any] = hashlib.file_digest

    def spy(stream: Any, name: str) -> Any:
        names.append(Path(stream.name).name)
        return original(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", spy)
    return names


# -- files that were changed ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "change",
    [
        lambda place: keep_times(place / "file.txt", "two"),
        lambda place: (place / "file.txt").unlink(),
        lambda place: (place / "more.txt").touch(),
        lambda place: (place / "file.txt").rename(place / "renamed.txt"),
    ],
    ids=["changed", "removed", "added", "renamed"],
)
def test_changed_files_are_refused(tmp_path: Path, change: Callable[[Path], None]) -> None:
    place = tmp_path / "trajectories"
    write(place)
    assert checked_manifest(place)["stage"] == "collect"
    change(place)
    with pytest.raises(
        DataError,
        match=r"trajectories.*: (holds other files than|is not what) laurel collect wrote.*run laurel collect again",
    ):
        checked_manifest(place)
    with pytest.raises(DataError, match=r"other files|is not what"):
        read_inputs({}, {"trajectories": place})
    with pytest.raises(DataError, match=r"other files|is not what"):
        write(tmp_path / "captions", stage="caption", inputs={"trajectories": place})
    assert not (tmp_path / "captions").exists()


def test_params_that_are_nan_are_the_same_params(tmp_path: Path) -> None:
    place, params = tmp_path / "reward", {"rewards": {"mine": {"bonus": math.nan, "more": [math.nan]}}}
    with output_directory(place, stage="train-reward", params=params):
        pass
    read_inputs({"rewards": {"mine": {"bonus": float("nan"), "more": [float("nan")]}}}, {"reward": place})
    with pytest.raises(DataError, match=r"made with rewards\.mine\.bonus NaN, but it is 1\.0"):
        read_inputs({"rewards": {"mine": {"bonus": 1.0, "more": [math.nan]}}}, {"reward": place})


@pytest.mark.parametrize("on_limit", ["stop", "continue"])
def test_limits_of_spending_matter_only_where_they_may_have_left_something_out(tmp_path: Path, on_limit: str) -> None:
    place, then = tmp_path / "preferences", {"annotate": {"budget": {"max_calls": 25, "on_limit": on_limit}}}
    with output_directory(place, stage="annotate", params=then):
        pass
    now = {"annotate": {"budget": {"max_calls": 1000, "on_limit": on_limit}}}
    if on_limit == "stop":
        read_inputs(now, {"preferences": place})
    else:
        with pytest.raises(DataError, match=r"made with annotate\.budget\.max_calls 25, but it is 1000"):
            read_inputs(now, {"preferences": place})
    with pytest.raises(DataError, match=r"made with annotate\.budget\.on_limit"):
        read_inputs({"annotate": {"budget": {"max_calls": 25, "on_limit": "other"}}}, {"preferences": place})


def test_the_changed_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a")
    file = tmp_path / "a" / "file.txt"
    file.write_text("two")
    os.utime(file, (file.stat().st_mtime + 1,) * 2)
    with pytest.raises(DataError, match=r"a/file\.txt: is not what laurel collect wrote\."):
        checked_manifest(tmp_path / "a")


def test_hidden_files_are_of_others(tmp_path: Path) -> None:
    """File managers and network disks leave some."""
    write(tmp_path / "a")
    (tmp_path / "a" / ".DS_Store").touch()
    checked_manifest(tmp_path / "a")


def test_an_input_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b", "old", "caption", {"a": tmp_path / "a"})

    def replaced_amid() -> None:
        with output_directory(tmp_path / "b", stage="caption", params={}, inputs={"a": tmp_path / "a"}) as out:
            (out.path / "file.txt").write_text("half of one, half of two")
            write(tmp_path / "a", "two")

    with pytest.raises(DataError, match=r"a: was replaced while it was read\. Run laurel caption again"):
        replaced_amid()
    assert (tmp_path / "b" / "file.txt").read_text() == "old"


# -- at no cost -------------------------------------------------------------------------------------------------
def test_unchanged_files_are_read_once(tmp_path: Path, read: list[str]) -> None:
    write(tmp_path / "a")
    read.clear()
    for _ in range(3):
        checked_manifest(tmp_path / "a")
    assert sorted(read) == ["file.txt", "other.txt"]
    keep_times(tmp_path / "a" / "file.txt", "one")
    read.clear()
    checked_manifest(tmp_path / "a")
    assert read == ["file.txt"], "it was written, if with the same content"


# -- what killed writers leave ----------------------------------------------------------------------------------
def test_readers_restore_what_a_killed_writer_moved(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a")
    (tmp_path / "data" / "a").rename(tmp_path / "data" / ".a.previous")
    assert read_manifest(tmp_path / "data" / "a")["stage"] == "collect"
    assert not (tmp_path / "data" / ".a.previous").exists()
    save_policy(tmp_path / "agents" / "preference" / "seed-0", policy())
    (tmp_path / "agents").rename(tmp_path / ".agents.previous")
    load_policy(tmp_path / "agents" / "preference" / "seed-0")


def test_a_reader_does_not_disturb_an_active_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "LOCK_SECONDS", 0.01)
    write(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / ".a.previous")
    with FileLock(tmp_path / ".a.lock"), pytest.raises(DataError, match="no such directory"):
        read_manifest(tmp_path / "a")
    assert (tmp_path / ".a.previous").exists()


def test_half_written_output_is_not_published(tmp_path: Path) -> None:
    def attempt(*, ends: bool) -> None:
        with output_directory(tmp_path / "a", stage="x", params={}, resumable=True) as out:
            (out.path / "agent").mkdir(exist_ok=True)
            if not ends:
                (out.path / "agent" / ".state.json.partial").write_text("{")
                raise RuntimeError

    with pytest.raises(RuntimeError):
        attempt(ends=False)
    attempt(ends=True)
    assert list((tmp_path / "a" / "agent").iterdir()) == []


# -- weights ----------------------------------------------------------------------------------------------------
def policy(seed: int = 0) -> ActorCritic:
    torch.manual_seed(seed)
    return ActorCritic(3, 2, continuous=False, hidden=(4,))


def test_swapped_weights_of_a_policy(tmp_path: Path) -> None:
    """They fit: nothing else would tell. MLflow's copies have no manifest."""
    save_policy(tmp_path / "a", policy(0))
    save_policy(tmp_path / "b", policy(1))
    shutil.copyfile(tmp_path / "b" / "model.safetensors", tmp_path / "a" / "model.safetensors")
    with pytest.raises(DataError, match=r"model\.safetensors: was modified since it was saved"):
        load_policy(tmp_path / "a")
    load_policy(tmp_path / "b")


def test_zeroed_weights_of_a_reward_model(tmp_path: Path) -> None:
    ensemble = Ensemble(2, (3,), 2)
    features = np.eye(2, dtype=np.float32)
    numbers = np.zeros(2, dtype=np.float32)
    model = RewardModel(
        ensemble, Normalizer(0.0, 1.0, (0.0,) * 101), "caption", "e", 1, ("a", "b"),
        numbers, numbers, np.ones(2, dtype=np.int64), features,
    )  # fmt: skip
    with output_directory(tmp_path / "reward", stage="train-reward", params={}) as out:
        model.save(out.path)
    RewardModel.load(tmp_path / "reward")
    with torch.no_grad():
        for weight in ensemble.parameters():
            weight.zero_()
    model.save(tmp_path / "reward")
    with pytest.raises(DataError, match=r"reward.*: (holds other files than|is not what) laurel train-reward wrote"):
        RewardModel.load(tmp_path / "reward")


def test_zeroed_weights_of_a_reward_model_of_texts(tmp_path: Path) -> None:
    """As `laurel reward fit` writes it, which score and serve read by themselves."""
    made = TextReward("encoder", "head", Normalizer(0.0, 1.0, (0.0,) * 101), np.ones(2))
    with output_directory(tmp_path / "reward", stage="reward fit", params={}) as out:
        made.save(out.path)
    TextReward.load(tmp_path / "reward")
    TextReward("encoder", "head", made.normalizer, np.zeros(2)).save(tmp_path / "reward")
    with pytest.raises(DataError, match=r"reward.*: (holds other files than|is not what) laurel reward fit wrote"):
        TextReward.load(tmp_path / "reward")
