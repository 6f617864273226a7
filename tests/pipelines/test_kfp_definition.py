"""The compiled pipeline: what KFP and Vertex AI are given."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import components

import laurel
from laurel.cli.app import main
from laurel.components import IMAGE
from laurel.components.encoding import decoded
from laurel.errors import DataError, ParamsError
from laurel.params import Params, load_params, parse_params
from laurel.params.pipeline import STEPS
from laurel.pipelines.accelerators import ACCELERATORS, check_count
from laurel.pipelines.definition import arguments, compile_pipeline, digest_of_sources
from laurel.pipelines.images import packages_of
from laurel.pipelines.machines import DEFAULTS, Resources, annotators_of, idle, resources
from laurel.stages.merge_agents import branches
from tiny_project import REPOSITORY

GOLDEN = REPOSITORY / "pipelines" / "pipeline.yaml"
BESIDE = {"plan", "finish", "laurel"}
"""Steps of KFP alone."""
DIVIDED = {"pipeline": {"annotate_shards": 2}, "collect": {"parts": 3}}


@pytest.fixture
def params() -> Params:
    return load_params(REPOSITORY / "params.yaml")


def changed(params: Params, changes: dict[str, Any]) -> Params:
    content = params.dump()
    for section, values in changes.items():
        content[section] = {**content[section], **values} if isinstance(values, dict) else values
    return parse_params(content, "test")


def compiled(path: Path, params: Params, **options: Any) -> dict[str, Any]:
    compile_pipeline(path / "p.yaml", params, **options)
    return yaml.safe_load((path / "p.yaml").read_text())


def tasks(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All tasks by name, those of loops and of the exit handler too."""
    found = dict(spec["root"]["dag"]["tasks"])
    for component in spec["components"].values():
        found |= component.get("dag", {}).get("tasks", {})
    return found


