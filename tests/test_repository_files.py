"""What hosts and tools read of a repository: valid, and in step with the rest."""

from __future__ import annotations

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
