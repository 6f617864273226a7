"""What `laurel pipeline submit` refuses of its options before it contacts anything: all at once, a sentence each."""

from __future__ import annotations

import json

import pytest
from submitting import IMAGE, RIGHT, Refused

from laurel.cli.app import main
from tiny_project import REPOSITORY, Project


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--project", "Demo", "has 6 to 30 lower-case letters, digits and hyphens. List yours: gcloud projects list"),
        ("--project", "123456789", "is a project's number; find its ID: gcloud projects describe 123456789"),
        ("--region", "europe", "must be a region such as europe-west4. List: gcloud compute regions list"),
        ("--region", "europe-west4-a", "is a zone; its region is --region europe-west4"),
        ("--bucket", "demo-bucket", "must begin with gs://"),
        ("--bucket", "gs://My_Bucket", "has 3 to 63 lower-case letters"),
        ("--bucket", "gs://ab", "has 3 to 63 lower-case letters"),
        ("--bucket", "gs://google-data", "has no google in it"),
        ("--bucket", "gs://10.0.0.1/x", "has 3 to 63 lower-case letters"),
        ("--bucket", "gs://demo-bucket/a//b", "has the folder"),
        ("--image", "laurel-python:1", "is not in a registry that Vertex AI can pull from. Push it to Artifact"),
        ("--image", "docker.io/demo/laurel-python:1", "is not in a registry that Vertex AI can pull from"),
        ("--image", IMAGE.removesuffix(":1"), "Give a digest (@sha256:...) or a tag other than latest."),
        ("--image", IMAGE.replace(":1", ":latest"), "does not identify one build, by which steps are cached."),
        ("--image", f"{IMAGE}@sha256:12", "is not the reference of an image"),
        ("--image", "Not An Image", "is not the reference of an image"),
        ("--service-account", "runner", "must be NAME@PROJECT.iam.gserviceaccount.com"),
        ("--network", "default", "must be projects/NUMBER/global/networks/NAME"),
        ("--network", "projects/demo-project/global/networks/default", "must be projects/NUMBER/global/networks/NAME"),
        ("--schedule", "daily", "must have five fields: minute, hour, day of month, month, day of week"),
        ("--schedule", "0 3 * *", "must have five fields"),
        ("--schedule", "0 0 3 * * 1", "must have five fields"),
        ("--gpu", "T4:3", "pipeline.resources.train-agents asks for 3 accelerators of type T4, but a machine of"),
        ("--gpu", "T5", "must be one of T4, P4"),
        ("--gpu", "T4:0", "asks for 0 accelerators of type T4"),
        ("--gpu", "T4:", "must be TYPE or TYPE:COUNT, e.g. --gpu L4:1"),
        ("--gpu", "T4:two", "must be TYPE or TYPE:COUNT, e.g. --gpu L4:1"),
        ("--secret", "A=b", "--secret A: must be the name of a secret, not the secret itself: A=projects/PROJECT"),
        ("--secret", "a-b=projects/demo-project/secrets/b", "the name of a variable has capitals, digits and _"),
        ("--api-endpoint", "http://example.org", "would send your credentials unencrypted: use https://example.org"),
        ("--api-endpoint", "ftp://example.org", "must be an address such as https://"),
        ("--params", "none.yaml", "none.yaml: no such file."),
        ("--template", "none.yaml", "none.yaml: no such file. Make one: laurel pipeline compile"),
        ("--experiment", "door-key", "--experiment is for a cluster: add --host URL, or leave it out."),
        ("--prices", "prices.yaml", "--prices is for an estimate before anything is sent: add --dry-run, or leave it"),
        ("--steps-per-second", "100", "--steps-per-second is for an estimate before anything is sent: add --dry-run"),
        ("--namespace", "me", "--namespace is for a cluster: add --host URL, or leave it out."),
    ],
)  # fmt: skip
def test_one_thing_wrong_is_one_sentence(refused: Refused, option: str, value: str, sentence: str) -> None:
    without = (option, "--image") if option == "--template" else (option,)
    said = refused(option, value, without=without)
    assert any(sentence in line for line in said), said
    if not option.startswith("--gpu"):
        assert len(said) == 1


@pytest.mark.parametrize("option", ["--wait", "--again"])
def test_an_option_for_one_run_and_a_schedule(refused: Refused, option: str) -> None:
    assert refused("--schedule", "0 3 * * 1", option) == [
        f"{option} is for a run that starts now, not for --schedule: leave out one of them."
    ]


CHAT = {"annotate.annotator": "openai", "annotate.openai": {"model": "m"}}


