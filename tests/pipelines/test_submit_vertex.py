"""`laurel pipeline submit` on Vertex AI, against a fake server: requests and messages."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from vertex_laurel import IMAGE, Laurel, submit
from vertex_server import VertexServer

from laurel import __version__
from laurel.cli.app import main
from laurel.params import load_params
from laurel.params.pipeline import STEPS
from laurel.pipelines.definition import arguments
from tiny_project import Project


def tasks_of(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return step -> task, of all graphs of a pipeline."""
    graphs = [part["dag"]["tasks"] for part in (spec["root"], *spec["components"].values()) if "dag" in part]
    return {task["taskInfo"]["name"]: task for graph in graphs for task in graph.values()}


def container(spec: dict[str, Any], step: str) -> dict[str, Any]:
    label = spec["components"][tasks_of(spec)[step]["componentRef"]["name"]]["executorLabel"]
    return spec["deploymentSpec"]["executors"][label]["container"]


def test_answers_of_a_chat_model_are_kept_in_the_bucket(laurel: Laurel, google: VertexServer, project: Project) -> None:
    project.change({"annotate.annotator": "openai", "annotate.openai": {"model": "m"}})
    assert submit(laurel, "--secret", "OPENAI_API_KEY=projects/demo-project/secrets/key")[0] == 0
    (sent,) = google.of("create")
    for step in ("annotate", "evaluate"):
        variables = {entry["name"]: entry["value"] for entry in container(sent.body["pipelineSpec"], step)["env"]}
        assert variables["LAUREL_RESPONSES"] == "/gcs/demo-bucket/laurel/responses"
        assert variables["LAUREL_SECRET_OPENAI_API_KEY"] == "projects/demo-project/secrets/key/versions/latest"


