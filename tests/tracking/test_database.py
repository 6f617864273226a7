"""MLflow's database in a project: set up whole, by one process, without a wait for the disk at each commit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient
from sqlalchemy import Connection, Engine, create_engine, event

from laurel.data.directory import Output
from laurel.tracking import server
from tracked import URI, make_params, opened_and_closed


def test_a_commit_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent's run has 17 of them, the making of the tables a thousand, each of up to 20 ms."""
    waits: list[int] = []

    def look(connection: Connection) -> None:
        waits.append(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(URI, "sqlite:///mlflow.db")
    event.listen(Engine, "commit", look)
    try:
        assert opened_and_closed(make_params(), Output(tmp_path))
    finally:
        event.remove(Engine, "commit", look)
    assert waits.count(0) > 50  # while the tables are made
    assert set(waits[waits.index(1) :]) == {1}
    with create_engine("sqlite:///mlflow.db").connect() as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
    assert found == ["wal", 1]


START = """
import sys, time
from pathlib import Path
from mlflow import MlflowClient
from laurel.data.directory import Output
from laurel.params import parse_params
from laurel.tracking.tracker import Tracker
from laurel.tracking.server import configure
configure(Path("."))
content = {"env": {"id": "FrozenLake-v1"}, "collect": {"steps": 1}, "arms": "full", "agent": {"seeds": [0], "steps": 1}}
output = Output(Path("."))
Path(sys.argv[1]).touch()
while not all(Path(name).exists() for name in "ab"):
    time.sleep(0.01)
with Tracker(parse_params(content, "test"), "collect", {}, output).stage_run() as run:
    run.log_metrics({"value": 1.0})
print(output.run_notes)
"""


def test_two_processes_may_begin_on_a_new_database(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW")}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", START, name],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for process in both:
        out, err = process.communicate(timeout=600)
        assert (process.returncode, out.strip()) == (0, "[]"), err
        assert "Error" not in err
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'laurel'")
    assert len(client.search_runs([experiment.experiment_id])) == 2


def test_a_database_whose_setup_was_interrupted_is_set_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URI, f"sqlite:///{tmp_path}/mlflow.db")
    commits = 0

    def interrupt(_: object) -> None:
        nonlocal commits
        commits += 1
        if commits == 12:
            raise KeyboardInterrupt

    event.listen(Engine, "commit", interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            server.connect("laurel")
    finally:
        event.remove(Engine, "commit", interrupt)
    server.connect("laurel")