def containers(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    executors = spec["deploymentSpec"]["executors"]
    return {name.removeprefix("exec-"): executor["container"] for name, executor in executors.items()}


def test_the_clusters_file_mentions_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The compiled file names no folder of theirs: it is set where laurel submits."""
    monkeypatch.setattr("laurel.pipelines.definition.compile_pipeline", lambda *_, **__: None)
    compiling = ["pipeline", "compile", "-o", str(tmp_path / "p.yaml"), "--params", str(REPOSITORY / "params.yaml")]
    for more, told in (([], False), (["--cluster"], True)):
        assert main([*compiling, *more]) == 0
        note = "a retried training step starts over; submit passes on pipeline.checkpoints"
        assert (note in capsys.readouterr().err) == told


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
    sections = set(load_params(REPOSITORY / "params.yaml").dump()) - {"pipeline"}
    assert set(loaded.component_spec.inputs) == {*sections, "code_version"}


@pytest.mark.parametrize("changes", [{}, DIVIDED])
def test_edges_are_those_of_dvc(tmp_path: Path, params: Params, changes: dict[str, Any]) -> None:
    assert kfp_edges(compiled(tmp_path, changed(params, changes))) == dvc_edges()


def kfp_edges(spec: dict[str, Any]) -> set[tuple[str, str]]:
    """(step, step that reads what it writes), with a loop and its merger as one stage and without the plan."""
    stages: dict[str, str] = {}
    edges = set()
    everything = tasks(spec)
    for name in everything:
        inner = spec["components"][everything[name]["componentRef"]["name"]].get("dag", {}).get("tasks", {})
        stages[name] = next(iter(inner)) if name.startswith("for-loop") else name
        for merger, stage in (("trajectories", "collect"), ("preferences", "annotate"), ("agents", "train-agents")):
            if name == f"merge-{merger}":
                stages[name] = stage
    for name, task in everything.items():
        for source in task.get("dependentTasks", []):
            if source not in BESIDE and not source.startswith("exit-handler"):
                edges.add((stages[source], stages[name]))
    return {(source, task) for source, task in edges if source != task}


def dvc_edges() -> set[tuple[str, str]]:
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"]
    made = {next(iter(out)) if isinstance(out, dict) else out: name for name, s in stages.items() for out in s["outs"]}
    return {(made[dep], name) for name, stage in stages.items() for dep in stage["deps"] if dep in made}


def test_every_step_takes_the_sections_that_its_stage_reads() -> None:
    """So KFP's cache serves what a change of the others does not touch."""
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"]
    always = {"tracking", "env", "code_version"}
    steps = tasks(yaml.safe_load(GOLDEN.read_text()))
    for name, stage in stages.items():
        found = {parameter.split("-")[0] for parameter in steps[name]["inputs"]["parameters"]}
        if name == "evaluate":  # its report shows them all
            assert found == {*load_params(REPOSITORY / "params.yaml").dump(), "code_version"} - {"pipeline"}
        else:
            declared = {key.split(".")[0] for key in stage["params"]}
            assert found - {"branch", "judges", "pipelinechannel", "share", "shards"} == declared | always, name


@pytest.mark.parametrize("changes", [{}, DIVIDED])
def test_no_step_starts_before_the_plan_is_checked(tmp_path: Path, params: Params, changes: dict[str, Any]) -> None:
    spec = compiled(tmp_path, changed(params, changes))
    (handler,) = [part for name, part in spec["components"].items() if name.startswith("comp-exit-handler")]
    stages = handler["dag"]["tasks"]
    waits = {name: set(task.get("dependentTasks", [])) for name, task in stages.items()}
    assert [name for name, before in waits.items() if not before] == ["plan"], "all else waits for another"
    known = {*load_params(REPOSITORY / "params.yaml").dump()} - {"pipeline"}
    assert known <= set(stages["plan"]["inputs"]["parameters"]), "the plan sees all sections"


def test_every_branch_reads_what_the_stage_reads() -> None:
    steps = tasks(yaml.safe_load(GOLDEN.read_text()))
    assert set(steps["train-agents"]["inputs"]["artifacts"]) == {"captions", "preferences", "model"}
    (loop,) = [task for name, task in steps.items() if name.startswith("for-loop")]
    assert loop["parameterIterator"]["items"] == {"inputParameter": "pipelinechannel--plan-Output"}


def test_work_is_divided_as_the_params_say(tmp_path: Path, params: Params) -> None:
    steps = tasks(compiled(tmp_path, changed(params, DIVIDED)))
    loops = [task["parameterIterator"]["items"] for name, task in steps.items() if name.startswith("for-loop")]
    assert [items["raw"] for items in loops if "raw" in items] == ["[0, 1, 2]"]
    over = {items["inputParameter"] for items in loops if "inputParameter" in items}
    assert over == {"pipelinechannel--judges-Output", "pipelinechannel--plan-Output"}
    assert steps["judges"]["inputs"]["parameters"]["shards"]["runtimeValue"] == {"constant": 2.0}
    assert {"merge-trajectories", "merge-preferences"} <= set(steps)
    assert {name for name in steps if not name.startswith(("for-loop", "exit-handler"))} == set(STEPS)


@pytest.mark.parametrize("at_once", [None, 3])
def test_how_many_branches_run_at_once(tmp_path: Path, params: Params, at_once: int | None) -> None:
    content = {**DIVIDED, "pipeline": {**DIVIDED["pipeline"], "parallelism": at_once}}
    steps = tasks(compiled(tmp_path, changed(params, content)))
    loops = [task.get("iteratorPolicy") for name, task in steps.items() if name.startswith("for-loop")]
    assert loops == [None if at_once is None else {"parallelismLimit": 3}] * 3


def test_the_exit_handler_always_runs(tmp_path: Path, params: Params) -> None:
    root = yaml.safe_load(GOLDEN.read_text())["root"]["dag"]["tasks"]
    (stages,) = [name for name in root if name.startswith("exit-handler")]
    assert root["finish"]["triggerPolicy"] == {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    assert root["finish"]["dependentTasks"] == [stages]


def test_what_may_be_cached() -> None:
    steps = tasks(yaml.safe_load(GOLDEN.read_text()))
    uncached = {name for name, task in steps.items() if name in STEPS and not task["cachingOptions"]}
    assert uncached == {"plan", "evaluate", "finish"}, "evaluate logs its summary anew, the others know the run by name"
    for name, task in steps.items():
        run = [value for value in task["inputs"].get("parameters", {}).values() if "job_name" in str(value)]
        assert bool(run) == (name in uncached - {"evaluate"}), name


def test_image_environment_and_retries(tmp_path: Path, params: Params) -> None:
    once = changed(params, {"pipeline": {"retries": 0}})
    image = "registry.example/python@sha256:0"
    spec = compiled(tmp_path, once, image=image, environment={"MLFLOW_TRACKING_URI": "https://x"}, code_version="abc")
    for container in containers(spec).values():
        assert container["image"] == image
        assert container["env"] == [{"name": "MLFLOW_TRACKING_URI", "value": "https://x"}]
    assert not any("retryPolicy" in task for task in tasks(spec).values())
    assert spec["root"]["inputDefinitions"]["parameters"]["code_version"]["defaultValue"] == "abc"

    golden = yaml.safe_load(GOLDEN.read_text())
    assert {step["image"] for step in containers(golden).values()} == {IMAGE}
    for name, task in tasks(golden).items():
        if name in STEPS:
            assert task["retryPolicy"]["maxRetryCount"] == 2
            assert ("code_version" in task["inputs"]["parameters"]) == (name != "finish")


def test_local_runs_have_no_machine_options(tmp_path: Path, params: Params) -> None:
    spec = compiled(tmp_path, params, on_this_machine=True, retries=0)
    assert not any("retryPolicy" in task for task in tasks(spec).values())
    assert not any("resources" in container for container in containers(spec).values())


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ("train-agents", "train-agents asks for an accelerator, but agent.device is cpu, so it would be idle"),
        ("annotate", "annotate asks for an accelerator, but annotate.embedding.device is cpu"),
        ("collect", "collect asks for an accelerator, which this step cannot use; steps that can are annotate, train"),
    ],
)
def test_an_idle_accelerator_is_refused(tmp_path: Path, params: Params, step: str, sentence: str) -> None:
    wanted = changed(params, {"pipeline": {"resources": {step: {"accelerator": "L4"}}}})
    with pytest.raises(ParamsError, match=sentence):
        compile_pipeline(tmp_path / "p.yaml", wanted)
    assert not list(tmp_path.iterdir())


