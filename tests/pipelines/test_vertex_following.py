"""Following a run on Vertex AI, against a fake server; a run is started once, whatever fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from vertex_laurel import IMAGE, PLACE, Laurel, submit
from vertex_server import Answer, VertexServer, error, job, task

from laurel.pipelines import follow, vertex
from tiny_project import Project

RUN = "laurel-20260101000000-abcd"


def test_waiting_reports_every_change(laurel: Laurel, google: VertexServer) -> None:
    google.says(
        "get",
        job("PENDING"),
        job("RUNNING", task("laurel", "RUNNING"), task("collect", "RUNNING")),
        error(503, "try later"),
        error(503, "try later"),
        job("RUNNING", task("laurel", "RUNNING"), task("collect", "SUCCEEDED"), task("train-agents", "RUNNING")),
        job("SUCCEEDED", task("laurel", "SUCCEEDED"), task("collect", "SUCCEEDED"), task("train-agents", "SUCCEEDED")),
    )
    code, _, err = submit(laurel, "--wait", "--poll", "0.05")
    assert code == 0
    changes = [line.partition(" ")[2] for line in err.splitlines() if line[:2].isdigit()]
    assert [change.partition(" (")[0] for change in changes] == [
        "run: pending",
        "collect: running",
        "run: running",
        "no answer; the run continues, and is polled again",
        "collect: succeeded",
        "train-agents: running",
        "train-agents: succeeded",
        "run: succeeded",
    ]


@pytest.mark.parametrize("answer", [error(429, "too many requests"), error(500, "oops"), (0, None), (200, b"<html>")])
def test_temporary_failures_are_waited_out(
    laurel: Laurel, google: VertexServer, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(follow.time, "sleep", pauses.append)
    google.says("get", answer, answer, answer, job("SUCCEEDED"))
    code, _, err = submit(laurel, "--wait", "--poll", "1")
    assert code == 0
    assert err.count("no answer; the run continues, and is polled again (") == 1
    assert pauses == [2, 4, 8], "longer and longer"


def test_a_refusal_while_following_does_not_end_the_run(laurel: Laurel, google: VertexServer) -> None:
    google.says("get", job("RUNNING"), error(403, "no longer"))
    code, _, err = submit(laurel, "--wait", "--poll", "0.05")
    assert code == 2
    assert "laurel: not allowed: no longer." in err
    assert "The run continues. Follow it: laurel pipeline status laurel-" in err


def test_the_failed_steps_of_a_sweep_are_named(laurel: Laurel, google: VertexServer) -> None:
    candidates = [task("try-candidate", "SUCCEEDED"), task("try-candidate", "FAILED", "out of memory")]
    google.says("get", job("FAILED", *candidates, task("pick-best", "FAILED", "no trial")))
    out = laurel("status", RUN)[1]
    assert "step try-candidate #2 failed: out of memory\nstep pick-best failed: no trial\n" in out


def test_the_failed_rounds_of_an_actor_are_named(laurel: Laurel, google: VertexServer) -> None:
    tasks = [
        task("train-round", "SUCCEEDED"),
        task("propose-2", "FAILED", "out of memory"),
        task("train-round-2", "RUNNING"),
    ]
    google.says("get", job("FAILED", *tasks))
    out = laurel("status", RUN)[1]
    assert (
        "train-round: succeeded\npropose: failed\ntrain-round #2: running\nstep propose failed: out of memory\n" in out
    )


# -- a run is started once ------------------------------------------------------------------------
def test_a_run_whose_creation_got_no_answer_is_found(
    laurel: Laurel, google: VertexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vertex, "PATIENCE", 0.5)
    google.says("create", (0, None))
    google.says("get", job("RUNNING"))
    code, out, _ = submit(laurel)
    assert code == 0
    assert out.startswith("job:    laurel-1\n")
    (asked,) = {request.path.rpartition("/")[2] for request in google.of("get")}
    assert {asked} == {request.query["pipelineJobId"][0] for request in google.of("create")}

    google.says("get", error(404, "nothing"))
    code, out, err = submit(laurel)
    assert (code, out) == (2, "")
    assert "gives no answer (ConnectionError). " in err
    assert err.rstrip().endswith("the same command finds the run if it has begun, and does not start it twice.")


def test_a_second_attempt_finds_the_run_of_the_first(laurel: Laurel, google: VertexServer) -> None:
    assert submit(laurel)[0] == 0
    (first,) = google.of("create")
    (asked,) = google.of("list")
    assert asked.query["filter"] == [f'labels.laurel_request="{first.body["labels"]["laurel_request"]}"']
    there = {"name": f"{first.path}/{RUN}", "state": "PIPELINE_STATE_RUNNING"}
    google.says(
        "list", (200, {"pipelineJobs": [{**there, "name": "x/ended", "state": "PIPELINE_STATE_FAILED"}, there]})
    )
    code, out, err = submit(laurel)
    assert code == 0
    assert f"job:    {RUN}\n" in out
    assert "its run is still active, so it is not submitted again. To start another run, add --again" in err
    assert len(google.of("create")) == 1
    assert submit(laurel, "--again")[0] == 0
    assert len(google.of("create")) == 2
    google.says("list", (200, {}))
    assert submit(laurel, "--code-version", "a")[0] == 0
    labels = [request.body["labels"]["laurel_request"] for request in google.of("create")]
    assert labels[0] == labels[1] != labels[2], "another request is another run"


def test_a_second_attempt_finds_the_schedule_of_the_first(laurel: Laurel, google: VertexServer) -> None:
    assert submit(laurel, "--schedule", "0 3 * * 1")[0] == 0
    (first,) = google.of("schedule")
    google.says("schedules", (200, {"schedules": [{**first.body, "name": "s/1", "state": "ACTIVE"}]}))
    code, out, err = submit(laurel, "--schedule", "0 3 * * 1")
    assert (code, out.splitlines()[0]) == (0, "schedule: s/1")
    assert "its schedule is still active, so no second one is made" in err
    assert len(google.of("schedule")) == 1
    assert submit(laurel, "--schedule", "0 4 * * 1")[0] == 0
    assert len(google.of("schedule")) == 2


def test_a_run_that_fails(laurel: Laurel, google: VertexServer) -> None:
    custom_job = "projects/1/locations/europe-west4/customJobs/4711"
    google.says(
        "get",
        job("RUNNING", task("train-agents", "RUNNING"), task("train-agents", "RUNNING")),
        job(
            "FAILED",
            task("train-agents", "SUCCEEDED"),
            task("train-agents", "FAILED", "The replica workerpool0-0 exited with a non-zero status of 2.", custom_job),
            message="1 task failed",
        ),
    )
    code, _, err = submit(laurel, "--wait", "--poll", "0.05")
    assert code == 1
    assert "step train-agents #2 failed: The replica workerpool0-0 exited with a non-zero status of 2.\n  log: " in err
    assert "resource.labels.job_id%3D%224711%22?project=demo-project" in err
    assert err.rstrip().endswith("the run failed: 1 task failed")


def test_status_and_cancel(laurel: Laurel, google: VertexServer) -> None:
    google.says("get", job("RUNNING", task("collect", "FAILED", "no quota")))
    code, out, _ = laurel("status", RUN)
    assert code == 0
    assert out == "run: running\ncollect: failed\nstep collect failed: no quota\n"
    code, out, _ = laurel("cancel", RUN)
    assert code == 0
    (sent,) = google.of("cancel")
    assert sent.path == f"/v1/projects/demo-project/locations/europe-west4/pipelineJobs/{RUN}:cancel"

    google.says("get", error(404, "no such job"))
    code, out, err = laurel("status", RUN)
    assert (code, out) == (2, "")
    assert f"there is no job {RUN} in projects/demo-project/locations/europe-west4" in err
    assert err.endswith("List: https://console.cloud.google.com/vertex-ai/pipelines?project=demo-project\n")

    google.says("cancel", error(400, "The run has ended."))
    code, _, err = laurel("cancel", RUN)
    assert (code, err) == (2, "laurel: Vertex AI refused the request: The run has ended.\n")


@pytest.mark.parametrize("action", ["status", "cancel"])
def test_a_job_that_is_none_is_refused(laurel: Laurel, google: VertexServer, action: str) -> None:
    place = "projects/1/locations"
    for job_name, sentence in (
        (f"{place}/europe-west4/schedules/77", f"{place}/europe-west4/schedules/77 is a schedule, not a run: pause or"),
        (f"{place}/us-east1/pipelineJobs/{RUN}", "is a run in us-east1: add --region us-east1"),
        ("", 'JOB is "", but must be what submit printed'),
        ("a b/c", 'JOB is "a b/c", but must be what submit printed'),
        (f"{place}/europe-west4/pipelineJobs/A", "but must be what submit printed"),
    ):
        code, out, err = laurel(action, job_name)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert sentence in err
    assert google.received == []
    google.says("get", job("RUNNING"))
    assert laurel(action, f"{place}/europe-west4/pipelineJobs/{RUN}")[0] == 0


def test_ctrl_c_does_not_stop_the_remote_run(google: VertexServer, project: Project) -> None:
    """The real command, in a process of its own."""
    google.says("get", job("RUNNING", task("collect", "RUNNING")))
    command = [sys.executable, "-m", "laurel", "pipeline", "submit", "--bucket", "gs://demo-bucket", "--image", IMAGE]
    following = subprocess.Popen(
        [*command, *PLACE, "--api-endpoint", google.url, "--wait", "--poll", "0.1"],
        cwd=project.path, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while len(google.of("get")) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=120)
    assert following.returncode == 130
    assert "laurel: the run continues. Follow it: laurel pipeline status laurel-" in err
    assert "Cancel it: laurel pipeline cancel laurel-" in err
    assert "Traceback" not in err
    assert len(out.splitlines()) == 4
    assert google.of("cancel") == []