def test_a_key_for_a_server_that_the_user_has_not_allowed(
    refused: Refused, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "OPENAI_API_KEY=projects/demo-project/secrets/key"
    project.change({**CHAT, "annotate.openai": {"model": "m", "base_url": "https://models.example/v1"}})
    (sentence,) = refused("--secret", secret)
    assert sentence.endswith('type: export LAUREL_ALLOW_KEYS="$LAUREL_ALLOW_KEYS "OPENAI_API_KEY@models.example')
    monkeypatch.setenv("LAUREL_ALLOW_KEYS", "OPENAI_API_KEY@models.example")
    assert any("--secret OPENAI_API_KEY=" in sentence for sentence in refused()), "allowed, and not given to the steps"


def test_a_chat_model_needs_its_key(refused: Refused, project: Project) -> None:
    project.change(CHAT)
    assert refused() == [
        "annotate.openai needs the key OPENAI_API_KEY in the steps: add --secret "
        "OPENAI_API_KEY=projects/PROJECT/secrets/SECRET"
    ]


def test_a_chat_model_of_this_machine(refused: Refused, project: Project) -> None:
    project.change({**CHAT, "annotate.openai": {"model": "m", "base_url": "http://localhost:8000/v1"}})
    assert refused() == [
        "annotate.openai.base_url is http://localhost:8000/v1, which is an address of this machine: the steps cannot "
        "reach it."
    ]


@pytest.mark.parametrize("option", ["--project", "--region", "--bucket", "--image"])
def test_what_is_missing_is_named(refused: Refused, option: str) -> None:
    (said,) = refused(without=(option,))
    assert said.startswith(f"{option} is missing: ")


def test_all_errors_are_reported_at_once(refused: Refused, project: Project) -> None:
    project.change({"shaping.beta": -1, "agent.steps": "many"})
    wrong = {"--project": "X", "--region": "x", "--bucket": "x", "--image": "x:latest"}
    said = refused("--schedule", "x", right=wrong)
    assert len(said) == 7
    assert sum(line.startswith("params.yaml: ") for line in said) == 2


@pytest.mark.parametrize(
    "right",
    [
        {"--region": "northamerica-northeast1"},
        {"--bucket": "gs://a.b-c_d/e/f"},
        {"--image": IMAGE.replace(":1", f"@sha256:{'0' * 64}")},
        {"--image": IMAGE.replace("europe-west4", "europe")},
        {"--image": "eu.gcr.io/demo-project/laurel-python:1"},
        {"--project": "example.com:demo-project"},
        {"--schedule": "*/15 0-6/2 1,15 JAN-MAR MON"},
        {"--schedule": "CRON_TZ=America/New_York 1 * * * *"},
        {"--service-account": "1-compute@developer.gserviceaccount.com"},
        {"--gpu": "NVIDIA_TESLA_V100:8"},
        {"--secret": "A_B=projects/demo-project/secrets/b/versions/3"},
    ],
    ids=lambda value: next(iter(value.values())),
)
def test_what_is_right_passes(project: Project, right: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    given = [part for pair in {**RIGHT, **right}.items() for part in pair]
    assert main(["pipeline", "submit", *given, "--dry-run"]) == 0, capsys.readouterr().err


def test_the_page_on_vertex_ai_shows_what_will_run(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    given = [part for pair in {**RIGHT, "--params": str(REPOSITORY / "params.yaml")}.items() for part in pair]
    assert main(["pipeline", "submit", *given, "--dry-run"]) == 0
    shown = capsys.readouterr().err.partition("step ")
    assert f"step {shown[2]}".partition("price")[0] in (REPOSITORY / "docs/vertex-ai.md").read_text(encoding="utf-8")


def test_a_gpu_goes_to_the_steps_that_can_use_one(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.change({"annotate.annotator": "scripted", "rewards.preference.device": "cuda"})
    given = [part for pair in RIGHT.items() for part in pair]
    assert main(["pipeline", "submit", *given, "--gpu", "L4", "--dry-run=full"]) == 0
    out, err = capsys.readouterr()
    assert {row.split()[0] for row in err.splitlines() if "NVIDIA_L4" in row} == {"train-reward", "train-agents"}
    sections = json.loads(out)["body"]["runtimeConfig"]["parameterValues"]
    devices = (
        sections["annotate"]["embedding"]["device"],
        sections["rewards"]["preference"]["device"],
        sections["agent"]["device"],
    )
    assert devices == ("cpu", "cuda", "cuda")


@pytest.mark.parametrize("uri", ["https://me:hunter2@mlflow.example.org", "postgresql://me:hunter2@db/mlflow"])
def test_a_secret_is_never_shown(refused: Refused, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    said = refused("--secret", "MLFLOW_TRACKING_PASSWORD=hunter3", "--secret", "hunter4")
    assert any("MLFLOW_TRACKING_URI holds a password" in line and "--secret" in line for line in said)
    assert not any("hunter" in line for line in said)


@pytest.mark.parametrize("uri", ["sqlite:////home/me/mlflow.db", "http://localhost:5000", "/home/me/runs", "http://[x"])
def test_a_tracking_server_of_this_machine_is_not_passed_on(
    project: Project, uri: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    given = [part for pair in RIGHT.items() for part in pair]
    assert main(["pipeline", "submit", *given, "--dry-run=full"]) == 0
    out, err = capsys.readouterr()
    assert "the run is not logged to MLflow: the steps cannot reach MLFLOW_TRACKING_URI" in err
    assert uri not in out
