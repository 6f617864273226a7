"""`laurel pipeline submit --host`, against a fake Kubeflow Pipelines API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from kubeflow_server import ROUTES, KubeflowServer, failure, run
from vertex_server import Answer, serving

from laurel.cli.app import main
from laurel.params import load_params
from laurel.pipelines.definition import arguments
from tiny_project import Project

IMAGE = "laurel-python:1"


@pytest.fixture
def kubeflow(loopback_alone: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeflowServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(KubeflowServer(), ROUTES) as server:
        yield server


Laurel = Callable[..., tuple[int, str, str]]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.create(tmp_path / "p", {"env.backend": "gymnasium"})


@pytest.fixture
def laurel(
    kubeflow: KubeflowServer,
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Laurel:
    def laurel(action: str, *options: str) -> tuple[int, str, str]:
        monkeypatch.chdir(project.path)
        code = main(["pipeline", action, *options, "--host", kubeflow.url])
        return (code, *capsys.readouterr())

    return laurel


def test_checkpoints_go_to_a_folder_that_the_cluster_mounts(
    laurel: Laurel, kubeflow: KubeflowServer, project: Project
) -> None:
    project.change({"pipeline": {"checkpoints": "/mnt/shared/checkpoints"}})
    code, _, err = laurel("submit", "--image", IMAGE)
    assert code == 0, err
    assert "starts over" not in err
    (sent,) = kubeflow.of("create")
    executors = sent.body["pipeline_spec"]["deploymentSpec"]["executors"]
    training = executors["exec-train-agents"]["container"]["env"]
    assert {"name": "LAUREL_CHECKPOINTS", "value": "/mnt/shared/checkpoints"} in training


def test_a_run_is_what_was_asked_for(
    laurel: Laurel, kubeflow: KubeflowServer, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.example.org:5000")
    monkeypatch.setenv("KFP_TOKEN", "token-1")
    options = ["--image", IMAGE, "--gpu", "T4", "--service-account", "runner", "--secret", "A_B=mlflow/password"]
    code, out, err = laurel("submit", *options, "--namespace", "me", "--experiment", "mine")
    assert code == 0
    assert err.splitlines() == [
        "note: the image was not inspected: only the cluster has credentials to pull it.",
        "note: a training step that is retried starts over. To resume it, set pipeline.checkpoints to a folder that "
        "all steps see, such as a mounted volume.",
    ]
    assert out == (
        f"job:    r-1\npage:   {kubeflow.url}/#/runs/details/r-1\n"
        f"follow: laurel pipeline status r-1 --host {kubeflow.url} --namespace me --wait\n"
        f"cancel: laurel pipeline cancel r-1 --host {kubeflow.url} --namespace me\n"
    )
    assert {request.headers["authorization"] for request in kubeflow.received} == {"Bearer token-1"}
    assert kubeflow.of("experiment")[0].body["display_name"] == "mine"
    assert kubeflow.of("experiment")[0].body["namespace"] == "me"
    (sent,) = kubeflow.of("create")
    assert sent.body["experiment_id"] == "e-1"
    assert sent.body["service_account"] == "runner"
    sections = arguments(load_params(project.path / "params.yaml"))
    assert sent.body["runtime_config"]["parameters"]["collect"] == sections["collect"]
    assert set(sent.body["runtime_config"]["parameters"]) == set(sections)
    spec = sent.body["pipeline_spec"]["pipeline_spec"]
    executors = spec["deploymentSpec"]["executors"]
    assert executors["exec-train-agents"]["container"]["resources"]["accelerator"]["resourceType"] == "nvidia.com/gpu"
    assert {"name": "MLFLOW_TRACKING_URI", "value": "http://mlflow.example.org:5000"} in executors["exec-collect"][
        "container"
    ]["env"]
    platform = sent.body["pipeline_spec"]["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(platform) == set(executors)
    for executor in platform.values():  # as use_secret_as_env of kfp-kubernetes 2.17 writes it
        assert executor["secretAsEnv"] == [
            {
                "secretName": "mlflow",
                "secretNameParameter": {"runtimeValue": {"constant": "mlflow"}},
                "keyToEnv": [{"secretKey": "password", "envVar": "A_B"}],
                "optional": False,
            }
        ]


def test_what_is_shown_is_what_is_sent(laurel: Laurel, kubeflow: KubeflowServer) -> None:
    code, out, err = laurel("submit", "--image", IMAGE, "--no-cache", "--dry-run=full")
    assert (code, kubeflow.received) == (0, [])
    assert "price" not in err
    shown = json.loads(out)
    assert shown["url"] == f"{kubeflow.url}/apis/v2beta1/runs"
    assert laurel("submit", "--image", IMAGE, "--no-cache")[0] == 0
    sent = kubeflow.of("create")[0].body
    assert sent.pop("experiment_id") == "e-1"
    assert sent == as_message(shown["body"])
    assert not any(task["cachingOptions"] for task in tasks_of(sent["pipeline_spec"]))


def as_message(request: dict[str, Any]) -> dict[str, Any]:
    """Leave out of the pipeline what KFP's message does: values that are its defaults."""
    spec = json_format.ParseDict(request["pipeline_spec"], pipeline_spec_pb2.PipelineSpec())
    return {**request, "pipeline_spec": json_format.MessageToDict(spec)}


