"""Agents' runs in MLflow while they train, when that is stopped, and when MLflow fails meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException

from laurel.data.directory import Output
from laurel.data.json_file import write_json
from laurel.data.manifest import RUN
from laurel.data.replacing import replace_directory
from laurel.params.resolved_arms import Arm
from laurel.rewards.online_artefact import ANNOTATION, ANNOTATION_SCHEMA
from laurel.rewards.stored import OWN
from laurel.tracking import agents as tracking_agents
from laurel.tracking.agents import (
    ADAPTER,
    NOTE,
    POINTS,
    STAGE,
    AgentRuns,
    judge_digests,
    read_checkpoint,
    read_note,
    thinned,
    training_of,
)
from laurel.tracking.run import Run
from laurel.tracking.tracker import Tracker
from laurel.training.checkpoint import STATE
from laurel.training.curve import CURVE, CURVE_SCHEMA
from tracked import make_params

BEGAN = 1_700_000_000.0


@pytest.fixture
def client(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tracking_agents, "LOOK_SECONDS", 0.01)
    return MlflowClient(database)


PARAMS = make_params(arms=["extrinsic"], agent={"seeds": [0], "steps": 100, "ppo": {"n_envs": 1, "n_steps": 10}})
EXTRINSIC = PARAMS.resolved_arms["extrinsic"]


def checkpoint(place: Path, updates: int) -> None:
    """Put what a language model with an adapter leaves after so many of ten updates, ten seconds each, in its place."""
    partial = place.with_name(".writing")
    (partial / ADAPTER).mkdir(parents=True)
    write_json(partial / ADAPTER / "adapter_config.json", updates)
    rows = [{"env_steps": 10 * (i + 1), "episodes": i, "window": i, "return_mean": float(i)} for i in range(updates)]
    pq.write_table(pa.Table.from_pylist(rows, schema=CURVE_SCHEMA), partial / CURVE)
    write_json(partial / RUN, {"seconds": 10.0 * updates, "wall": [BEGAN, BEGAN + 10 * updates]})
    write_json(partial / STATE, {"env_steps": 10 * updates, "finished": updates == 10})
    replace_directory(partial, place)


def wait_for(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def stage(out: Output, work: Callable[[AgentRuns], None], places: list[tuple[Arm, int, Path]]) -> None:
    """Do what the stage does, `work` standing for the training."""
    tracker, note = Tracker(PARAMS, "train-agents", {}, out), out.path / NOTE
    with tracker.stage_run(resumed=read_note(note).get(STAGE)) as run:
        assert run is not None
        with AgentRuns(tracker, run, note) as runs:
            work(runs)
            runs.finish(places)


def test_groups_are_of_one_training() -> None:
    """A branch has some of the seeds; all else that an arm learns with makes another group."""

    def training(made_from: str = "a", **changes: Any) -> str:
        agent = {**PARAMS.agent.model_dump(), **changes.pop("agent", {})}
        params = make_params(arms={"one": {"reward": changes.pop("reward", None)}}, agent=agent, **changes)
        arm = params.resolved_arms["one"]
        asked = judge_digests(arm, params.rewards, params.annotate)
        return training_of(params.seed, params.env, arm, {"reward": made_from, **asked})

    def judged(teacher: str) -> dict[str, Any]:
        return {"judges": {"player": {"annotator": "scripted", "scripted": {"teacher": teacher}}}}

    others = [
        training(),
        training("b"),
        training(seed=1),
        training(agent={"steps": 200}),
        training(shaping={"beta": 2.0}),
        training(reward="preference"),
        training(reward={"preference": 0.5, "similarity": 1.0}),
        training(agent={"curriculum": {}}),
        training(agent={"curriculum": {"interest": "player"}}, annotate=judged("oracle")),
        training(agent={"curriculum": {"interest": "player"}}, annotate=judged("mistake")),
        training(reward="online"),
        training(reward="online", annotate={"annotator": "scripted"}),
    ]
    assert training(agent={"seeds": [1, 2]}) == others[0]
    assert training(annotate=judged("oracle")) == others[0], "no reward asks this judge"
    limited = {"budget": {"max_calls": 9}}
    interested = {"curriculum": {"interest": "main"}}
    assert training(agent=interested, annotate=limited) == training(agent=interested), "it stops, and goes on later"
    assert training(reward="online", annotate=limited) != training(reward="online"), "agents go on without the judge"
    assert len({*others}) == len(others)


def test_a_run_names_the_annotator_of_its_arms_own_judge(client: MlflowClient, tmp_path: Path) -> None:
    """Agents that learned from another judge's labels were tagged with the annotator of the section annotate."""
    arms = {
        "extrinsic": {},
        "taught": {"reward": "taught"},
        "control": {"reward": "control"},
        "goals": {"reward": "goals"},
    }
    params = make_params(
        arms={**arms, "both": {"reward": {"taught": 1, "preference": 1}}},
        annotate={"judges": {"teacher": {"annotator": "scripted"}}},
        rewards={
            "taught": {"kind": "preference", "judge": "teacher"},
            "control": {"kind": "shuffled_labels", "of": "taught"},
        },
        agent={"seeds": [0], "steps": 100},
    )
    agents = [(arm, 0, tmp_path / name / "seed-0") for name, arm in params.resolved_arms.items()]
    out = Output(tmp_path)
    tracker = Tracker(dict(params), "train-agents", {}, out)
    with tracker.stage_run() as run:
        assert run is not None
        AgentRuns(tracker, run, tmp_path / NOTE).finish(agents)
    found = {name: client.get_run(run_id).data.tags["annotator"] for name, run_id in out.agent_runs.items()}
    assert found == {
        "extrinsic/seed-0": "embedding",
        "taught/seed-0": "scripted",
        "control/seed-0": "scripted",
        "goals/seed-0": "embedding",
        "both/seed-0": "embedding, scripted",
    }


