"""Ctrl-C on the command line: quiet, immediate, and no half-written files."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tiny_project import UNTRACKED, Project


def interrupt(project: Project, stage: str, when: Callable[[], bool], after: float) -> tuple[int, str]:
    """Press Ctrl-C some time after a condition holds; return the exit code and the output."""
    process = project.start(stage)
    deadline = time.monotonic() + 180
    while not when() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(after)
    assert process.poll() is None, process.communicate()
    for _ in range(12):
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
        try:
            _, said = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            continue  # a library has swallowed it in the midst of its import: press again
        code = 130 if process.returncode == -signal.SIGINT else process.returncode  # a shell makes them the same
        return code, said
    os.killpg(process.pid, signal.SIGKILL)
    return pytest.fail(f"Ctrl-C does not end laurel {stage}: {process.communicate()}")


def test_ctrl_c_in_collect(project: Project) -> None:
    project.change({"collect.steps": 10**8})
    data = project.path / "data"
    code, said = interrupt(project, "collect", lambda: any(data.glob(".*.partial")), 0.3)
    assert code == 130
    assert said.endswith("laurel: stopped. Run the same command again to resume.\n")
    assert [path.name for path in data.iterdir()] == [".trajectories.lock"]


def test_ctrl_c_while_packages_are_imported(project: Project) -> None:
    """A slow import, simulated by a module in the working directory."""
    (project.path / "pydantic.py").write_text("import pathlib, time; pathlib.Path('begun').touch(); time.sleep(600)")
    code, said = interrupt(project, "collect", lambda: (project.path / "begun").exists(), 0.0)
    assert (code, said) == (130, "laurel: stopped. Run the same command again to resume.\n")
    assert not (project.path / "data").exists()


def test_ctrl_c_in_train_agents(project: Project, finished: Project) -> None:
    finished.copy(project.path, {**UNTRACKED, "agent.steps": 10**6}, without=["train-agents"])
    data = project.path / "data"
    code, said = interrupt(
        project, "train-agents", lambda: any(data.glob(".agents.*.partial/*/seed-*/state.json")), 0.1
    )
    assert code == 130
    assert "Traceback" not in said
    assert said.endswith("laurel: stopped. Run the same command again to resume.\n")
    project.wait_until_left()
    assert not project.output("train-agents").exists()


def test_ctrl_c_while_workers_start(project: Project, finished: Project) -> None:
    finished.copy(project.path, {**UNTRACKED, "agent.steps": 10**6}, without=["train-agents"])
    code, said = interrupt(project, "train-agents", lambda: any((project.path / "data").glob(".agents.*.partial")), 1.0)
    assert code == 130
    assert said.endswith("laurel: stopped. Run the same command again to resume.\n")
