"""What `laurel pipeline submit` refuses of a pipeline that was compiled before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from submitting import IMAGE, Refused

from laurel.cli.app import main
from tiny_project import Project


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
    assert "is not in a registry" in said()


def test_a_template_with_other_parts_than_the_parameters(refused: Refused, project: Project) -> None:
    project.change({"collect.parts": 2})
    assert main(["pipeline", "compile", "-o", "pipeline.yaml", "--image", IMAGE]) == 0
    project.change({"collect.parts": 3})
    (said,) = refused("--template", "pipeline.yaml", without=("--image",), printed="pipeline.yaml\n")
    assert said == "collect.parts is 3, but the pipeline was compiled with 2. Compile it again."


def test_options_that_conflict_with_a_template(refused: Refused, template: Path) -> None:
    said = refused("--template", str(template), "--gpu", "L4")
    assert [line.partition(" ")[0] for line in said] == ["--image", "--gpu"]


def test_an_accelerator_of_a_template_that_would_stand_idle(refused: Refused, project: Project) -> None:
    project.change({"agent.device": "auto", "pipeline": {"resources": {"train-agents": {"accelerator": "L4"}}}})
    assert main(["pipeline", "compile", "-o", "pipeline.yaml", "--image", IMAGE]) == 0
    project.change({"agent.device": "cpu"})
    (said,) = refused("--template", "pipeline.yaml", without=("--image",), printed="pipeline.yaml\n")
    assert said.startswith("step train-agents of pipeline.yaml asks for an accelerator, but agent.device is cpu, so it")
