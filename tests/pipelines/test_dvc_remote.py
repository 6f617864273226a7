"""A run's data in a remote: pushed here, pulled in a fresh clone, without rerunning any stage."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tiny_project import Project, lasting_content


def git(project: Project, *command: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *command], cwd=project.path, env=project.environment(), check=True)


def test_a_clone_pulls_the_data_and_runs_no_stage(finished: Project, tmp_path: Path) -> None:
    project = finished.copy(tmp_path / "p")
    remote = tmp_path / "remote"
    project.dvc("remote", "add", "-d", "storage", str(remote))
    assert "files pushed" in project.dvc("push")
    git(project, "add", "dvc.lock", ".dvc/config")
    git(project, "commit", "--quiet", "--message", "a run")

    git(project, "clone", "--quiet", str(project.path), str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    assert not (clone.path / "data").exists()
    clone.dvc("pull")
    for stage in ("collect", "caption", "annotate", "train-reward", "train-agents", "evaluate"):
        assert lasting_content(clone.output(stage)) == lasting_content(finished.output(stage))
    assert "Running stage" not in clone.dvc("repro")
    assert "up to date" in clone.dvc("status")
