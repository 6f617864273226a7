"""Sweeps with DVC's queue, and the best parameters of `laurel tune` as those of a run."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from laurel.params import load_params
from tiny_project import UNTRACKED, Project, read_json

pytestmark = pytest.mark.slow
SHORT = {**UNTRACKED, "agent.steps": 256, "evaluate.episodes": 2, "evaluate.animation_steps": 0}


def ran(log: str) -> list[str]:
    found = re.findall(r"^Running stage '([a-z-]+)'", log, flags=re.MULTILINE)
    return [name for name in found if name != "judges"]  # it says for DVC what the others know by themselves


def wait_for_queue(project: Project) -> None:
    """Wait until DVC's queue is done, and end its worker.

    `dvc exp run --run-all` waits for the worker instead, which on a busy machine may never end: its monitor fails when
    it reads a message of kombu's file transport before it is written.
    """
    deadline = time.monotonic() + 900
    while re.search(r"\b(Queued|Running)\b", status := project.dvc("queue", "status")):
        assert time.monotonic() < deadline, status
        time.sleep(2)
    project.dvc("queue", "stop", "--kill")
    assert status.count("Success") == 2, status


def test_queued_experiments_try_several_weights(finished: Project, tmp_path: Path) -> None:
    project = finished.copy(tmp_path / "p", {**SHORT, "shaping.intrinsic": 0.1, "shaping.beta": 3.0})
    identity = [["config", "user.name", "test"], ["config", "user.email", "test@example.org"]]
    for command in (*identity, ["add", "."], ["commit", "--quiet", "--message", "a run"]):
        subprocess.run(["git", *command], cwd=project.path, env=project.environment(), check=True)
    project.dvc("exp", "run", "--queue", "-S", "shaping.intrinsic=0.05,0.2", "-S", "shaping.beta=1.0")
    assert project.dvc("queue", "status").count("Queued") == 2
    project.dvc("queue", "start", "-j", "1")
    wait_for_queue(project)
    (shown,) = json.loads(project.dvc("exp", "show", "--json"))[1:]
    tried = [experiment["revs"][0]["data"] for experiment in shown["experiments"]]
    shaping = [made["params"]["params.yaml"]["data"]["shaping"] for made in tried]
    assert sorted(values["intrinsic"] for values in shaping) == [0.05, 0.2]
    assert all(values["beta"] == 1.0 for values in shaping)
    for made in tried:
        assert "preference" in made["metrics"]["reports/metrics.json"]["data"]["arms"]


def test_the_best_of_a_search_runs_in_place_of_params(finished: Project, tmp_path: Path) -> None:
    project = finished.copy(tmp_path / "p", UNTRACKED)
    options = ["--search", "shaping.intrinsic=log:0.2:1", "--search", "agent.ppo.hidden=[8]", "--sampler", "random"]
    done = project.laurel("tune", "--trials", "2", "--steps", "2048", *options)
    assert done.returncode == 0, done.stderr
    (project.path / "params.yaml").write_text((project.path / "data/tune/best.yaml").read_text())
    params = load_params(project.path / "params.yaml")
    assert params.agent.ppo.hidden == (8,)
    assert 0.2 <= params.shaping.intrinsic <= 1
    assert ran(project.dvc("repro")) == ["train-agents", "evaluate"], "what the search was given stays as it is"
    assert ran(project.dvc("repro")) == []
    used = read_json(project.output("evaluate") / "manifest.json")["params"]
    assert used["shaping"]["intrinsic"] == params.shaping.intrinsic
    assert used["agent"]["seeds"] == [0, 1]
