"""The compiled pipeline: what KFP and Vertex AI are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import components

from laurel.cli import main
from laurel.components import IMAGE
from laurel.errors import DataError, ParamsError
from laurel.params import Params, load_params, parse_params
from laurel.pipelines.definition import RESOURCES, Resources, argument, compile_pipeline
from laurel.stages.merge_agents import arms_to_train
from tiny_project import REPOSITORY

GOLDEN = REPOSITORY / "pipelines" / "pipeline.yaml"
BRANCHES = "train-agents"
"""In dvc.yaml one stage; in KFP a loop over arms and their merger."""


@pytest.fixture
def params() -> Params:
    return load_params(REPOSITORY / "params.yaml")


def compiled(path: Path, params: Params, **options: Any) -> dict[str, Any]:
    compile_pipeline(path / "p.yaml", params, **options)
    return yaml.safe_load((path / "p.yaml").read_text())


def containers(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    executors = spec["deploymentSpec"]["executors"]
    return {name.removeprefix("exec-"): executor["container"] for name, executor in executors.items()}


def test_the_committed_yaml_is_what_compiles(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    code = main(["pipeline", "compile", "-o", str(file), "--params", str(REPOSITORY / "params.yaml")])
    assert code == 0
    assert file.read_text() == GOLDEN.read_text(), (
        "the pipeline has changed: laurel pipeline compile -o pipelines/pipeline.yaml"
    )


def test_kfp_and_vertex_can_load_it() -> None:
    assert len(list(yaml.safe_load_all(GOLDEN.read_text()))) == 1  # Vertex AI's client refuses two
    loaded = components.load_component_from_file(str(GOLDEN))
    assert loaded.name == "laurel"
    assert set(loaded.component_spec.inputs) == {"params", "code_version"}


def test_edges_are_those_of_dvc() -> None:
    spec = yaml.safe_load(GOLDEN.read_text())
    assert kfp_edges(spec) == dvc_edges()


def kfp_edges(spec: dict[str, Any]) -> set[tuple[str, str]]:
    """(step, step that reads what it writes), with the loop and its merger as one step and without the plan."""
    names = {"for-loop-1": BRANCHES, "merge-agents": BRANCHES}
    edges = {
        (names.get(source, source), names.get(task, task))
        for task, content in spec["root"]["dag"]["tasks"].items()
        for source in content.get("dependentTasks", [])
        if source != "plan"
    }
    return {(source, task) for source, task in edges if source != task}


def dvc_edges() -> set[tuple[str, str]]:
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"]
    made = {next(iter(out)) if isinstance(out, dict) else out: name for name, s in stages.items() for out in s["outs"]}
    return {(made[dep], name) for name, stage in stages.items() for dep in stage["deps"] if dep in made}


def test_every_branch_reads_what_the_stage_reads() -> None:
    spec = yaml.safe_load(GOLDEN.read_text())
    loop = spec["components"]["comp-for-loop-1"]["dag"]["tasks"]
    assert set(loop) == {"train-agents"}
    assert set(loop["train-agents"]["inputs"]["artifacts"]) == {"captions", "preferences", "reward"}
    assert spec["root"]["dag"]["tasks"]["for-loop-1"]["parameterIterator"]["items"] == {
        "inputParameter": "pipelinechannel--plan-Output"
    }


def test_image_and_retries(tmp_path: Path, params: Params) -> None:
    spec = compiled(tmp_path, params, image="registry.example/python@sha256:0", retries=0)
    assert {step["image"] for step in containers(spec).values()} == {"registry.example/python@sha256:0"}
    assert not any("retryPolicy" in task for task in spec["root"]["dag"]["tasks"].values())

    golden = yaml.safe_load(GOLDEN.read_text())
    assert {step["image"] for step in containers(golden).values()} == {IMAGE}
    assert set(containers(golden)) == set(RESOURCES)
    tasks = {**golden["root"]["dag"]["tasks"], **golden["components"]["comp-for-loop-1"]["dag"]["tasks"]}
    assert {name for name, task in tasks.items() if "retryPolicy" not in task} == {"for-loop-1"}
    assert all("code_version" in task["inputs"]["parameters"] for name, task in tasks.items() if name != "for-loop-1")


def test_resources(tmp_path: Path, params: Params) -> None:
    wanted = {"train-agents": Resources("8", "30G", "NVIDIA_TESLA_T4", 2), "collect": Resources(memory="4G")}
    found = {
        name: step.get("resources", {})
        for name, step in containers(compiled(tmp_path, params, resources=wanted)).items()
    }
    assert found["train-agents"]["resourceCpuLimit"] == "8"
    assert found["train-agents"]["resourceMemoryLimit"] == "30G"
    assert found["train-agents"]["accelerator"]["resourceType"] == "NVIDIA_TESLA_T4"
    assert found["train-agents"]["accelerator"]["resourceCount"] == "2"
    assert "resourceCpuLimit" not in found["collect"]
    assert found["caption"] == {}
    by_default = containers(yaml.safe_load(GOLDEN.read_text()))
    assert not any("accelerator" in step["resources"] for step in by_default.values())


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"cpu": "many"}, 'cpu is "many", but must be a quantity such as 4'),
        ({"memory": "16 GB"}, 'memory is "16 GB", but must be a quantity such as 16G'),
        ({"accelerators": 1}, "1 accelerators of type None"),
        ({"accelerator": "NVIDIA_L4"}, "0 accelerators of type NVIDIA_L4"),
        ({"accelerator": "NVIDIA_L4", "accelerators": -1}, "-1 accelerators"),
    ],
)
def test_resources_that_make_no_sense(wanted: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParamsError, match=sentence):
        Resources(**wanted)


def test_resources_of_no_step(tmp_path: Path, params: Params) -> None:
    with pytest.raises(ParamsError, match=r'train-agent is no step. Did you mean "train-agents"\?'):
        compile_pipeline(tmp_path / "p.yaml", params, resources={"train-agent": Resources()})
    assert not list(tmp_path.iterdir())


def test_the_argument_says_all_parameters(params: Params) -> None:
    assert parse_params(argument(params), "argument") == params
    changed = params.model_copy(update={"env": params.env.model_copy(update={"kwargs": {"desc": [None]}})})
    with pytest.raises(ParamsError, match=r"env.kwargs holds null"):
        argument(changed)


def test_a_file_that_cannot_be_written(tmp_path: Path, params: Params) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        compile_pipeline(tmp_path / "file" / "p.yaml", params)
    with pytest.raises(DataError, match=r"Choose a name that ends in \.yaml"):
        compile_pipeline(tmp_path / "p.json", params)


def test_arms_to_train(params: Params) -> None:
    from laurel.agents.arms import needs_training
    from laurel.params import ARMS

    content = params.dump()
    content["agent"]["arms"] = "full"
    assert arms_to_train(parse_params(content, "test")) == [arm for arm in ARMS if needs_training(arm)]
    content["agent"]["arms"] = ["random_policy"]
    assert arms_to_train(parse_params(content, "test")) == ["random_policy"]