def test_a_run_is_logged_during_training_and_continues_where_it_was_stopped(
    client: MlflowClient, tmp_path: Path
) -> None:
    place = tmp_path / "extrinsic" / "seed-0"
    agent = (EXTRINSIC, 0, place)

    def known() -> dict[str, str]:
        return read_note(tmp_path / NOTE)

    def history() -> list[Any]:
        return client.get_metric_history(known()["extrinsic/seed-0"], "episodes")

    def adapters() -> list[str]:
        found = client.list_artifacts(known()["extrinsic/seed-0"], f"{ADAPTER}s")
        return sorted(Path(file.path).name for file in found)

    def begin_and_stop(runs: AgentRuns) -> None:
        runs.begin([agent])
        wait_for(lambda: len(known()) == 2)
        assert client.get_run(known()["extrinsic/seed-0"]).info.status == "RUNNING", "before the first checkpoint"
        checkpoint(place, 4)
        wait_for(lambda: len(history()) == 4)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage(Output(tmp_path), begin_and_stop, [agent])
    stopped = known()
    assert {client.get_run(run).info.status for run in stopped.values()} == {"KILLED"}

    out = Output(tmp_path)

    def go_on(runs: AgentRuns) -> None:
        runs.begin([agent])
        checkpoint(place, 7)
        wait_for(lambda: len(history()) == 7 and adapters() == ["40", "70"])
        checkpoint(place, 10)

    before = dict(stopped)
    stage(out, go_on, [agent])
    assert out.agent_runs == {"extrinsic/seed-0": before["extrinsic/seed-0"]}
    assert (out.mlflow_run_id, out.run_notes) == (before[STAGE], [])
    assert not (tmp_path / NOTE).exists()
    run = client.get_run(before["extrinsic/seed-0"])
    points = sorted(client.get_metric_history(run.info.run_id, "episodes"), key=lambda point: point.step)
    assert [(point.step, point.value) for point in points] == [(10 * (i + 1), i) for i in range(10)], "each once"
    assert [point.timestamp for point in points[3:]] == [int(1000 * (BEGAN + 10 * (i + 1))) for i in range(3, 10)]
    assert (run.info.status, run.info.end_time) == ("FINISHED", int(1000 * (BEGAN + 100)))
    assert client.get_run(before[STAGE]).info.status == "FINISHED"
    assert len(client.search_runs([run.info.experiment_id])) == 2
    earlier = client.download_artifacts(run.info.run_id, f"{ADAPTER}s/70/adapter_config.json")
    assert json.loads(Path(earlier).read_text()) == 7
    (model,) = client.search_logged_models([run.info.experiment_id])
    (registered,) = client.search_model_versions()
    assert registered.source == model.model_uri
    last = Path(download_artifacts(model.model_uri))
    assert json.loads((last / ADAPTER / "adapter_config.json").read_text()) == 10


def test_a_server_that_failed_midway_is_retried_at_the_end(
    client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "extrinsic" / "seed-0"
    calls: list[str] = []
    log_curve = Run.log_curve

    def flaky(self: Run, *args: Any, **options: Any) -> None:
        calls.append(self.id)
        if len(calls) == 1:
            raise MlflowException("for once")
        log_curve(self, *args, **options)

    def train(runs: AgentRuns) -> None:
        runs.begin([(EXTRINSIC, 0, place)])
        checkpoint(place, 4)
        wait_for(lambda: calls)
        checkpoint(place, 10)

    monkeypatch.setattr(Run, "log_curve", flaky)
    out = Output(tmp_path)
    stage(out, train, [(EXTRINSIC, 0, place)])
    assert out.run_notes == []
    points = client.get_metric_history(out.agent_runs["extrinsic/seed-0"], "episodes")
    assert sorted(point.step for point in points) == list(range(10, 110, 10))


def test_a_point_has_the_label_counts_of_the_last_check(tmp_path: Path) -> None:
    counts = {"open": 0, "dropped": 0, "captions": 3, "coverage": None, "lag": None, "late": False}
    checks = [{"env_steps": steps, "labels": labels, **counts} for steps, labels in ((25, 4), (45, 6), (50, 8))]
    checkpoint(tmp_path / "seed-0", 6)
    own = tmp_path / "seed-0" / OWN / "live"
    own.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(checks, schema=ANNOTATION_SCHEMA), own / ANNOTATION)
    found = read_checkpoint(tmp_path / "seed-0")
    assert found is not None
    assert [row.get("live.labels") for row in found[2]] == [None, None, 4.0, 4.0, 8.0, 8.0]


def test_which_points_are_logged_does_not_depend_on_the_checkpoints() -> None:
    rows = [{"env_steps": 7 * (i + 1)} for i in range(1000)]
    whole = thinned(rows, 7000, finished=True)
    assert len(whole) == POINTS
    assert whole[-1] is rows[-1]
    for length in (1, 19, 20, 21, 500, 999):
        assert thinned(rows[:length], 7000, finished=False) == [row for row in whole if row["env_steps"] <= 7 * length]
