"""Checkpoints that survive a step's machine: the next attempt resumes from them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl

from laurel.components.checkpoints import FOLDER, kept
from laurel.components.train_agents import train_agents
from laurel.data.directory import output_directory
from laurel.errors import TrainingError

WORK: dict[str, Any] = {"seed": 0, "tracking": {}}
PARTIAL = ".agents.0123.partial"
ATTEMPT = """
import sys, tempfile
from pathlib import Path
from kfp import dsl
from laurel.components.checkpoints import kept
artifact, partial = sys.argv[1:]
output = Path(tempfile.mkdtemp()) / "agents"
work = {"seed": 0, "tracking": {}}
with kept(dsl.Model(uri=artifact), "train-agents oracle 0", work, [], seconds=0.02) as checkpoints, checkpoints(output):
    place = output.parent / partial / "oracle" / "seed-0"
    place.mkdir(parents=True)
    (place / "weights").write_text("half way")
    while True:
        pass
"""


def test_an_attempt_resumes_from_the_checkpoint_of_a_killed_one(tmp_path: Path) -> None:
    artifact = tmp_path / "job" / "agents"
    running = subprocess.Popen([sys.executable, "-c", ATTEMPT, str(artifact), PARTIAL])
    try:
        end = time.monotonic() + 120
        while not list(artifact.parent.glob("*.zip")):
            assert running.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    output = tmp_path / "scratch" / "agents"
    with kept(dsl.Model(uri=str(artifact)), "train-agents oracle 0", WORK, []) as checkpoints, checkpoints(output):
        assert (output.parent / PARTIAL / "oracle" / "seed-0" / "weights").read_text() == "half way"
    assert not list(artifact.parent.glob("*.zip")), "what succeeded needs no checkpoint"


def attempt(
    tmp_path: Path, name: str, sections: dict[str, Any], *, inputs: Sequence[Path] = (), fails: bool = True
) -> bool:
    """Try a step once, on a disk of its own; return whether it found what an earlier attempt left."""
    output = Path(tempfile.mkdtemp(dir=tmp_path)) / "agents"
    place = output.parent / PARTIAL / "oracle" / "seed-0"
    found = False
    try:
        artifact = dsl.Model(uri=str(tmp_path / "job" / "agents"))
        with kept(artifact, name, sections, inputs) as checkpoints, checkpoints(output):
            found = place.is_dir()
            place.mkdir(parents=True, exist_ok=True)
            (place / "weights").write_text("half way")
            if fails:
                raise TrainingError("no more")
    except TrainingError:
        pass
    shutil.rmtree(output.parent)
    return found


def test_an_output_that_cannot_be_passed_on_keeps_its_checkpoint(tmp_path: Path) -> None:
    artifact = dsl.Model(uri=str(tmp_path / "job" / "agents"))
    output = tmp_path / "scratch" / "agents"
    place = output.parent / PARTIAL / "oracle" / "seed-0"
    place.mkdir(parents=True)
    (place / "weights").write_text("trained")

    @contextmanager
    def passed_on() -> Iterator[None]:
        yield
        raise OSError("the bucket is gone")

    def train() -> None:
        step = kept(artifact, "train-agents oracle 0", WORK, [], seconds=0.02)
        with step as checkpoints, passed_on(), checkpoints(output):
            while not list((tmp_path / "job").glob("train-agents-*.zip")):
                time.sleep(0.02)

    with pytest.raises(OSError, match="the bucket is gone"):
        train()
    (file,) = (tmp_path / "job").glob("*.zip")
    assert zipfile.ZipFile(file).namelist() == [f"{PARTIAL}/oracle/seed-0/weights"]


def test_work_on_other_inputs_starts_over(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with output_directory(tmp_path / name, stage="train-reward", params={}) as out:
            (out.path / "weights").write_text(name)
    resumed = [
        attempt(tmp_path, "train-agents oracle 0", WORK, inputs=[tmp_path / name]) for name in ("one", "two", "one")
    ]
    assert resumed == [False, False, True]


def test_other_work_starts_over(tmp_path: Path) -> None:
    assert not attempt(tmp_path, "train-agents oracle 0", WORK)
    assert not attempt(tmp_path, "train-agents oracle 1", WORK)
    assert not attempt(tmp_path, "train-agents oracle 0", {**WORK, "seed": 1})
    assert attempt(tmp_path, "train-agents oracle 0", {**WORK, "tracking": {"enabled": False}}, fails=False)
    assert not attempt(tmp_path, "train-agents oracle 0", WORK)


def test_a_damaged_checkpoint_is_reported_and_ignored(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    attempt(tmp_path, "train-agents oracle 0", WORK)
    (file,) = (tmp_path / "job").glob("*.zip")
    file.write_bytes(file.read_bytes()[:-20])
    assert not attempt(tmp_path, "train-agents oracle 0", WORK)
    assert "laurel step train-agents oracle 0: checkpoint (starts over, because" in capfd.readouterr().err


def test_a_step_of_training_keeps_its_checkpoints_in_the_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from laurel.stages import train_agents as stage

    monkeypatch.setenv(FOLDER, str(tmp_path / "bucket"))
    inputs = {}
    for name in ("captions", "preferences", "model"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(
            json.dumps({"stage": name, "digest": name, "params": {}, "inputs": {}})
        )
        inputs[name] = dsl.Artifact(uri=str(tmp_path / name))
    seen = []

    def run(output: Path, **given: Any) -> None:
        place = output.parent / PARTIAL / "oracle" / "seed-0"
        seen.append(place.exists())
        place.mkdir(parents=True, exist_ok=True)
        (place / "weights").write_text("half way")
        raise TrainingError("no more")

    monkeypatch.setattr(stage, "run", run)
    sections: dict[str, Any] = {key: {} for key in ("caption", "annotate", "rewards", "shaping", "tracking")}
    agent = {"seeds": [0], "steps": 9}
    for _ in range(2):
        with pytest.raises(SystemExit):
            train_agents.python_func(
                **sections,
                **inputs,
                seed=0,
                env={"id": "CartPole-v1"},
                arms=["oracle"],
                agent=agent,
                code_version="1",
                branch={"arm": "oracle", "seeds": [0.0]},
                agents=dsl.Model(uri=str(tmp_path / "out" / "agents")),
            )
    assert seen == [False, True]
    (file,) = (tmp_path / "bucket").iterdir()
    assert zipfile.ZipFile(file).namelist() == [f"{PARTIAL}/oracle/seed-0/weights"]
