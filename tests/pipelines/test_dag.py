"""dvc.yaml says the same as the code: what a stage reads, what it writes, what it depends on."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from laurel.stages.pipeline import PLACES, STAGES
from our_imports import imported, our_modules
from tiny_project import REPOSITORY, STAGE, TINY, Project, read_json

SRC = REPOSITORY / "src"
ALL_STAGES = [stage.name for stage in STAGES]
EVERYWHERE = {
    SRC / "laurel" / name
    for name in (
        "cli.py",
        "console.py",
        "device.py",
        "errors.py",
        "heap.py",
        "interrupt.py",
        "machine.py",
        "params",
        "permissions.py",
        "progress.py",
        "seeding.py",
        "textfile.py",
        "tracking.py",
        "tracking_agents.py",
        "workspace.py",
    )
}
"""Modules that hold for all stages: a change of them is a new version."""


@pytest.fixture(scope="module")
def dvc() -> dict[str, Any]:
    return yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())


def outputs(stage: dict[str, Any]) -> list[str]:
    return [next(iter(out)) if isinstance(out, dict) else out for out in stage["outs"]]


def test_the_stages_are_those_of_the_command_line(dvc: dict[str, Any]) -> None:
    assert list(dvc["stages"]) == ALL_STAGES
    for stage in STAGES:
        declared = dvc["stages"][stage.name]
        assert shlex.split(declared["cmd"]) == ["laurel", stage.name], "params.yaml holds everything else"
        assert outputs(declared) == [stage.output]
        assert [dep for dep in declared["deps"] if not dep.startswith("src/")] == [PLACES[n] for n in stage.inputs]


def test_every_input_is_an_output(dvc: dict[str, Any]) -> None:
    written: list[str] = []
    for stage in dvc["stages"].values():
        assert all(dep in written for dep in stage["deps"] if not dep.startswith("src/")), "in the order of the chain"
        written += outputs(stage)
    assert set(PLACES.values()) == set(written) - {"reports"}


@pytest.mark.parametrize("name", ALL_STAGES)
def test_params_are_those_of_the_manifest(dvc: dict[str, Any], finished: Project, name: str) -> None:
    used = read_json(finished.output(name) / "manifest.json")["params"]
    assert sorted(dvc["stages"][name]["params"]) == sorted(used)
    assert set(used) <= set(TINY) - {"tracking", "pipeline"}


def reached(file: Path) -> set[Path]:
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        this = waiting.pop()
        if this not in found:
            found.add(this)
            waiting += (our_modules()[name] for name in imported(this))
    return found


@pytest.mark.parametrize("name", ALL_STAGES)
def test_code_that_a_stage_runs_is_a_dependency(dvc: dict[str, Any], name: str) -> None:
    """Of the stage itself or of one before it, whose new output reruns this one."""
    upto = ALL_STAGES[: ALL_STAGES.index(name) + 1]
    declared = [REPOSITORY / dep for stage in upto for dep in dvc["stages"][stage]["deps"]]
    assert all(path.exists() for path in declared if SRC in path.parents)
    stage_file = SRC / STAGE[name].module.replace(".", "/")
    needed = {
        file
        for file in reached(stage_file.with_suffix(".py"))
        if file.name != "__init__.py" and not {file, file.parent} & EVERYWHERE
    }
    assert stage_file.with_suffix(".py") in needed
    assert len(needed) > 8, "imports are found"
    missing = [file for file in needed if not any(path in (file, *file.parents) for path in declared)]
    assert missing == []


def test_plots_and_metrics_are_there(dvc: dict[str, Any], finished: Project) -> None:
    header = (finished.path / "reports/curves.csv").read_text().splitlines()[0].split(",")
    for plot in dvc["plots"]:
        ((_, definition),) = plot.items()
        assert definition["x"] in header
        for file, column in definition["y"].items():
            assert file == "reports/curves.csv"
            assert column in header
        template = json.loads((REPOSITORY / ".dvc/plots" / f"{definition['template']}.json").read_text())
        assert template["encoding"]["color"]["field"] in header
    assert dvc["metrics"] == ["reports/metrics.json"]
