"""The pipeline in containers: the same figures as without, and what is left when one is killed or Ctrl-C is pressed."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from chat_server import chat_server, completion

from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from tiny_project import REPOSITORY, TINY, UNTRACKED, Project

pytestmark = pytest.mark.docker

QUICK = {"collect.steps": 600, "annotate.n_pairs": 60, "rewards.preference.max_epochs": 3, "agent.steps": 1_000_000}
"""Up to training, of which there is no end."""
ENDLESS = {"rewards.preference.max_epochs": 10**6, "rewards.preference.patience": 10**6}
"""So that the reward's training is not done before it is killed."""


def begin(project: Project, image: str, *options: str) -> subprocess.Popen[str]:
    return project.start("pipeline", "run", "--runner", "docker", "--image", image, "--output", "out", *options)


def containers(project: Project) -> dict[str, str]:
    """Return function of a component -> the container that runs it, of those that see a project."""
    ids = docker("ps", "--quiet", "--filter", "label=laurel.run", "--filter", f"volume={project.path}").split()
    return {json.loads(docker("inspect", "--format", "{{json .Config.Cmd}}", id_))[-1]: id_ for id_ in ids}


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def wait_for(step: str, project: Project, attempt: int = 1) -> str:
    """Return the container of a step whose own work has begun."""
    log = project.path / "out" / "pipeline.log"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        said = log.read_text() if log.exists() else ""
        if len(re.findall(f"laurel step {step}( .*)?: begun", said)) >= attempt:
            return containers(project)[step.replace("-", "_")]
        time.sleep(0.05)
    raise AssertionError(f"{step} has not begun")


@dataclass
class Ran:
    project: Project
    first: tuple[int, str]
    """Exit code and standard error of the run in which a container was killed."""
    left: list[str]
    """What lay in the output after it."""
    again: tuple[int, str]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, image: str) -> Ran:
    """A run whose train-reward was killed in both attempts, and then resumed."""
    project = Project.create(tmp_path_factory.mktemp("docker") / "p", {**UNTRACKED, **ENDLESS})
    out = project.path / "out"
    running = begin(project, image, "--retries", "1")
    for attempt in (1, 2):
        docker("kill", wait_for("train-reward", project, attempt))
    _, stderr = running.communicate(timeout=600)
    first = running.returncode, stderr
    left = sorted(file.name for file in out.iterdir())
    project.change(
        {f"rewards.preference.{name}": TINY["rewards"]["preference"][name] for name in ("max_epochs", "patience")}
    )
    running = begin(project, image, "--resume")
    _, stderr = running.communicate(timeout=600)
    return Ran(project, first, left, (running.returncode, stderr))


def test_a_container_that_is_killed(ran: Ran) -> None:
    code, stderr = ran.first
    assert code == 2
    log = ran.project.path / "out" / "pipeline.log"
    assert stderr.splitlines()[-1] == (
        "laurel: step train-reward failed without a reason: it was killed, or has a bug. "
        f"Its output is in {log}. With --resume, finished steps are not repeated."
    )
    assert ran.left == ["pipeline.log", "steps"]
    assert "finish: done (" in stderr


def test_resuming_it(ran: Ran) -> None:
    code, stderr = ran.again
    assert code == 0, stderr
    assert not any(f"{step}: begun" in stderr for step in ("collect", "caption", "annotate"))
    assert "train-agents extrinsic 0,1: done (" in stderr
    assert "KFP" not in stderr
    read_manifest(ran.project.path / "out" / "reports", "evaluate")
    assert not containers(ran.project)


def test_the_same_metrics_as_dvc_repro(ran: Ran, finished: Project) -> None:
    assert figures(ran.project.path / "out" / "reports") == figures(finished.output("evaluate"))


def figures(reports: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = read_json(reports / "metrics.json")
    return metrics


def test_files_are_the_callers(ran: Ran) -> None:
    owner = ran.project.path.stat()
    files = [ran.project.path / "out", *(ran.project.path / "out").rglob("*")]
    assert {(file.stat().st_uid, file.stat().st_gid) for file in files} == {(owner.st_uid, owner.st_gid)}


def test_ctrl_c_stops_the_containers(tmp_path: Path, image: str) -> None:
    """Of a pipeline whose environment is the user's own, in a file beside params.yaml."""
    project = Project.create(tmp_path / "p", {**UNTRACKED, **QUICK, "env.id": "corridor:Corridor-v0"})
    shutil.copy(REPOSITORY / "examples/corridor.py", project.path)
    running = begin(project, image)
    try:
        wait_for("train-agents", project)
        assert containers(project)
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=300)
    finally:
        running.kill()
        for left in containers(project).values():  # of a test that failed: they would train on
            docker("kill", left)
    assert running.returncode == 130
    assert "the containers of this run were stopped" in stderr
    assert "Traceback" not in stderr
    assert not containers(project)
    assert not (project.path / "out" / "reports").exists()


@pytest.mark.slow
def test_a_chat_model_is_asked_from_a_container(tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its key, and answers stored outside of the container: without a key, none is asked again."""
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-test")
    keys = []

    def choose(request: web.Request, _: Any) -> web.Response:
        keys.append(request.headers["Authorization"])
        return web.json_response(completion('{"analysis": "", "best_description": 1}'))

    with chat_server() as server:
        server.behave = choose
        monkeypatch.setenv("LAUREL_ALLOW_KEYS", f"OPENAI_API_KEY@{urlsplit(server.url).netloc}")
        model = {"model": "m", "base_url": server.url}
        chat = {"annotate.annotator": "openai", "annotate.openai": model}
        project = Project.create(
            tmp_path / "p",
            {**UNTRACKED, **QUICK, **chat, "agent.steps": 256, "annotate.language_model.both_orders": False},
        )
        running = begin(project, image)
        _, stderr = running.communicate(timeout=600)
        assert "annotate: done" in stderr, stderr
        asked = len(keys)
        monkeypatch.chdir(project.path)
        project.run("collect", "caption", "annotate")
    assert 0 < asked == len(keys)
    assert set(keys) == {"Bearer key-of-the-test"}


def test_an_image_that_is_not_there(tmp_path: Path, image: str) -> None:
    done = Project.create(tmp_path / "p", UNTRACKED).laurel(
        "pipeline", "run", "--runner", "docker", "--image", "laurel-python:never"
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "laurel: The image laurel-python:never does not exist: build it with `make image`, or name another with "
        "--image."
    )
