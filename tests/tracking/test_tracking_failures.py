"""When MLflow cannot be reached, or fails midway: a note, and files that are complete."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from laurel.data.directory import Output, output_directory
from laurel.data.manifest import RUN, read_manifest
from laurel.errors import RefusedLabelsError
from laurel.stages import annotate
from laurel.stages.pipeline import STAGE
from laurel.stages.track_late import track_late
from laurel.tracking import server
from laurel.tracking.run import Run
from laurel.tracking.tracker import Tracker
from tracked import URI, make_params, opened_and_closed


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of the test's own, where MLflow writes by default."""
    monkeypatch.chdir(tmp_path)


def check_note(output_notes: list[str], where: str) -> str:
    (note,) = output_notes
    assert note.startswith(f"collect: nothing or only part was logged to MLflow at {where} (")
    assert note.endswith(").")
    assert "\n" not in note
    return note


@pytest.mark.parametrize("user", ["", "user:secret@", "secret@", "me:se@secret@"])
def test_a_server_that_is_not_there_costs_a_note(
    user: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(URI, f"http://{user}127.0.0.1:9")
    started = time.monotonic()
    with caplog.at_level(logging.WARNING):
        STAGE["collect"].run(make_params(), output=tmp_path / "trajectories")
    assert time.monotonic() - started < 120
    manifest = read_manifest(tmp_path / "trajectories", "collect")
    note = check_note(manifest["run_notes"], "http://127.0.0.1:9")
    assert "Connection refused" in note
    assert manifest["mlflow_run_id"] is None
    assert "The stage's files do not depend on it." in caplog.text
    said = capfd.readouterr()
    files = "".join((tmp_path / "trajectories" / name).read_text() for name in ("manifest.json", RUN))
    assert not any(
        secret in text for secret in ("secret", "user:") for text in (caplog.text, said.out, said.err, files)
    )


def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts connections without answering: two attempts, which take half a minute by default."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(URI, f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
        monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
        output = Output(tmp_path)
        assert not opened_and_closed(make_params(), output)
        assert connections(silent) == 2
    assert "timed out" in check_note(output.run_notes, os.environ[URI])
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT")
    monkeypatch.setenv(URI, f"sqlite:///{tmp_path}/none/x.db")
    monkeypatch.setattr(server, "_experiment", lambda *_: "0")
    server.connect("laurel")
    tries = int(os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]) + 1
    assert tries * int(os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]) <= 25


def connections(server: socket.socket) -> int:
    """Count those that were made to a server which has accepted none so far."""
    server.setblocking(False)
    count = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count


class Flaky(BaseHTTPRequestHandler):
    """A tracking server that takes everything but artifacts."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer()

    def do_PUT(self) -> None:
        self.send_error(403, "no artifacts here")

    def _answer(self) -> None:
        """Give what every endpoint needs, at once."""
        experiment = {"experiment_id": "1", "name": "laurel", "lifecycle_stage": "active"}
        info = {
            "run_id": "0123",
            "experiment_id": "1",
            "status": "RUNNING",
            "artifact_uri": "mlflow-artifacts:/1/0123/artifacts",
        }
        body = json.dumps({"experiment": experiment, "run": {"info": info, "data": {}}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def flaky() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Flaky)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("breaks", [True, False])
def test_a_server_that_refuses_artifacts_midway(
    breaks: bool, flaky: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(URI, flaky.replace("//", "//user:secret@"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "file").write_text("content")
    after = []
    with (
        output_directory(tmp_path / "out", stage="collect", params={}) as out,
        Tracker(make_params(), "collect", {}, out).stage_run() as run,
    ):
        assert run is not None
        run.log_metrics({"value": 1.0})
        if breaks:
            run.log_directory(tmp_path / "model", "model")
        after.append("reached")
    notes = read_manifest(tmp_path / "out")["run_notes"]
    if breaks:
        assert not after
        assert "403" in check_note(notes, flaky)
    else:
        assert (after, notes) == (["reached"], [])
    said = capfd.readouterr()
    assert said.out == "", "standard output is for results"
    assert "secret" not in said.err + str(notes)


def test_a_run_whose_server_went_away_is_ended_when_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else MLflow would show it as running forever, beside the one with the figures."""
    monkeypatch.setenv(URI, f"sqlite:///{tmp_path}/mlflow.db")
    params, place = make_params(), tmp_path / "trajectories"

    def fail(*_: Any, **__: Any) -> None:
        raise MlflowException("gone")

    with monkeypatch.context() as away:
        away.setattr(Run, "log_metrics", fail)
        away.setattr(Run, "end", fail)
        STAGE["collect"].run(params, output=place)
    left = read_manifest(place)["mlflow_left"]
    client = MlflowClient(os.environ[URI])
    assert client.get_run(left).info.status == "RUNNING"
    sections = {name: getattr(params, name) for name in ("seed", "env", "collect", "tracking")}
    made = track_late(sections, {"trajectories": place}, Output(tmp_path / "reports"))
    assert client.get_run(left).info.status == "KILLED"
    assert client.get_run(made["trajectories"]).info.status == "FINISHED"


def test_what_mlflow_says_of_itself_is_silenced() -> None:
    """A server's registry writes a line of every model, which is registered at once."""
    server.quiet()
    assert not logging.getLogger("mlflow.store.model_registry.abstract_store").isEnabledFor(logging.INFO)


def test_refused_labels_stay_refused_where_they_cannot_be_logged(
    flaky: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes the run, and not the labels as files of it."""
    monkeypatch.setenv(URI, flaky)
    params = make_params()
    sections = {name: getattr(params, name) for name in ("seed", "env", "caption", "annotate", "tracking")}
    out = Output(tmp_path)
    (tmp_path / "quality.json").write_text("{}")
    with pytest.raises(RefusedLabelsError, match="too few"):
        annotate.log({**sections, "judges": ()}, {}, out, ["too few answers"])
    (note,) = out.run_notes
    assert note.startswith("annotate: nothing or only part was logged to MLflow at ")


@pytest.mark.usefixtures("database")
def test_a_run_that_could_not_be_filled_does_not_go_on(tmp_path: Path) -> None:
    out = Output(tmp_path)
    with Tracker(make_params(), "collect", {}, out).stage_run() as run:
        assert run is not None
        raise MlflowException("full")
    assert out.mlflow_run_id is None
    assert len(out.run_notes) == 1
    assert run.client.get_run(run.id).info.status == "FAILED"


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("sqlite:///{here}/damaged.db", "not a database"),
        ("sqlite:////proc/none/mlflow.db", "/proc/none"),
        ("gopher://user:secret@somewhere/x?password=secret", "unsupported URI"),
        ("postgresql://user:secret@127.0.0.1:9/x?password=secret", "psycopg"),
    ],
)
def test_other_places_that_cannot_be_logged_to(
    uri: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "damaged.db").write_text("this was a database" * 100)
    uri = uri.format(here=tmp_path)
    monkeypatch.setenv(URI, uri)
    output = Output(tmp_path)
    assert not opened_and_closed(make_params(), output)
    note = check_note(output.run_notes, uri.partition("?")[0].replace("user:secret@", ""))
    assert reason in note
    assert "secret" not in note