def tasks_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    graphs = [part["dag"]["tasks"] for part in (spec["root"], *spec["components"].values()) if "dag" in part]
    return [task for graph in graphs for task in graph.values()]


def test_a_recurring_run(laurel: Laurel, kubeflow: KubeflowServer) -> None:
    shown = json.loads(laurel("submit", "--image", IMAGE, "--schedule", "0 3 * * 1", "--dry-run=full")[1])
    code, out, _ = laurel("submit", "--image", IMAGE, "--schedule", "0 3 * * 1")
    assert (code, out) == (0, "recurring run: s-1\n")
    assert kubeflow.of("create") == []
    sent = kubeflow.of("recurring")[0].body
    assert sent["trigger"]["cron_schedule"]["cron"] == "0 0 3 * * 1", "KFP begins with seconds"
    assert sent.pop("experiment_id") == "e-1"
    assert sent == as_message(shown["body"])


def test_waiting_status_and_cancel(laurel: Laurel, kubeflow: KubeflowServer) -> None:
    kubeflow.says(
        "get",
        run("PENDING"),
        failure(503, "try later"),
        run("RUNNING", ("root", "RUNNING", ""), ("collect", "RUNNING", "")),
        run("FAILED", ("collect", "FAILED", "exit code 2")),
    )
    code, _, err = laurel("submit", "--image", IMAGE, "--wait", "--poll", "0.05")
    assert code == 1
    changes = [line.partition(" ")[2] for line in err.splitlines() if line[:2].isdigit()]
    assert [change.partition(" (")[0] for change in changes] == [
        "run: pending",
        "no answer; the run continues, and is polled again",
        "collect: running",
        "run: running",
        "collect: failed",
        "run: failed",
    ]
    assert err.endswith("step collect failed: exit code 2\n")
    assert laurel("status", "r-1")[:2] == (0, "run: failed\ncollect: failed\nstep collect failed: exit code 2\n")
    assert laurel("cancel", "r-1")[0] == 0
    assert len(kubeflow.of("terminate")) == 1


@pytest.mark.parametrize(
    ("route", "answer", "sentence"),
    [
        ("health", failure(401, "who?"), "refused the request (401): set KFP_TOKEN to your token."),
        ("health", failure(404, "nginx"), "is not an API of Kubeflow Pipelines (it answered 404)."),
        (
            "create",
            failure(403, "not in this namespace"),
            "refused the request: not in this namespace. Set KFP_TOKEN, or",
        ),
        ("create", failure(400, "bad spec"), "answers 400: bad spec."),
        (
            "create",
            failure(500, "no database"),
            "answers 500: no database. The run does not exist yet. Try again later: the",
        ),
        ("create", (0, None), "does not respond"),
    ],
)
def test_a_refusal_is_one_sentence(
    laurel: Laurel, kubeflow: KubeflowServer, route: str, answer: Answer, sentence: str
) -> None:
    kubeflow.says(route, answer)
    code, out, err = laurel("submit", "--image", IMAGE)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len([line for line in err.splitlines() if not line.startswith("note: ")]) == 1


