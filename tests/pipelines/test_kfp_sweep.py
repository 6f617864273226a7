"""A sweep on KFP: a branch for each candidate, and the result of the same candidates tried on one machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import components

from laurel.cli.app import main
from laurel.data.manifest import read_manifest
from laurel.params import load_params
from laurel.pipelines.sweep import plan_sweep
from laurel.tuning.plan import Search
from laurel.tuning.trials import TRIALS, read_trials
from tiny_project import REPOSITORY, Project

SEARCH = ["--search", "shaping.intrinsic=log:0.01:1", "--search", "agent.ppo.hidden=[8],[16]", "--steps", "256"]


def tasks(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = dict(spec["root"]["dag"]["tasks"])
    for component in spec["components"].values():
        found |= component.get("dag", {}).get("tasks", {})
    return found


def test_each_candidate_is_a_branch(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    params = REPOSITORY / "params.yaml"
    assert main(["pipeline", "compile", "-o", str(file), "--params", str(params), "--sweep", "5", *SEARCH]) == 0
    assert components.load_component_from_file(str(file)).name == "laurel"
    steps = tasks(yaml.safe_load(file.read_text()))
    (loop,) = [task for name, task in steps.items() if name.startswith("for-loop")]
    branches = [json.loads(item) for item in json.loads(loop["parameterIterator"]["items"]["raw"])]
    plan = plan_sweep(load_params(params), Search(entries=SEARCH[1:4:2], trials=5, steps=256, sampler="sobol"))
    assert [branch["values"] for branch in branches] == list(plan.candidates)
    assert [branch["number"] for branch in branches] == [0, 1, 2, 3, 4]
    assert {"try-candidate", "pick-best", "train-reward", "finish"} <= set(steps)
    assert not {"train-agents", "merge-agents", "evaluate"} & set(steps)
    assert steps["try-candidate"]["cachingOptions"] == {"enableCache": True}
    assert set(steps["try-candidate"]["inputs"]["artifacts"]) == {"captions", "preferences", "model"}


def test_a_dry_run_counts_the_branches(capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--params", str(REPOSITORY / "params.yaml"), "--host", "http://localhost:8080", "--image", "r/laurel:1"]
    assert main(["pipeline", "submit", *place, "--sweep", "7", *SEARCH, "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "try-candidate  7 " in said
    assert "28,672 environment steps to train: 14 agents of 2,048 steps" in said


def test_a_dry_run_of_a_template_counts_its_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params, template = ["--params", str(REPOSITORY / "params.yaml")], str(tmp_path / "pipeline.yaml")
    compile_sweep = ["--image", "r/laurel:1", "--sweep", "7", *SEARCH, "--cluster"]
    assert main(["pipeline", "compile", "-o", template, *params, *compile_sweep]) == 0
    submit = ["pipeline", "submit", "--host", "http://localhost:8080", "--template", template, "--dry-run"]
    capsys.readouterr()
    assert main([*submit, *params, "--steps-per-second", "1"]) == 0
    said = capsys.readouterr().err
    assert "28,672 environment steps to train: 14 agents of 2,048 steps" in said
    assert "try-candidate at 1 environment steps/s per task: 8.0 machine hours; 1.1 hours if all 7 tasks" in said
    other = tmp_path / "params.yaml"
    other.write_text((REPOSITORY / "params.yaml").read_text().replace("[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", "[0, 1000]"))
    assert main([*submit, "--params", str(other)]) == 2
    assert "--seeds names 1000, which is one of agent.seeds" in capsys.readouterr().err


@pytest.mark.slow
def test_the_same_as_on_one_machine(finished: Project, tmp_path: Path) -> None:
    project = finished.copy(tmp_path / "p", {"tracking.enabled": False})
    done = project.laurel("pipeline", "run", "--sweep", "3", *SEARCH, "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "pick-best: done (" in done.stderr
    assert "cp " in done.stdout
    here = project.laurel("tune", "--trials", "3", *SEARCH, "--sampler", "sobol", "--no-prune")
    assert here.returncode == 0, here.stderr
    picked, tuned = project.path / "out" / "study", project.path / "data" / "tune"
    assert read_trials(picked / TRIALS) == read_trials(tuned / TRIALS)
    assert load_params(picked / "best.yaml").shaping == load_params(tuned / "best.yaml").shaping
    assert read_manifest(picked)["counts"] == read_manifest(tuned)["counts"]
    for name in ("history", "parameters"):
        assert (picked / "figures" / f"{name}.svg").read_bytes() == (tuned / "figures" / f"{name}.svg").read_bytes()
    (shown,) = (project.path / "out" / "steps").glob("*/pick-best/best")
    assert shown.read_text() == (picked / "best.yaml").read_text()
