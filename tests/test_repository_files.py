"""What hosts and tools read of a repository: valid, and in step with the rest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

import laurel
from tiny_project import REPOSITORY


def read(name: str) -> dict:
    return yaml.safe_load((REPOSITORY / name).read_text())


def test_the_workflow_runs_what_ci_runs() -> None:
    (job,) = read(".github/workflows/ci.yml")["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (REPOSITORY / ".ci/run").stat().st_mode & 0o111


def test_the_citation_is_of_this_version() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == laurel.__version__
    assert citation["license"] == "Apache-2.0"
    assert laurel.__version__ in (REPOSITORY / "CHANGELOG.md").read_text()


def test_hooks_run_what_lint_runs() -> None:
    hooks = [hook["entry"] for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    lint = (REPOSITORY / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    for command in ("ruff check", "ruff format", "mypy"):
        assert command in lint
        assert any(f".venv/bin/{command}" in entry for entry in hooks)


def test_issue_forms_are_complete() -> None:
    for name in ("bug", "idea"):
        form = read(f".github/ISSUE_TEMPLATE/{name}.yml")
        assert form.keys() >= {"name", "description", "body"}
        assert all(part["attributes"]["label"] for part in form["body"])


@pytest.mark.parametrize(
    ("committed", "is_clean"), [("schema: '2.0'\nstages: {}\n", True), ("stages: {a: {}}\n", False)]
)
def test_a_run_leaves_a_clean_tree_unless_a_run_is_committed(tmp_path: Path, committed: str, is_clean: bool) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    lock = tmp_path / "dvc.lock"
    lock.write_text(committed)
    git("init", "--quiet")
    git("add", "dvc.lock")
    git("commit", "--quiet", "--message", "empty")
    recipe = (REPOSITORY / "Makefile").read_text().partition("\nrun:")[2].partition("\n\n")[0]
    (line,) = [line.strip(" \t@") for line in recipe.splitlines() if "dvc.lock" in line]
    subprocess.run(line, shell=True, cwd=tmp_path, check=True)
    lock.write_text("stages: {collect: {}}\n")
    assert (git("status", "--porcelain") == "") == is_clean


def test_the_empty_lock_of_the_repository_is_what_a_run_expects() -> None:
    said = subprocess.run(["git", "show", "HEAD:dvc.lock"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    assert yaml.safe_load(said.stdout)["stages"] == {}, "what is committed; a run writes into the file"
