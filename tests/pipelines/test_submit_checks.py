"""What `laurel pipeline submit` refuses before it contacts anything: all of it at once, a sentence each."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from laurel.cli.app import main
from laurel.params import Params
from laurel.pipelines import submission
from laurel.pipelines.template import Spec, compiled
from tiny_project import REPOSITORY, Project

IMAGE = "europe-west4-docker.pkg.dev/demo-project/laurel/laurel-python:1"
RIGHT = {
    "--project": "demo-project",
    "--region": "europe-west4",
    "--bucket": "gs://demo-bucket/laurel",
    "--image": IMAGE,
}

Refused = Callable[..., list[str]]


@pytest.fixture(scope="module")
def compiled_once() -> Callable[..., Spec]:
    """Compile as ever, but what is the same once: every case here would do it anew."""
    known: dict[str, Spec] = {}

    def compiled_once(params: Params, image: str, **form: Any) -> Spec:
        key = repr((params, image, form))
        if key not in known:
            known[key] = compiled(params, image, **form)
        return deepcopy(known[key])

    return compiled_once


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled_once: Callable[..., Spec]) -> Project:
    monkeypatch.setattr(submission, "compiled", compiled_once)
    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_REGION"):
        monkeypatch.delenv(name, raising=False)
    project = Project.create(tmp_path / "p", {"env.backend": "gymnasium"})
    monkeypatch.chdir(project.path)
    return project


@pytest.fixture
def refused(project: Project, capsys: pytest.CaptureFixture[str], loopback_alone: None) -> Refused:
    """Submit with options that are wrong; return the sentences."""

    def refused(
        *options: str, without: tuple[str, ...] = (), right: dict[str, str] = RIGHT, printed: str = ""
    ) -> list[str]:
        given = [part for name, value in right.items() if name not in without for part in (name, value)]
        assert main(["pipeline", "submit", *given, *options]) == 2
        out, err = capsys.readouterr()
        assert out == printed
        assert "Traceback" not in err
        return err.removeprefix("laurel: ").splitlines()

    return refused


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--project", "Demo", "has 6 to 30 lower-case letters, digits and hyphens. List yours: gcloud projects list"),
        ("--project", "123456789", "is a project's number; its ID says: gcloud projects describe 123456789"),
        ("--region", "europe", "must be a region such as europe-west4. List: gcloud compute regions list"),
        ("--region", "europe-west4-a", "is a zone; its region is --region europe-west4"),
        ("--bucket", "demo-bucket", "must begin with gs://"),
        ("--bucket", "gs://My_Bucket", "has 3 to 63 lower-case letters"),
        ("--bucket", "gs://ab", "has 3 to 63 lower-case letters"),
        ("--bucket", "gs://google-data", "has no google in it"),
        ("--bucket", "gs://10.0.0.1/x", "has 3 to 63 lower-case letters"),
        ("--bucket", "gs://demo-bucket/a//b", "has the folder"),
        ("--image", "laurel-python:1", "lies in no registry that Vertex AI pulls from. Push it to Artifact"),
        ("--image", "docker.io/demo/laurel-python:1", "lies in no registry that Vertex AI pulls from"),
        ("--image", IMAGE.removesuffix(":1"), "Give a digest (@sha256:...) or a tag other than latest."),
        ("--image", IMAGE.replace(":1", ":latest"), "does not say which build: steps are cached by it."),
        ("--image", f"{IMAGE}@sha256:12", "is not the reference of an image"),
        ("--image", "Not An Image", "is not the reference of an image"),
        ("--service-account", "runner", "must be NAME@PROJECT.iam.gserviceaccount.com"),
        ("--network", "default", "must be projects/NUMBER/global/networks/NAME"),
        ("--network", "projects/demo-project/global/networks/default", "must be projects/NUMBER/global/networks/NAME"),
        ("--schedule", "daily", "must have five fields: minute, hour, day of month, month, day of week"),
        ("--schedule", "60 3 * * *", "must have five fields"),
        ("--schedule", "0 3 * * 5-1", "must have five fields"),
        ("--schedule", "*/0 3 * * *", "must have five fields"),
        ("--label", "Team=rl", "at most 63 lower-case letters, digits, - and _"),
        ("--label", "team", "--label must be NAME=VALUE."),
        ("--gpu", "T4:3", "pipeline.resources.train-agents asks for 3 accelerators of type T4, but a machine of"),
        ("--gpu", "T5", "must be one of T4, P4"),
        ("--gpu", "T4:0", "asks for 0 accelerators of type T4"),
        ("--gpu", "T4:two", "must be TYPE or TYPE:COUNT, e.g. --gpu L4:1"),
        ("--secret", "A=b", "--secret A: must name a secret, not be it: A=projects/PROJECT/secrets/SECRET."),
        ("--secret", "a-b=projects/demo-project/secrets/b", "the name of a variable has capitals, digits and _"),
        ("--api-endpoint", "http://example.org", "would send your credentials in clear: use https://example.org"),
        ("--api-endpoint", "ftp://example.org", "must be an address such as https://"),
        ("--params", "none.yaml", "none.yaml: no such file."),
        ("--template", "none.yaml", "none.yaml: no such file. Make one: laurel pipeline compile"),
        ("--experiment", "Door key", "has lower-case letters, digits and hyphens"),
        ("--namespace", "me", "--namespace is for a cluster: add --host URL, or leave it out."),
    ],
)  # fmt: skip
def test_one_thing_wrong_is_one_sentence(refused: Refused, option: str, value: str, sentence: str) -> None:
    without = (option, "--image") if option == "--template" else (option,)
    said = refused(option, value, without=without)
    assert any(sentence in line for line in said), said
    if not option.startswith("--gpu"):
        assert len(said) == 1


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


def test_everything_is_said_at_once(refused: Refused, project: Project) -> None:
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
    table = "".join(f"    {line}\n" if line else "\n" for line in f"step {shown[2]}".partition("price")[0].splitlines())
    assert table in (REPOSITORY / "docs/vertex-ai.md").read_text(encoding="utf-8")


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


def test_files_of_this_machine_are_refused(
    refused: Refused, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.path / "submitted_env.py").write_text(
        "import gymnasium as gym\ngym.register('Corridor-v0', 'gymnasium.envs.classic_control:CartPoleEnv')"
    )
    project.change({
        "env.id": "submitted_env:Corridor-v0",
        "collect.policies": [{"kind": "checkpoint", "path": "agent"}],
        "rewards.preference.encoder": "./encoder",
        "annotate.gold": "gold.jsonl",
        "annotate.annotator": "huggingface",
        "annotate.huggingface": {"model": "/models/mine", "mode": "generate", "adapter": "/gcs/demo-bucket/lora"},
    })  # fmt: skip
    said = refused("--in-image", "annotate.gold", "--in-image", "rewards.preference.encodr")
    of_files = [line.partition(" is ")[0] for line in said if "which is of this machine" in line]
    assert of_files == [
        "env.id",
        "collect.policies[0].path",
        "rewards.preference.encoder",
        "annotate.huggingface.model",
    ]
    assert 'Did you mean "rewards.preference.encoder"?' in "\n".join(said)
    assert said[2].endswith("If the image holds it at the same place, add --in-image rewards.preference.encoder")


def test_a_file_is_found_wherever_parameters_name_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from laurel.params import load_params
    from laurel.pipelines.files import local_files

    monkeypatch.chdir(project.path)
    for name in ("mine.jinja", "data/agents"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    acting = {"algorithm": "language_model", "language_model": {"model": "data/agents", "prompt": "mine.jinja"}}
    project.change({
        "env": {"id": "laurel/GridWorld-v0", "kwargs": {"maps": ["mine.jinja"]}},
        "arms": {
            "act": {"reward": None, "agent": acting},
            "ask": {"reward": None, "agent": {"actor": "llm_policy", "options": {"prompt": "mine.jinja"}}},
            "live": {"reward": {"online": 1, "score": 1}},
        },
        "rewards": {"online": {"replay": "data/agents"}, "score": {"prompt": "mine.jinja"}},
        "tracking": {"experiment": "data/agents"},
    })  # fmt: skip
    assert local_files(load_params(Path("params.yaml")), vertex=True).keys() == {
        "env.kwargs.maps[0]",
        "arms.act.agent.language_model.model",
        "arms.act.agent.language_model.prompt",
        "arms.ask.agent.options.prompt",
        "rewards.online.replay",
        "rewards.score.prompt",
    }


@pytest.mark.parametrize(
    ("resources", "options", "sentence"),
    [
        (
            {"collect": {"cpu": 200}},
            (),
            "resources.collect.cpu asks for 200 cores, but a machine of Vertex AI has 96",
        ),
        (
            {"caption": {"memory": "1T"}},
            (),
            "asks for 1000 GB of memory, but a machine of Vertex AI has 624 at most.",
        ),
        (
            {"train-agents": {"cpu": 48}},
            ("--gpu", "L4"),
            "asks for 48 cores, but a machine of Vertex AI with 1 x L4 has 32 at",
        ),
    ],
)
def test_machines_that_there_are_not(
    refused: Refused, project: Project, resources: dict[str, object], options: tuple[str, ...], sentence: str
) -> None:
    project.change({"pipeline": {"resources": resources}})
    (said,) = refused(*options)
    assert sentence in said


def test_weights_in_few_bits_need_a_gpu_and_their_packages(
    refused: Refused, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    from laurel.params import load_params
    from laurel.pipelines.images import needed
    from laurel.pipelines.template import compiled

    model = {"quantization": "4bit", "mode": "generate"}
    project.change({"annotate.annotator": "huggingface", "annotate.huggingface": model})
    (said,) = refused()
    assert said.startswith("annotate.huggingface.quantization needs a GPU, but the step annotate runs without one")
    project.change({"pipeline": {"resources": {"annotate": {"accelerator": "L4"}}}})
    params = load_params(project.path / "params.yaml")
    images = needed(compiled(params, IMAGE), params)
    assert images[f"{IMAGE}-gpu"].packages == ("bitsandbytes", "accelerate")
    assert (images[f"{IMAGE}-gpu"].cuda, images[IMAGE].cuda, images[IMAGE].packages) == (True, False, ())
    project.change({"arms": {"live": {"reward": "online"}}})
    (said,) = refused()
    assert "but the step train-agents runs without one: set pipeline.resources.train-agents.accelerator" in said
    project.change({"arms": {"scored": {"reward": "score"}}})
    (said,) = refused()
    assert "but the step train-reward runs without one: set pipeline.resources.train-reward.accelerator" in said


# -- parameters that do not fit together -----------------------------------------------------------
def test_agents_that_cannot_be_trained_are_refused_before_anything_is_sent(refused: Refused, project: Project) -> None:
    project.change({"env.id": "Pendulum-v1", "agent.algorithm": "dqn", "annotate.annotator": "scripted"})
    (said,) = refused("--dry-run")
    assert said.startswith("agent.algorithm is dqn, which chooses among Discrete actions")
    project.change({"agent.algorithm": "ppo"})
    (said,) = refused()
    assert said.startswith("annotate.annotator: scripted judges by an environment's hand-written progress")


def test_what_cannot_be_checked_here_is_said(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.change({"env.id": "not_installed_here:Somewhere-v0"})
    given = [part for pair in RIGHT.items() for part in pair]
    assert main(["pipeline", "submit", *given, "--dry-run"]) == 0
    err = capsys.readouterr().err
    assert "note: whether the parameters fit together was not checked here: env.id: " in err
    assert "The step plan does so, in the image and before any other step." in err


# -- compiled pipelines ---------------------------------------------------------------------------
@pytest.fixture
def template(project: Project, capsys: pytest.CaptureFixture[str]) -> Path:
    file = project.path / "pipeline.yaml"
    assert main(["pipeline", "compile", "-o", str(file), "--image", IMAGE]) == 0
    capsys.readouterr()
    return file


def changed(file: Path, change: Callable[[dict], object]) -> None:
    content = yaml.safe_load(file.read_text())
    change(content)
    file.write_text(yaml.safe_dump(content))


def test_templates_that_are_refused(refused: Refused, template: Path) -> None:
    good = template.read_text()

    def said() -> str:
        (line,) = refused("--template", str(template), without=("--image",))
        template.write_text(good)
        return line

    template.write_text(f"{good}\n---\nplatforms: {{}}\n")
    assert "holds 2 YAML documents" in said()
    template.write_text("a: [b")
    assert "is not YAML" in said()
    template.write_text("stages: {}")
    assert "holds no compiled pipeline" in said()
    changed(template, lambda spec: spec["pipelineInfo"].update(name="other"))
    assert 'is the pipeline "other", not Laurel\'s' in said()
    parameters = yaml.safe_load(good)["root"]["inputDefinitions"]["parameters"]
    changed(template, lambda spec: spec["root"]["inputDefinitions"].update(
        parameters={**parameters, "code_version": {"parameterType": "STRING", "defaultValue": "0.0.1"}}
    ))  # fmt: skip
    assert "was compiled by version 0.0.1 of Laurel" in said()
    changed(template, lambda spec: spec["root"]["inputDefinitions"]["parameters"].pop("shaping"))
    assert "its parameters differ from this version's in shaping" in said()
    template.write_text(good.replace(IMAGE, "laurel-python:latest"))
    assert "lies in no registry" in said()


def test_a_template_with_other_parts_than_the_parameters(refused: Refused, project: Project) -> None:
    project.change({"collect.parts": 2})
    assert main(["pipeline", "compile", "-o", "pipeline.yaml", "--image", IMAGE]) == 0
    project.change({"collect.parts": 3})
    (said,) = refused("--template", "pipeline.yaml", without=("--image",), printed="pipeline.yaml\n")
    assert said == "collect.parts is 3, but the pipeline was compiled with 2. Compile it again."


def test_what_does_not_go_with_a_template(refused: Refused, template: Path) -> None:
    said = refused("--template", str(template), "--gpu", "L4")
    assert [line.partition(" ")[0] for line in said] == ["--image", "--gpu"]


def test_an_accelerator_of_a_template_that_would_stand_idle(refused: Refused, project: Project) -> None:
    project.change({"agent.device": "auto", "pipeline": {"resources": {"train-agents": {"accelerator": "L4"}}}})
    assert main(["pipeline", "compile", "-o", "pipeline.yaml", "--image", IMAGE]) == 0
    project.change({"agent.device": "cpu"})
    (said,) = refused("--template", "pipeline.yaml", without=("--image",), printed="pipeline.yaml\n")
    assert said.startswith("step train-agents of pipeline.yaml asks for an accelerator, but agent.device is cpu, so it")
