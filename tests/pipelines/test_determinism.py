"""Same params, same seed, same machine: the same bytes, whatever runs the stages and wherever."""

from pathlib import Path

import pytest

from tiny_project import STAGE, UNTRACKED, Project, lasting_content, read_json


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The chain of `finished`, in one process, in another folder, without MLflow."""
    project = Project.create(tmp_path_factory.mktemp("again") / "elsewhere", UNTRACKED)
    project.run()
    return project


@pytest.mark.parametrize("stage", list(STAGE))
def test_two_runs_write_the_same(finished: Project, again: Project, stage: str) -> None:
    first, second = lasting_content(finished.output(stage)), lasting_content(again.output(stage))
    assert list(first) == list(second)
    assert [name for name in first if first[name] != second[name]] == []


def test_the_comparison_sees_a_difference(finished: Project, again: Project, tmp_path: Path) -> None:
    copy = again.copy(tmp_path / "p")
    for file in ("reports/report.html", "reports/curves.csv", "data/agents/preference/seed-0/model.safetensors"):
        content = (copy.path / file).read_bytes()
        (copy.path / file).write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])
    state = copy.path / "data/agents/preference/seed-0/state.json"
    state.write_text(state.read_text().replace('"env_steps": 2048', '"env_steps": 2047'))
    for stage, changed in (
        ("evaluate", ["curves.csv", "report.html"]),
        ("train-agents", ["preference/seed-0/model.safetensors", "preference/seed-0/state.json"]),
    ):
        first, second = lasting_content(finished.output(stage)), lasting_content(copy.output(stage))
        assert sorted(name for name in first if first[name] != second[name]) == changed


def test_another_seed_is_another_run(finished: Project, tmp_path: Path) -> None:
    project = Project.create(tmp_path / "p", {**UNTRACKED, "seed": 1})
    project.run("collect", "caption")
    for stage in ("collect", "caption"):
        digests = [read_json(p.output(stage) / "manifest.json")["digest"] for p in (finished, project)]
        assert digests[0] != digests[1]
