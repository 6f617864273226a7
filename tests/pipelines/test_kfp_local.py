"""The pipeline run by KFP's process runner, and its stages called one after the other: the same result."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from small_project import SMALL, lasting

from laurel.cli.app import main
from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.data.replacing import lock_of
from laurel.errors import DataError
from laurel.pipelines import local
from laurel.tracking.pipeline import open_pipeline_run
from tiny_project import TINY, UNTRACKED, Project


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Project:
    """Make a project that is only looked at; the processes of one test run share it."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    done = root / f"{name}.done"
    with FileLock(root / f"{name}.lock"):
        if not done.exists():
            make(root / name)
            done.touch()
    return Project(root / name)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """`laurel pipeline run` in a folder of its own."""

    def make(path: Path) -> None:
        project = Project.create(path, UNTRACKED)
        done = project.laurel("pipeline", "run", "--output", "out")
        assert done.returncode == 0, done.stderr
        (path / "stdout").write_text(done.stdout)
        (path / "stderr").write_text(done.stderr)

    return made_once(tmp_path_factory, "kfp-ran", make)


DIVIDED = {
    **SMALL,
    **{"collect.parts": 2, "collect.shard_steps": 100},
    **{"pipeline.annotate_shards": 3, "pipeline.seeds_per_step": 1},
}
"""Collection, pairs and seeds on several steps each."""