def test_one_reward_on_the_accelerator_is_enough(params: Params) -> None:
    def with_devices(*devices: str) -> Params:
        rewards = {f"mine_{n}": {"kind": "preference", "device": device} for n, device in enumerate(devices)}
        return parse_params({**params.dump(), "rewards": rewards}, "a test")

    assert idle(with_devices("cpu", "cuda"), "train-reward") is None
    keys = "rewards.mine_1.device and rewards.preference.device are cpu, so it would be idle. Set one of them to auto"
    assert keys in str(idle(with_devices("cpu", "cpu"), "train-reward"))


def test_a_gpu_serves_the_judge_that_is_asked_while_agents_are_trained_or_played(params: Params) -> None:
    def with_sections(**sections: Any) -> Params:
        content = {**params.dump(), "arms": {"online": {"reward": "online"}}, "rewards": {}, **sections}
        return parse_params(content, "a test")

    def stands_idle(step: str = "train-agents", **sections: Any) -> bool:
        return idle(with_sections(**sections), step) is not None

    judged = {"annotator": "huggingface", "huggingface": {"device": "auto"}}
    assert stands_idle()
    assert not stands_idle(annotate=judged)
    assert stands_idle(annotate=judged, rewards={"online": {"replay": "data/agents"}})
    assert stands_idle(annotate=judged, arms=["extrinsic"])
    curriculum = {**params.dump()["agent"], "curriculum": {"interest": "main"}}
    assert not stands_idle(annotate=judged, arms=["extrinsic"], agent=curriculum)

    player = {"annotator": "huggingface", "huggingface": {"device": "auto", "quantization": "4bit"}}
    asked = {"annotate": {"judges": {"player": player}}}
    hints = {"actor": "llm_policy", "options": {"judge": "player"}}
    hinted = {"extrinsic": {"agent": {"ppo": {"hints": hints}}}}
    assert stands_idle(**asked, arms=["extrinsic"])
    assert not stands_idle(**asked, arms=hinted)
    assert not stands_idle(**asked, arms={"paid": {"reward": "llm_hints"}}, rewards={"llm_hints": hints})
    played = {"llm": {"reward": {}, "agent": {"actor": "llm_policy", "options": {"judge": "player"}}}}
    assert not stands_idle("evaluate", **asked, arms=played)
    assert stands_idle("evaluate", **asked, arms=hinted)
    written = {"arms": {"code": {"reward": "code"}}, "rewards": {"code": {"writer": "player"}}}
    assert not stands_idle("train-reward", **asked, **written)
    unknown = {"arms": {"code": {"reward": "code"}}, "rewards": {"code": {"writer": "nobody"}}}
    assert stands_idle("train-reward", **asked, **unknown), "the check of the reward names what is wrong"
    packages = packages_of(annotators_of(with_sections(**asked, arms=hinted), "train-agents"))
    assert packages == ("bitsandbytes", "accelerate")


WANTED = {
    "agent": {"device": "auto"},
    "pipeline": {
        "resources": {"train-agents": {"cpu": 7.5, "accelerator": "T4", "accelerators": 2}, "collect": {"memory": "4G"}}
    },
}


def test_resources(tmp_path: Path, params: Params) -> None:
    wanted = changed(params, WANTED)
    assert resources(wanted)["train-agents"] == Resources(7.5, "16G", "T4", 2)
    assert resources(wanted)["collect"] == Resources(4, "4G")
    assert resources(wanted)["caption"] == DEFAULTS["caption"]
    found = {name: step["resources"] for name, step in containers(compiled(tmp_path, wanted)).items()}
    assert found["train-agents"]["resourceCpuLimit"] == "7.5"
    assert found["train-agents"]["resourceMemoryLimit"] == "16G"
    assert found["train-agents"]["accelerator"]["resourceType"] == "NVIDIA_TESLA_T4"
    assert found["train-agents"]["accelerator"]["resourceCount"] == "2"
    assert found["collect"]["resourceMemoryLimit"] == "4G"
    assert not any("accelerator" in resources for name, resources in found.items() if name != "train-agents")
    on_kubernetes = containers(compiled(tmp_path, wanted, cluster=True))["train-agents"]["resources"]["accelerator"]
    assert on_kubernetes["resourceType"] == "nvidia.com/gpu"


