"""`laurel ui`: MLflow with the arms compared."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from pathlib import Path

import pytest

from laurel.cli.app import main
from laurel.cli.run import ui_of
from laurel.tracking import server
from laurel.tracking.server import make_tables
from ports import free_port
from tiny_project import Project


def test_ui_opens_the_comparison_of_arms(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    from laurel.cli.ui import AGENTS, VIEW_TAG

    project = finished.copy(tmp_path / "p")
    started: list[list[str]] = []
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(os, "execv", lambda path, arguments: started.append(arguments))
    port = free_port()
    assert main(["ui", "--params", str(project.path / "params.yaml"), "--port", str(port)]) == 0
    store = f"sqlite:///{project.path}/mlflow.db"
    assert started == [[sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", store, "--port", str(port)]]
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("laurel")
    assert experiment is not None
    link = capsys.readouterr().out.split()[-1]
    assert link.startswith(f"http://127.0.0.1:{port}/#/experiments/{experiment.experiment_id}/runs?")
    query = dict(part.split("=") for part in link.partition("?")[2].split("&"))
    assert (query["workflowType"], query["compareRunsMode"]) == ("machine_learning", "CHART")
    assert f"mlflow.sharedViewState.{query['viewStateShareKey']}" == VIEW_TAG
    view = json.loads(experiment.tags[VIEW_TAG])
    assert view["searchFilter"] == AGENTS
    grouped = [key["groupByData"] for key in view["groupBy"]["groupByKeys"]]
    assert grouped == ["arm", "env", "training"]
    shown = client.search_runs([experiment.experiment_id], AGENTS)
    assert all(run.data.tags.keys() >= set(grouped) for run in shown)
    assert {run.info.run_name for run in shown} == {
        f"{arm} seed {seed}" for arm in ("extrinsic", "preference") for seed in (0, 1)
    }


def test_ui_before_the_first_run_sets_up_the_database_as_a_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Path] = []
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(os, "execv", lambda *_: None)
    monkeypatch.setattr(server, "make_tables", lambda database: (made.append(database), make_tables(database)))
    port = free_port()
    assert main(["ui", "--params", str(tmp_path / "params.yaml"), "--port", str(port)]) == 0
    assert made == [tmp_path / "mlflow.db"]
    assert capsys.readouterr().out.split()[-1] == f"http://127.0.0.1:{port}/"


@pytest.mark.parametrize("params", ["params.yaml", "../my examples/actor.yaml"])
def test_the_command_after_a_run_opens_its_runs(params: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow's database is beside the params, not in the working directory."""
    shown: list[Path] = []
    monkeypatch.setattr("laurel.cli.ui._ui", lambda options: shown.append(options.params) or 0)
    assert main(shlex.split(ui_of(Path(params)))[1:]) == 0
    assert shown == [Path(params)]


def test_ui_says_that_its_port_is_taken(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(os, "execv", lambda path, arguments: pytest.fail("nothing is to be started"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["ui", "--params", str(project.path / "params.yaml"), "--port", str(port)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(
        f"laurel: Port {port} is in use by another program. Choose another one: laurel ui --port "
    )


def test_ui_of_a_server_names_it_without_its_password(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert main(["ui", "--params", str(project.path / "params.yaml")]) == 0
    said = capsys.readouterr()
    assert said.out.split()[-1] == "http://127.0.0.1:9/"
    assert said.err.startswith("laurel: the comparison view could not be created at http://127.0.0.1:9 (")
    assert "secret" not in said.out + said.err
