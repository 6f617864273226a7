"""All stages of a project: those run that a change touches, and Ctrl-C and failures end the run as they should."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from laurel.cli.app import main
from laurel.data.json_file import write_json
from laurel.data.manifest import MANIFEST
from laurel.errors import StageError
from laurel.stages import project as project_module
from laurel.stages.pipeline import STAGE, STAGES, Stage
from laurel.stages.project import note, run_project, up_to_date
from tiny_project import UNTRACKED, Project, lasting_content, read_json


@pytest.fixture
def ran(finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Project, list[str]]:
    """Return a copy of a finished project, whose outputs stand in for what stages would write, and what was run."""
    started: list[str] = []
    project = finished.copy(tmp_path / "copy")

    def stand_in(stage: Stage, *_: object) -> None:
        started.append(stage.name)
        note(stage, project.params, project.inputs(stage.name), project.output(stage.name))

    monkeypatch.setattr(project_module, "_run", stand_in)
    return project, started


def test_stages_run_that_a_change_touches(ran: tuple[Project, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    project, started = ran
    params = project.path / "params.yaml"

    def run(*, force: bool = False) -> list[str]:
        started.clear()
        assert run_project(params, project.path, force=force) == started
        return started

    everything = list(STAGE)
    assert run() == [], "DVC has run all stages"
    (project.path / project_module.DONE).unlink()
    capsys.readouterr()
    assert run() == everything, "it is not known what the outputs were made from"
    said = capsys.readouterr().err
    assert said.startswith(f"report: {(project.output('evaluate') / 'report.html').as_uri()} once")
    assert re.findall(r"stage (\d) of 6: (\S+); this and the following stages took", said) == [
        (str(number), name) for number, name in enumerate(everything, start=1)
    ]
    assert run() == []
    project.change({"tracking.enabled": False, "agent.workers": 1})
    assert run() == [], "neither makes a difference"
    project.change({"agent.ppo.gamma": 0.5})
    assert run() == everything[4:], "rewards depend on the agents' seeds alone"
    project.change({"agent.seeds": [0, 1, 2]})
    assert run() == everything[3:]
    project.change({"caption.with_action": True})
    assert run() == everything[1:]
    manifest = project.output("annotate") / MANIFEST
    write_json(manifest, {**read_json(manifest), "digest": "other labels"})
    assert run() == everything[2:], "the labels are others, and so is what was made from them"
    labels = project.path / "labels.csv"
    labels.write_text("mine")
    project.change({"annotate.gold": str(labels)})
    run()
    assert run() == []
    labels.write_text("other labels")
    assert run()[0] == "annotate", "a file of the user's own is another"
    (project.output("evaluate") / MANIFEST).unlink()
    assert run() == ["evaluate"]
    assert run(force=True) == everything


def test_changed_files(
    ran: tuple[Project, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Swapped outputs, and files of the user's own beside params.yaml; what only looks written is as it was."""
    project, started = ran
    params = project.path / "params.yaml"
    monkeypatch.chdir(project.path)
    prompt, adapter = project.path / "mine.jinja", project.path / "adapter"
    prompt.write_text("one")
    adapter.mkdir()
    (adapter / "weights").write_text("one")
    answers = project.path / "responses" / "responses.db"
    answers.parent.mkdir()
    sentence = "Good behaviour is what a careful person would do. " * 8  # longer than a file's name can be
    project.change({"annotate.language_model": {"prompt": prompt.name, "goal": sentence}})
    project.change({"annotate.huggingface": {"adapter": "adapter"}})
    package = project.path / "own_lake"
    package.mkdir()
    (package / "__init__.py").write_text("import gymnasium as gym\nimport minigrid\n")
    project.change({"env.id": "own_lake:MiniGrid-Empty-5x5-v0"})

    def run() -> list[str]:
        started.clear()
        run_project(params, project.path)
        return started

    everything = list(STAGE)
    run()
    assert run() == []
    answers.write_text("an answer that train-reward asked for")
    shard = next((project.output("collect")).glob("*.parquet"))
    shard.touch()
    assert run() == [], "the same content"
    weights = next(project.output("train-agents").rglob("model.safetensors"))
    content = weights.read_bytes()
    weights.write_bytes(bytes(len(content)))
    capsys.readouterr()
    assert run() == ["train-agents"]
    assert (
        "data/agents: was changed since laurel train-agents wrote it, so that stage is run again."
        in capsys.readouterr().err
    )
    weights.write_bytes(content)
    prompt.write_text("another")
    assert run() == everything[2:]
    (adapter / "weights").write_text("another")
    assert run() == everything[2:]
    (package / "__init__.py").write_text("import minigrid\n")
    assert run() == everything
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "__init__.cpython-312.pyc").write_bytes(b"what another Python compiled")
    assert run() == [], "the same code"
    (project.path / project_module.DONE).write_text("{")
    assert run() == everything
    assert run() == []
    (project.path / project_module.DONE).unlink()
    capsys.readouterr()
    assert run() == everything
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "run again" in line]
    assert told.startswith(f"{project.output('collect')}: there is no .laurel.json that says what it was made from")