@pytest.mark.parametrize(
    ("health", "code", "said"),
    [
        (
            {"tag_name": "2.13.0"},
            2,
            "is Kubeflow Pipelines 2.13.0, which cannot collect the outputs of a loop.",
        ),
        ({"tag_name": "2.4.1"}, 2, "is Kubeflow Pipelines 2.4.1, which"),
        ({"tag_name": "2.15.2"}, 0, ""),
        ({}, 0, "does not say its version; Kubeflow Pipelines 2.14 or later is needed."),
    ],
)
def test_the_version_is_looked_at(
    laurel: Laurel, kubeflow: KubeflowServer, health: dict[str, Any], code: int, said: str
) -> None:
    kubeflow.says("health", (200, health))
    found, _, err = laurel("submit", "--image", IMAGE)
    assert found == code
    assert said in err
    assert len(kubeflow.of("create")) == (code == 0)


def test_a_run_is_started_once(laurel: Laurel, kubeflow: KubeflowServer) -> None:
    assert laurel("submit", "--image", IMAGE)[0] == 0
    sent = kubeflow.of("create")[0].body
    there = {"run_id": "r-9", "display_name": sent["display_name"], "state": "RUNNING"}
    kubeflow.says("list", (200, {}), (200, {"runs": [there]}))
    kubeflow.says("create", failure(504, "slow"))
    code, out, _ = laurel("submit", "--image", IMAGE)
    assert (code, out.splitlines()[0]) == (0, "job:    r-9"), "the answer was lost, the run was not"
    attempts = len(kubeflow.of("create"))
    code, out, err = laurel("submit", "--image", IMAGE)
    assert (code, out.splitlines()[0]) == (0, "job:    r-9")
    assert "note: this request was sent before and its run is still active, so it is not submitted again." in err
    assert len(kubeflow.of("create")) == attempts
    asked = {json.loads(request.query["filter"][0])["predicates"][0]["stringValue"] for request in kubeflow.of("list")}
    assert asked == {sent["display_name"]}


def test_rate_limits_while_polling_are_waited_out(laurel: Laurel, kubeflow: KubeflowServer) -> None:
    kubeflow.says("get", failure(429, "slowly"), run("SUCCEEDED"))
    assert laurel("submit", "--image", IMAGE, "--wait", "--poll", "0.05")[0] == 0


def test_no_server_answers(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.path)
    assert main(["pipeline", "status", "r-1", "--host", "http://127.0.0.1:9"]) == 2
    assert "http://127.0.0.1:9 does not respond (ConnectionError). Check --host" in capsys.readouterr().err
    for command in ("status", "cancel"):
        assert main(["pipeline", command, "r-1", "--host", "127.0.0.1:9"]) == 2
        assert "--host must be the address of Kubeflow Pipelines, e.g. http://" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--image", "laurel-python"], "does not identify one build"),
        (["--image", IMAGE, "--schedule", "TZ=Europe/Berlin 0 3 * * 1"], "must have five fields"),
        (["--image", IMAGE, "--secret", "A=projects/p/secrets/s"], "must name a Kubernetes secret and a key in it"),
        (["--image", IMAGE, "--bucket", "gs://b-b-b"], "--bucket is for Vertex AI and --host for a cluster"),
        (
            ["--image", IMAGE, "--bucket", "gs://b-b-b", "--project", "demo-project"],
            "--project, --bucket is for Vertex AI",
        ),
    ],
)
def test_options_that_are_refused(laurel: Laurel, kubeflow: KubeflowServer, options: list[str], sentence: str) -> None:
    code, out, err = laurel("submit", *options)
    assert (code, out, kubeflow.received) == (2, "", [])
    assert sentence in err