def test_by_default_there_is_no_accelerator_and_params_yaml_shows_what_there_is(params: Params) -> None:
    assert not any(machine.accelerator for machine in resources(params).values())
    assert resources(params) == DEFAULTS
    assert tuple(DEFAULTS) == STEPS


def test_accelerators() -> None:
    from typing import get_args

    from google.cloud.aiplatform_v1.types import AcceleratorType

    from laurel.params.pipeline import Accelerator

    assert tuple(ACCELERATORS) == get_args(Accelerator)
    assert {kind.vertex for kind in ACCELERATORS.values()} <= {kind.name for kind in AcceleratorType}
    check_count("train-agents", "L4", 4)
    with pytest.raises(ParamsError, match="asks for 3 accelerators of type L4, but a machine of Vertex AI has 1, 2"):
        check_count("train-agents", "L4", 3)


@pytest.mark.parametrize("name", ["stages/collect.py", "feedback/prompts/pair/motif.jinja"])
def test_the_digest_of_the_sources_covers_prompts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are cached by it, and a prompt changes the answers as code does."""
    for file in (tmp_path / name, tmp_path / "__pycache__" / "a.pyc"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("one")
    monkeypatch.setattr(laurel, "__path__", [str(tmp_path)])
    before = digest_of_sources()
    (tmp_path / "__pycache__" / "a.pyc").write_text("two")
    assert digest_of_sources() == before
    (tmp_path / name).write_text("two")
    assert digest_of_sources() != before


def test_the_arguments_say_all_parameters(params: Params) -> None:
    """As KFP sends them: without null, with whole numbers as floats, and no infinite ones, such as Hopper's range."""
    odd = {"desc": [None, "null", "~~null", "nullable", {"deep": None}], "is_slippery": False}
    odd |= {"healthy_z_range": [0.7, math.inf], "low": -math.inf, "texts": [".inf", "~-.inf", ".nan", "inf"]}
    odd |= {"keys": [2**53 + 1, -(2**60) - 1, 2**53], "far": 1e300, "of": ["integer 5", "~integer 5", "integer"]}
    odd |= {"slip": 0.0, "size": [5.0, 5, -0.0], "deeper": {"far": 1e22, "of": ["float 5.0", "~float 5.0", "float"]}}
    content = changed(params, {"env": {"kwargs": odd}, "agent": {"seeds": [3]}}).dump()
    gates = content["annotate"]["gates"]
    gates |= dict.fromkeys(gates)
    whole = parse_params(content, "test")
    said = arguments(whole, "abc")
    assert said.pop("code_version") == "abc"
    assert parse_params(decoded(as_kfp_sends(said)), "arguments") == whole.model_copy(
        update={"pipeline": type(whole.pipeline)()}
    )
    assert repr(decoded(as_kfp_sends(said))["env"]["kwargs"]) == repr(odd)


def as_kfp_sends(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_kfp_sends(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [as_kfp_sends(item) for item in value if item is not None]
    assert not isinstance(value, float) or math.isfinite(value), "KFP refuses others"
    return float(value) if type(value) is int else value


def test_a_file_that_cannot_be_written(tmp_path: Path, params: Params) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        compile_pipeline(tmp_path / "file" / "p.yaml", params)
    with pytest.raises(DataError, match=r"Choose a name that ends in \.yaml"):
        compile_pipeline(tmp_path / "p.json", params)


def test_each_trained_arm_and_group_of_seeds_has_a_branch(params: Params) -> None:
    from laurel.params.arms import WELL_KNOWN, arm_of

    full = changed(params, {"arms": "full", "agent": {"seeds": [0, 1, 2]}})
    arms = [arm for arm in WELL_KNOWN if arm_of(arm).trained]
    assert [branch.arm for branch in branches(full.arms, full.agent.seeds, None)] == arms
    assert [branch.seeds for branch in branches(full.arms, full.agent.seeds, 2)] == [(0, 1), (2,)] * len(arms)
    (alone,) = branches(changed(params, {"arms": ["random_policy"]}).arms, (0,), None)
    assert alone.arm == "random_policy"
    many = changed(params, {"arms": "full", "agent": {"seeds": list(range(20))}})
    with pytest.raises(ParamsError, match=r"makes 140 branches of 7 arms and 20 seeds, but at most 100 .* Set it to 2"):
        branches(many.arms, many.agent.seeds, 1)
    assert len(branches(many.arms, many.agent.seeds, 2)) == 70