def test_permissions_of_the_user_are_sent_with_the_key(
    laurel: Laurel, google: VertexServer, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUREL_ALLOW_KEYS", "OPENAI_API_KEY@models.example")
    asked = {"model": "m", "base_url": "https://models.example/v1"}
    project.change({"annotate.annotator": "openai", "annotate.openai": asked})
    assert submit(laurel, "--secret", "OPENAI_API_KEY=projects/demo-project/secrets/key")[0] == 0
    (sent,) = google.of("create")
    variables = {entry["name"]: entry["value"] for entry in container(sent.body["pipelineSpec"], "annotate")["env"]}
    assert variables["LAUREL_ALLOW_KEYS"] == "OPENAI_API_KEY@models.example"


def test_a_judge_that_the_step_serves_itself_uses_all_of_its_gpus(laurel: Laurel, project: Project) -> None:
    served = {"model": "m", "base_url": "http://localhost:8000/v1", "serve": {}}
    machine = {"accelerator": "L4", "accelerators": 4, "cpu": 48, "memory": "180G"}
    project.change({"annotate.annotator": "openai", "annotate.openai": served, "pipeline.resources.annotate": machine})
    code, _, err = submit(laurel, "--dry-run")
    assert code == 0, err
    assert re.search(r"annotate +1 +48 +180G +4 x NVIDIA_L4", err)
    assert "uses one of them" not in err


# -- what is sent ---------------------------------------------------------------------------------
def test_the_request_holds_what_was_asked_for(
    laurel: Laurel, google: VertexServer, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org/")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2")
    account = "runner@demo-project.iam.gserviceaccount.com"
    network = "projects/123/global/networks/default"
    code, out, err = submit(
        laurel, "--gpu", "T4:2", "--service-account", account, "--network", network,
        "--code-version", "abc123", "--secret", "MLFLOW_TRACKING_PASSWORD=projects/demo-project/secrets/mlflow",
    )  # fmt: skip
    assert code == 0
    assert err.count(" asks for 2 accelerators and uses one of them.") == len(err.splitlines()) == 3

    (sent,) = google.of("create")
    assert sent.path == "/v1/projects/demo-project/locations/europe-west4/pipelineJobs"
    (run,) = sent.query["pipelineJobId"]
    assert f"job:    {run}\n" in out
    assert f"https://console.cloud.google.com/vertex-ai/locations/europe-west4/pipelines/runs/{run}?project=demo" in out
    assert f"follow: laurel pipeline status {run} --project demo-project --region europe-west4" in out
    assert f"cancel: laurel pipeline cancel {run} --project demo-project" in out
    assert sent.headers["authorization"].startswith("Bearer ")

    body = sent.body
    assert body["serviceAccount"] == account
    assert body["network"] == network
    version = __version__.replace(".", "-")
    assert len(body["labels"].pop("laurel_request")) == 32
    assert body["labels"] == {"laurel-version": version, "env": "minigrid-empty-5x5-v0"}
    assert body["runtimeConfig"]["gcsOutputDirectory"] == "gs://demo-bucket/laurel"
    assert body["runtimeConfig"]["failurePolicy"] in (1, "PIPELINE_FAILURE_POLICY_FAIL_SLOW")
    params = load_params(project.path / "params.yaml")
    expected = {**arguments(params), "code_version": "abc123"}
    for section in (expected["annotate"]["embedding"], expected["rewards"]["preference"], expected["agent"]):
        section["device"] = "cuda"  # that the accelerators do not stand idle
    assert body["runtimeConfig"]["parameterValues"] == expected

    spec = body["pipelineSpec"]
    tasks = tasks_of(spec)
    assert {"collect", "caption", "annotate", "train-reward", "train-agents", "merge-agents", "evaluate"} <= set(tasks)
    for step in ("annotate", "train-reward", "train-agents"):
        assert container(spec, step)["resources"]["accelerator"]["resourceType"] == "NVIDIA_TESLA_T4"
        assert container(spec, step)["resources"]["accelerator"]["resourceCount"] == "2"
    for step in ("collect", "caption", "merge-agents", "evaluate"):
        assert "accelerator" not in container(spec, step)["resources"]
    assert tasks["train-agents"]["retryPolicy"]["maxRetryCount"] == 2
    assert tasks["collect"]["cachingOptions"] == {"enableCache": True}
    for step in set(STEPS) & set(tasks):  # only those with a GPU pull gigabytes of CUDA
        has_gpu = step in ("annotate", "train-reward", "train-agents")
        assert container(spec, step)["image"] == (f"{IMAGE}-gpu" if has_gpu else IMAGE)
    for executor in spec["deploymentSpec"]["executors"].values():
        variables = {variable["name"]: variable["value"] for variable in executor["container"]["env"]}
        assert variables == {
            "MLFLOW_TRACKING_URI": "https://mlflow.example.org/",
            "LAUREL_CHECKPOINTS": "/gcs/demo-bucket/laurel/checkpoints",
            "LAUREL_SECRET_MLFLOW_TRACKING_PASSWORD": "projects/demo-project/secrets/mlflow/versions/latest",
        }
    assert "hunter2" not in json.dumps([request.body for request in google.received])
    assert "hunter2" not in out + err


def test_no_cache_and_retries_of_the_parameters(laurel: Laurel, google: VertexServer, project: Project) -> None:
    project.change({"pipeline": {"retries": 0, "resources": {"collect": {"cpu": 2, "memory": "4G"}}}})
    assert submit(laurel, "--no-cache")[0] == 0
    spec = google.of("create")[0].body["pipelineSpec"]
    steps = [task for task in tasks_of(spec).values() if "parameterIterator" not in task]
    assert all(not task.get("cachingOptions", {}).get("enableCache") for task in steps)
    assert not any("retryPolicy" in task for task in steps)
    assert container(spec, "collect")["resources"]["resourceMemoryLimit"] == "4G"


def test_dry_run_shows_the_request_and_opens_no_connection(
    laurel: Laurel, google: VertexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    code, out, err = submit(laurel, "--dry-run=full", "--gpu", "L4")
    assert (code, google.received) == (0, [])
    request = json.loads(out)
    assert request["url"].startswith(f"{google.url}/v1/projects/demo-project/locations/europe-west4/pipelineJobs?")
    short = json.loads(submit(laurel, "--dry-run", "--gpu", "L4")[1])
    assert "--dry-run=full" in short["body"].pop("pipelineSpec")["..."]
    assert {**short["body"], "pipelineSpec": None} == {**request["body"], "pipelineSpec": None}

    rows = {row.split()[0]: row.split() for row in err.splitlines() if row and not row[0].isdigit()}
    assert rows["train-agents"][1:] == ["2", "8", "16G", "1", "x", "NVIDIA_L4", "g2-standard", "yes", "3"]
    assert rows["collect"][1:] == ["1", "4", "8G", "-", "general", "purpose", "yes", "3"]
    assert "3,000 environment steps to collect; at most 200 pairs of captions to annotate\n" in err
    assert "8,192 environment steps to train: 4 agents of 2,048 steps\n" in err
    assert "questions to online judges" not in err
    assert "price: unknown for europe-west4" in err
    assert "nothing was sent" in err


def test_a_dry_run_and_check_count_what_a_run_asks_and_trains(
    laurel: Laurel, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted by hand: two judges, three label sets, an arm with other updates, one paid online, and one left out."""
    project.change(
        {
            "env.id": "Pendulum-v1",
            "annotate": {
                "annotator": "embedding",
                "embedding": {"goal": "up", "anti_goal": "down"},
                "n_pairs": 500,
                "feedback_seeds": 3,
                "judges": {"teacher": {"n_pairs": 100}},
            },
            "rewards": {
                "taught": {"kind": "preference", "judge": "teacher"},
                "live": {"kind": "online", "questions": 70},
            },
            "arms": {
                "preference": {},
                "taught": {"reward": "taught", "agent": {"ppo": {"n_envs": 128, "n_steps": 32}}},
                "live": {"reward": "live"},
                "oracle": {},
                "random_policy": {},
            },
            "agent": {"seeds": [0, 1, 2], "steps": 3000, "ppo": {"n_envs": 16, "n_steps": 32}},
        }
    )
    code, _, shown = submit(laurel, "--dry-run")
    assert code == 0, shown
    assert main(["check"]) == 0
    checked = capsys.readouterr().out
    for said in (
        "at most 1,800 pairs of captions in all (2 judges, 3 label sets each)",
        "9 agents of 3,072 to 4,096 steps",
        "at most 210 questions to online judges during training",
    ):
        assert said in shown
        assert said in checked
    assert f"{3 * (3072 + 4096 + 3072):,} environment steps to train: " in shown


def test_what_is_shown_is_what_is_sent(laurel: Laurel, google: VertexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org/")
    shown = json.loads(submit(laurel, "--dry-run=full", "--code-version", "a")[1])["body"]
    assert submit(laurel, "--code-version", "a")[0] == 0
    sent = google.of("create")[0].body
    assert sent["runtimeConfig"].pop("failurePolicy")  # an enumeration has a number on the way
    shown["runtimeConfig"].pop("failurePolicy")
    assert sent == shown


def test_the_fan_out_is_counted(laurel: Laurel, project: Project) -> None:
    project.change({"pipeline": {"seeds_per_step": 1, "annotate_shards": 3}, "collect.parts": 2})
    err = submit(laurel, "--dry-run")[2]
    rows = {row.split()[0]: row.split() for row in err.splitlines() if row}
    assert {step: rows[step][1] for step in ("collect", "annotate", "train-agents", "evaluate")} == {
        "collect": "2", "annotate": "3", "train-agents": "4", "evaluate": "1",
    }  # fmt: skip


def test_a_price_is_shown_with_its_date_and_source(laurel: Laurel, tmp_path: Path) -> None:
    table = tmp_path / "prices.yaml"
    prices = "--prices", str(table)
    entry = "- {region: europe-west4, source: the list, currency: USD, run: 0.5, memory_hour: 0.01, %s}\n"
    table.write_text(entry % "date: 2026-01-31, cpu_hour: 0.1" + entry % "date: 2025-01-31, cpu_hour: 9")
    err = submit(laurel, "--dry-run", "--gpu", "T4", *prices)[2]
    assert "price: 0.50 USD per run; per hour: " in err
    assert "collect 0.480" in err  # 4 cores, 8 GB
    assert "not known for the accelerator of annotate, train-reward, train-agents" in err
    assert "(europe-west4, 2026-01-31, the list)" in err
    table.write_text("- {region: europe-west4}\n")
    code, out, err = submit(laurel, "--dry-run", *prices)
    assert (code, out) == (2, "")
    assert "prices.yaml: 0.date does not have the form described in its comment (Field required)." in err


def test_a_gpu_costs_the_whole_machine_that_it_is_sold_in(laurel: Laurel, tmp_path: Path) -> None:
    """train-agents asks for 8 cores and 16 GB, annotate for 4 and 8; an A100 has 12 vCPUs and 85 GB beside it, an L4 at
    least 4 and 16, and a T4 what is asked for.
    """
    table = tmp_path / "prices.yaml"
    known = "NVIDIA_TESLA_A100: 3, L4: 1, NVIDIA_TESLA_T4: 1"  # by Vertex AI's names, or as for --gpu
    table.write_text(
        "- {region: europe-west4, date: 2026-01-31, source: a list, currency: USD, run: 0, cpu_hour: 0.1, "
        f"memory_hour: 0.01, accelerator_hour: {{{known}}}}}"
    )
    for gpu, annotating, training in (("A100", 5.05, 5.05), ("L4", 1.56, 2.12), ("T4", 1.48, 1.96)):
        err = submit(laurel, "--dry-run", "--gpu", gpu, "--prices", str(table))[2]
        assert f"annotate {annotating:.3f}" in err
        assert f"train-agents {training:.3f}" in err


def test_hours_and_price_of_motifs_two_billion_steps(laurel: Laurel) -> None:
    """The command in the comment of examples/motif.yaml, as typed there: 20 agents, and nothing is sent."""
    root = Path(__file__).resolve().parents[2]
    lines = (root / "examples/motif.yaml").read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if "laurel pipeline submit" in line)
    end = next(i for i, line in enumerate(lines) if i > begin and not line.endswith("\\"))
    words = shlex.split(" ".join(line.lstrip("# ").rstrip("\\") for line in lines[begin : end + 1]))
    code, _, err = laurel(*(str(root / word) if word.startswith("examples/") else word for word in words[2:]))
    assert code == 0, err
    assert "40,000,020,480 environment steps to train: 20 agents of 2,000,001,024 steps" in err
    hours, cost, each = re.search(
        r"train-agents at 1,500 environment steps/s per task: ([\d,.]+) machine hours, which cost ([\d,.]+) USD; "
        r"([\d.]+) hours if all 20 tasks run at once", err,
    ).groups()  # type: ignore[union-attr]  # fmt: skip
    assert float(hours.replace(",", "")) == pytest.approx(4e10 / 1500 / 3600, abs=0.1)
    assert float(cost.replace(",", "")) == pytest.approx(4e10 / 1500 / 3600 * (2 * 0.05 + 8 * 0.006), rel=1e-3)
    assert float(each) == pytest.approx(2e9 / 1500 / 3600, abs=0.1)


@pytest.mark.parametrize(
    ("at_once", "longest", "said"), [(None, 3, "all 4 tasks run at once"), (2, 5, "2 of 4 tasks run at once")]
)
def test_hours_are_those_of_the_longest_task(
    laurel: Laurel, project: Project, at_once: int | None, longest: int, said: str
) -> None:
    """Two arms with five seeds in tasks of three and two; two at a time, the last task of two waits for the other."""
    project.change({"agent.seeds": [0, 1, 2, 3, 4], "pipeline": {"seeds_per_step": 3, "parallelism": at_once}})
    steps = 2048
    err = submit(laurel, "--dry-run", "--steps-per-second", str(steps / 3600))[2]
    assert "10 agents of 2,048 steps" in err
    assert f": 10.0 machine hours; {longest}.0 hours if {said}" in err


def test_a_schedule(laurel: Laurel, google: VertexServer) -> None:
    code, out, _ = submit(laurel, "--schedule", "TZ=Europe/Berlin 0 3 * * MON")
    assert code == 0
    assert google.of("create") == []
    (sent,) = google.of("schedule")
    assert sent.body["cron"] == "TZ=Europe/Berlin 0 3 * * MON"
    assert sent.body["maxConcurrentRunCount"] == "1"
    request = sent.body["createPipelineJobRequest"]
    assert request["parent"] == "projects/demo-project/locations/europe-west4"
    assert request["pipelineJob"]["pipelineSpec"]["pipelineInfo"]["name"] == "laurel"
    assert request["pipelineJob"]["runtimeConfig"]["gcsOutputDirectory"] == "gs://demo-bucket/laurel"
    assert "schedule: projects/demo-project/locations/europe-west4/schedules/77" in out


def test_project_and_region_of_the_environment_are_named(
    google: VertexServer, project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "demo-project")
    monkeypatch.setenv("GOOGLE_CLOUD_REGION", "europe-west4")
    options = ["--bucket", "gs://demo-bucket", "--image", IMAGE, "--api-endpoint", google.url]
    assert main(["pipeline", "submit", *options]) == 0
    err = capsys.readouterr().err
    assert "note: project demo-project (from GOOGLE_CLOUD_PROJECT)." in err
    assert "note: region europe-west4 (from GOOGLE_CLOUD_REGION)." in err
    assert "note: the run is not logged to MLflow: MLFLOW_TRACKING_URI is not set." in err


# -- a compiled pipeline --------------------------------------------------------------------------
def test_a_template_is_sent_as_it_was_compiled(laurel: Laurel, google: VertexServer, project: Project) -> None:
    file = project.path / "pipeline.yaml"
    assert main(["pipeline", "compile", "-o", str(file), "--image", IMAGE, "--params", "params.yaml"]) == 0
    assert laurel("submit", "--bucket", "gs://demo-bucket", "--template", str(file))[0] == 0
    assert container(google.of("create")[0].body["pipelineSpec"], "collect")["image"] == IMAGE


def test_the_questions_of_a_template_are_of_as_many_shards_as_it_has(laurel: Laurel, project: Project) -> None:
    """Each shard asks those with known answers; the parameters' number of shards has no effect there."""
    project.change({"annotate.probe": {"success_questions": 5}, "pipeline": {"annotate_shards": 2}})
    file = project.path / "pipeline.yaml"
    params = str(project.path / "params.yaml")
    assert main(["pipeline", "compile", "-o", str(file), "--image", IMAGE, "--params", params]) == 0
    project.change({"pipeline": {"annotate_shards": 1}})
    code, _, err = laurel("submit", "--bucket", "gs://demo-bucket", "--template", str(file), "--dry-run")
    assert code == 0, err
    assert "and 10 with known answers to annotate" in err