def test_stages_that_were_run_by_hand_are_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project.create(tmp_path / "one", {**UNTRACKED, "collect.steps": 300})
    monkeypatch.chdir(project.path)
    assert [main([*words]) for words in (["collect"], ["caption"], ["caption", "--output", "elsewhere"])] == [0, 0, 0]
    assert up_to_date(STAGE["collect"], project.params, Path())
    assert up_to_date(STAGE["caption"], project.params, Path())
    project.change({"caption.with_action": True})
    assert not up_to_date(STAGE["caption"], project.params, Path())


def test_a_stage_that_fails_ends_the_run(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "one", {**UNTRACKED, "collect.policies": [{"kind": "checkpoint", "path": "x"}]})
    with pytest.raises(StageError, match=r"^collect failed\. Finished work is kept") as failed:
        run_project(project.path / "params.yaml", project.path)
    assert failed.value.reason.startswith("x: no such directory; a trained agent is needed"), "as printed"
    assert not up_to_date(STAGE["collect"], project.params, project.path)


def collecting(path: Path) -> tuple[Project, subprocess.Popen[str]]:
    """Start a run whose first stage takes long."""
    project = Project.create(path / "one", {**UNTRACKED, "collect.steps": 50_000_000})
    process = project.start("run")
    deadline = time.monotonic() + 120
    while not any("collect" in command for command in project.processes().values()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    time.sleep(1)
    return project, process


def test_a_run_that_is_killed_leaves_no_stage(tmp_path: Path) -> None:
    """Otherwise the stage would continue, and pay, without its parent."""
    project, process = collecting(tmp_path)
    process.kill()
    process.communicate(timeout=120)
    project.wait_until_left()


def test_ctrl_c_reaches_the_stage_once(tmp_path: Path) -> None:
    """The stage has a process group of its own, so that a terminal's Ctrl-C does not reach it twice."""
    project, process = collecting(tmp_path)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.count("laurel: stopped.") == 1, "not by the stage, too"
    assert "Traceback" not in said
    project.wait_until_left()
    assert not project.output("collect").exists()


@pytest.mark.slow
def test_a_run_gives_what_its_stages_give(finished: Project, tmp_path: Path) -> None:
    project = Project.create(tmp_path / "one", UNTRACKED)
    done = project.laurel("run")
    assert done.returncode == 0, done.stderr
    assert "preference" in done.stdout
    assert "report:  file://" in done.stdout
    stage: Stage
    for stage in STAGES[:-1]:  # the report contains the date
        assert lasting_content(project.output(stage.name)) == lasting_content(finished.output(stage.name))
    again = project.laurel("run")
    assert again.stderr.count("up to date") == len(STAGES)
    assert again.stdout == done.stdout