def figures(reports: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = read_json(reports / "metrics.json")
    return metrics


def test_the_same_metrics_as_dvc_repro(finished: Project, ran: Project) -> None:
    assert figures(ran.path / "out" / "reports") == figures(finished.output("evaluate"))


def test_the_same_agents(finished: Project, ran: Project, tmp_path: Path) -> None:
    (artifact,) = (ran.path / "out" / "steps").glob("*/merge-agents/agents")
    assert sorted(file.name for file in artifact.iterdir()) == [".run.json", "files.zip", "manifest.json"], (
        "few large files"
    )
    merged = shutil.copytree(artifact, tmp_path / "agents")
    shutil.unpack_archive(merged / "files.zip", merged)
    (merged / "files.zip").unlink()
    whole = finished.output("train-agents")
    assert lasting(merged).keys() == lasting(whole).keys()
    assert read_manifest(merged)["params"] == read_manifest(whole)["params"]
    weights = sorted(file.relative_to(whole) for file in whole.rglob("*.safetensors"))
    assert weights
    for file in weights:
        assert (merged / file).read_bytes() == (whole / file).read_bytes()


def test_the_output_of_a_local_run(ran: Project) -> None:
    out = ran.path / "out"
    stdout = (ran.path / "stdout").read_text()
    assert stdout.startswith("arm ")
    assert stdout.endswith(f"report:  {out}/reports/report.html\nmetrics: {out}/reports/metrics.json\n")
    stderr = (ran.path / "stderr").read_text()
    assert "train-agents preference 0,1: done (" in stderr
    assert "KFP" not in stderr
    assert "KFP Executor" in (out / "pipeline.log").read_text()
    read_manifest(out / "reports", "evaluate")


def test_the_inputs_and_outputs_that_kfp_records(ran: Project) -> None:
    (evaluation,) = (ran.path / "out" / "steps").glob("*/evaluate")
    reports = evaluation / "reports"
    assert (evaluation / "report").read_bytes() == (reports / "report.html").read_bytes()
    assert (evaluation / "metrics").read_bytes() == (reports / "metrics.json").read_bytes()
    assert (evaluation / "table").read_text().startswith("| arm |")
    shown = read_json(evaluation / "executor_output.json")["artifacts"]["metrics"]["artifacts"][0]["metadata"]
    arms = read_json(reports / "metrics.json")["arms"]
    assert shown["preference.return"] == arms["preference"]["return"]["mean"]
    assert {name.partition(".")[0] for name in shown} == set(arms)


def test_a_step_that_fails(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    project = Project.create(
        tmp_path / "p",
        {
            **SMALL,
            "annotate.scripted": {"abstain_rate": 1.0},
            "annotate.gates.max_abstain_rate": None,  # lost, it would be the default again, which refuses otherwise
            "tracking.enabled": True,
        },
    )
    done = project.laurel("pipeline", "run", "--output", "out")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("laurel: step annotate failed: None of ")
    assert "Traceback" not in done.stderr
    assert "Traceback" not in (tmp_path / "p" / "out" / "pipeline.log").read_text()
    (refused,) = [path for path in (tmp_path / "p" / "out").rglob("preferences*") if path.is_dir()]
    assert refused.name == "preferences-refused"
    assert f"The labels are kept: laurel show {refused} " in last
    assert not (tmp_path / "p" / "out" / "reports").exists()
    assert "train-reward" not in done.stderr
    (logged,) = (tmp_path / "p").rglob("mlflow.db")  # as `laurel caption` does: beside params.yaml
    assert logged.parent == tmp_path / "p"
    (captions,) = (tmp_path / "p").rglob("captions")
    assert read_manifest(captions)["mlflow_run_id"]
    client = MlflowClient(f"sqlite:///{logged}")
    (experiment,) = client.search_experiments(filter_string="name = 'laurel'")
    (run,) = client.search_runs([experiment.experiment_id], "tags.stage = 'pipeline'")
    assert run.info.status == "FAILED"
    stages = client.search_runs([experiment.experiment_id], f"tags.mlflow.parentRunId = '{run.info.run_id}'")
    assert {run.data.tags["stage"]: run.info.status for run in stages} == {
        "collect": "FINISHED",
        "caption": "FINISHED",
        "annotate": "FAILED",
    }

    project.change({"tracking.enabled": False})
    again = project.laurel("pipeline", "run", "--output", "out", "--resume", "--debug")
    assert again.returncode == 1
    assert "PipelineError" in again.stderr
    assert "KFP Executor" in again.stderr


ENDLESS = {"rewards.preference.max_epochs": 10**6, "rewards.preference.patience": 10**6}
"""So that a step is not done before it is killed."""


def test_a_step_that_is_killed(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "p", {**SMALL, **ENDLESS})
    running = project.start("pipeline", "run", "--output", "out")
    try:
        victim = wait_for(project, "train_reward")
        os.kill(victim, signal.SIGKILL)
        _, stderr = running.communicate(timeout=300)
    finally:
        end(running)
    assert running.returncode == 2
    last = stderr.splitlines()[-1]
    assert last.startswith("laurel: step train-reward failed without a reason: it was killed, or has a bug")
    assert last.endswith(f"{tmp_path / 'p' / 'out' / 'pipeline.log'}. With --resume, finished steps are not repeated.")
    (steps,) = (tmp_path / "p" / "out" / "steps").glob("laurel-*")
    assert (steps / "annotate" / "preferences" / "manifest.json").exists()
    assert not (steps / "train-reward" / "model").exists()
    assert (steps / "finish").is_dir()
    assert "finish: done (" in stderr
    assert not (tmp_path / "p" / "out" / "reports").exists()


def test_a_stopped_run_ends_its_steps(tmp_path: Path) -> None:
    """KFP would wait for steps that run in parallel, and then start the queued ones."""
    project = Project.create(tmp_path / "p", {**SMALL, "agent.steps": 10**9})
    running = project.start("pipeline", "run", "--output", "out")
    try:
        wait_for(project, "train_agents")
        running.terminate()
        _, stderr = running.communicate(timeout=100)
    finally:
        end(running)
    assert running.returncode == 130
    assert stderr.splitlines()[-1] == "laurel: stopped. With --resume, finished steps are not repeated."
    assert not [command for command in project.processes().values() if "kfp.dsl.executor_main" in command]


@pytest.mark.slow
def test_divided_work_of_killed_steps_gives_the_same_result(tmp_path: Path) -> None:
    """A killed step is retried; where it fails for good, the run is continued later."""
    project = Project.create(tmp_path / "p", {**DIVIDED, **ENDLESS})
    running = project.start("pipeline", "run", "--output", "out", "--retries", "1")
    try:
        with contextlib.suppress(ProcessLookupError):  # done, where this process was held up
            os.kill(wait_for(project, "caption"), signal.SIGKILL)  # the second attempt does it
        first = wait_for(project, "train_reward")
        os.kill(first, signal.SIGKILL)
        os.kill(wait_for(project, "train_reward", after=first), signal.SIGKILL)
        _, stderr = running.communicate(timeout=300)
    finally:
        end(running)
    assert running.returncode == 2
    assert "caption: done" in stderr, "killed, and yet done: by another attempt"
    assert stderr.splitlines()[-1].startswith("laurel: step train-reward failed")

    project.change(
        {
            "rewards.preference.max_epochs": SMALL["rewards.preference.max_epochs"],
            "rewards.preference.patience": TINY["rewards"]["preference"]["patience"],
        }
    )
    done = project.laurel("pipeline", "run", "--output", "out", "--resume")
    assert done.returncode == 0, done.stderr
    assert "train-reward: done" in done.stderr
    assert not any(f"{step}: begun" in done.stderr for step in ("collect", "caption", "annotate"))
    direct = Project.create(tmp_path / "direct", DIVIDED)
    direct.run()
    assert figures(tmp_path / "p" / "out" / "reports") == figures(direct.output("evaluate"))
    steps = tmp_path / "p" / "out" / "steps"
    assert len({path.name for path in steps.glob("*/for-loop-*")}) == 2 + 3 + 4
    for place, stage in (("merge-trajectories/trajectories", "collect"), ("merge-preferences/preferences", "annotate")):
        (merged,) = steps.glob(f"*/{place}")
        assert lasting(merged) == lasting(direct.output(stage))


def test_the_run_in_mlflow_of_a_stopped_pipeline_ends(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KFP's exit handler does not run after Ctrl-C."""
    from mlflow import MlflowClient

    params = Project.create(tmp_path / "p", {**SMALL, "tracking.enabled": True}).params
    monkeypatch.setattr(local, "check_run", lambda _: None)

    def stopped(**_: Any) -> None:
        (tmp_path / "out" / "steps" / "laurel-1").mkdir()
        open_pipeline_run(params.env, params.tracking, "laurel-1", "abc")
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "make_pipeline", lambda *_, **__: stopped)
    with pytest.raises(KeyboardInterrupt):
        local.run_locally(params, tmp_path / "out")
    client = MlflowClient(database)
    (experiment,) = client.search_experiments(filter_string="name = 'laurel'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.data.tags["pipeline_run"]) == ("KILLED", "laurel-1")


def test_the_run_in_mlflow_of_a_killed_pipeline_ends_once_the_next_begins(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    params = Project.create(tmp_path / "p", {**SMALL, "tracking.enabled": True}).params
    monkeypatch.setattr(local, "check_run", lambda _: None)

    def killed(**_: Any) -> None:
        (tmp_path / "out" / "steps" / "laurel-1").mkdir()
        open_pipeline_run(params.env, params.tracking, "laurel-1", "abc")
        raise SystemExit  # nothing handles it, as nothing handles a kill

    def fails(**_: Any) -> None:
        raise RuntimeError

    for pipeline, error in ((killed, SystemExit), (fails, local.PipelineError)):
        monkeypatch.setattr(local, "make_pipeline", lambda *_, pipeline=pipeline, **__: pipeline)
        with pytest.raises(error):
            local.run_locally(params, tmp_path / "out")
        client = MlflowClient(database)
        (experiment,) = client.search_experiments(filter_string="name = 'laurel'")
        (run,) = client.search_runs([experiment.experiment_id])
        assert run.info.status == ("RUNNING" if pipeline is killed else "KILLED")
    assert run.info.start_time <= run.info.end_time


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = Project.create(tmp_path / "p", SMALL).params
    monkeypatch.setattr(local, "check_run", lambda _: None)
    with (
        FileLock(lock_of(tmp_path / "out")),
        pytest.raises(DataError, match=r"out: another process is writing it\. Wait for it to end, or choose another"),
    ):
        local.run_locally(params, tmp_path / "out")


def test_a_changed_file_of_the_parameters_is_no_code_of_an_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KFP's cache takes a step of an earlier run with the same arguments, and they only name the file."""
    params = Project.create(tmp_path, {**SMALL, "annotate.gold": "gold.jsonl"}).params
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "check_run", lambda _: None)
    versions = []

    def stopped(code_version: str, **_: Any) -> None:
        versions.append(code_version)
        raise RuntimeError

    monkeypatch.setattr(local, "make_pipeline", lambda *_, **__: stopped)
    for content in ("one", "one", "two"):
        Path("gold.jsonl").write_text(content)
        with pytest.raises(local.PipelineError):
            local.run_locally(params, tmp_path / "out", resume=True)
    assert versions[0] == versions[1] != versions[2]


def test_a_run_has_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KFP makes one for a workspace, unless it is told that there is none; a killed run would leave it."""
    params = Project.create(tmp_path, SMALL).params
    monkeypatch.setattr(local, "check_run", lambda _: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()

    def killed(**_: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(local, "make_pipeline", lambda *_, **__: killed)
    with pytest.raises(SystemExit):
        local.run_locally(params, tmp_path / "out")
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes neither the log nor the folder of the next step; what fails there names neither a step nor a cause."""
    params = Project.create(tmp_path, SMALL).params
    monkeypatch.setattr(local, "check_run", lambda _: None)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "pipeline.log").symlink_to("/dev/full")

    def runs_out_of_space(**_: Any) -> None:
        sys.stdout.write("laurel step collect: begun\n")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "steps/laurel-1/caption")

    monkeypatch.setattr(local, "make_pipeline", lambda *_, **__: runs_out_of_space)
    with pytest.raises(DataError, match=r"out: cannot be written \(No space left on device\)\. With --resume"):
        local.run_locally(params, tmp_path / "out")


def end(running: subprocess.Popen[str]) -> None:
    """End the run of a failed test, and its step, which would never end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def wait_for(project: Project, function: str, after: int | None = None) -> int:
    """Return the process of a component, once it has begun its work; that of another attempt than one seen before."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for pid, command in project.processes().items():
            if pid != after and "kfp.dsl.executor_main" in command and command[-2] == function:
                return pid
        time.sleep(0.02)
    raise AssertionError(f"{function} has not begun")


def test_agents_that_cannot_be_trained_are_refused_before_the_first_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Project.create(tmp_path / "p", {**SMALL, "agent.ppo": {"network": "cnn"}})
    arguments = ["pipeline", "run", "--params", str(project.path / "params.yaml"), "--output", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(
        "laurel: agent.ppo.network is cnn, but the features of CartPole-v1 contain"
    )
    assert not (tmp_path / "out").exists()


def test_foreign_reports_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = Project.create(tmp_path / "p", SMALL)
    (tmp_path / "out" / "reports").mkdir(parents=True)
    (tmp_path / "out" / "reports" / "thesis.tex").write_text("")
    arguments = ["pipeline", "run", "--params", str(project.path / "params.yaml"), "--output", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert "out/reports: holds files that Laurel did not write" in capsys.readouterr().err
    assert json.dumps([file.name for file in (tmp_path / "out").iterdir()]) == '["reports"]'


def test_without_kfp(tmp_path: Path, without: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    project = Project.create(tmp_path / "p", SMALL)
    without("kfp")
    params = ["--params", str(project.path / "params.yaml")]
    for action in (["compile", "-o", str(tmp_path / "p.yaml")], ["run", "--output", str(tmp_path / "out")]):
        assert main(["pipeline", *action, *params]) == 2
        assert capsys.readouterr().err.endswith("not installed: pip install 'laurel-rl[cloud]'\n")
