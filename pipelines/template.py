"""A compiled pipeline as data: reading and checking it, listing its tasks, setting its environment and caching."""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from laurel import __version__
from laurel.errors import DataError
from laurel.params import Params
from laurel.params.file import parse_documents
from laurel.params.pipeline import SWEEP_STEPS
from laurel.pipelines.definition import NAME, compile_pipeline
from laurel.pipelines.sweep import SweepPlan
from laurel.textfile import UnfitFileError, read_text

Spec = dict[str, Any]
"""KFP's PipelineSpec, as JSON values."""
MOST_BYTES = 5_000_000
COMPILE = "Make one: laurel pipeline compile -o pipeline.yaml --image IMAGE"


@dataclass(frozen=True)
class Machine:
    """Resource requests of a step's container."""

    cpu: str
    memory: str
    accelerator: str
    accelerators: int


@dataclass(frozen=True)
class Task:
    """A step of the pipeline, with the loops that it is in."""

    name: str
    loops: tuple[int | None, ...]
    """Number of iterations of each enclosing loop; None if only known at run time."""
    at_once: int | None
    """Maximum number of concurrent iterations of the innermost loop; None: all."""
    cached: bool
    attempts: int
    machine: Machine
    image: str


def compiled(params: Params, image: str, **form: Any) -> Spec:
    """Compile the pipeline; the other arguments are those of `compile_pipeline`."""
    with tempfile.TemporaryDirectory(prefix="laurel-") as folder:
        file = Path(folder) / "pipeline.yaml"
        compile_pipeline(file, params, image=image, **form)
        return _documents(file)[0]


def read_template(path: Path) -> Spec:
    """Read a pipeline that `laurel pipeline compile` of this version has written.

    Raises:
        DataError: it does not exist, is not Laurel's, or another version's.
    """
    documents = _documents(path)
    if len(documents) != 1:
        raise DataError(
            f"{path}: holds {len(documents)} YAML documents, but a pipeline for Vertex AI is one, without settings of "
            f"Kubernetes. {COMPILE}"
        )
    spec = documents[0]
    match spec:
        case {"pipelineInfo": {"name": str(name)}, "root": {"dag": dict()}, "deploymentSpec": {"executors": dict()}}:
            pass
        case _:
            raise DataError(f"{path}: holds no compiled pipeline. {COMPILE}")
    if name != NAME:
        raise DataError(f'{path}: is the pipeline "{name}", not Laurel\'s. {COMPILE}')
    version = _parameters(spec).get("code_version", {}).get("defaultValue")
    if version != __version__:
        raise DataError(
            f"{path}: was compiled by version {version or 'unknown'} of Laurel, and this is {__version__}. {COMPILE}"
        )
    return spec


def _documents(path: Path) -> list[Any]:
    try:
        return [document for document in parse_documents(read_text(path, MOST_BYTES)) if document is not None]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. {COMPILE}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). {COMPILE}") from None
    except UnfitFileError as error:
        raise DataError(f"{path}: {error} {COMPILE}") from None
    except (yaml.YAMLError, RecursionError):
        raise DataError(f"{path}: is not YAML. {COMPILE}") from None


def _parameters(spec: Spec) -> Mapping[str, Any]:
    return spec["root"].get("inputDefinitions", {}).get("parameters", {})


def check_arguments(spec: Spec, arguments: Mapping[str, Any], source: str) -> None:
    """Raise if the pipeline does not accept the arguments.

    Raises:
        DataError: there is one, or one that it needs is missing.
    """
    known = _parameters(spec)
    needed = {name for name, content in known.items() if "defaultValue" not in content}
    if wrong := sorted((set(arguments) - set(known)) | (needed - set(arguments))):
        raise DataError(f"{source}: its parameters differ from this version's in {', '.join(wrong)}. {COMPILE}")


def completed(spec: Spec, environment: Mapping[str, str], *, cache: bool) -> Spec:
    """Return the pipeline with variables in every step's environment, and without caching if so wanted."""
    spec = copy.deepcopy(spec)
    for executor in spec["deploymentSpec"]["executors"].values():
        container = executor["container"]
        existing = {variable["name"]: variable["value"] for variable in container.get("env", [])}
        if variables := {**existing, **environment}:
            container["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    if not cache:
        for component in (spec["root"], *spec["components"].values()):
            for task in component.get("dag", {}).get("tasks", {}).values():
                task["cachingOptions"] = {"enableCache": False}
    return spec


def images(spec: Spec) -> list[str]:
    """Return the references of the images that the steps run in."""
    return sorted({executor["container"]["image"] for executor in spec["deploymentSpec"]["executors"].values()})


def constant(spec: Spec, step: str, parameter: str) -> Any:
    """Return the constant that a step's parameter was compiled to."""
    dags = [
        component["dag"]["tasks"] for component in (spec["root"], *spec["components"].values()) if "dag" in component
    ]
    task = next(dag[step] for dag in dags if step in dag)
    value = task["inputs"]["parameters"][parameter]["runtimeValue"]["constant"]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def compiled_sweep(spec: Spec) -> SweepPlan | None:
    """Return the sweep that a pipeline was compiled with; None if it trains all arms."""
    for component in spec["components"].values():
        for loop in component.get("dag", {}).get("tasks", {}).values():
            inner_tasks = spec["components"][loop["componentRef"]["name"]].get("dag", {}).get("tasks", {})
            if SWEEP_STEPS[0] in inner_tasks:
                written = constant(spec, SWEEP_STEPS[0], "sweep")
                return SweepPlan.read(written, json.loads(loop["parameterIterator"]["items"]["raw"]))
    return None


def tasks(spec: Spec) -> Iterator[Task]:
    """List the steps in the order in which they can run, the end of the pipeline last."""
    yield from _tasks(spec, spec["root"]["dag"]["tasks"], (), None)


def _tasks(spec: Spec, dag: Mapping[str, Any], loops: tuple[int | None, ...], at_once: int | None) -> Iterator[Task]:
    for task in _in_order(dag):
        component = spec["components"][task["componentRef"]["name"]]
        enclosing, limit = loops, at_once
        if "parameterIterator" in task:
            enclosing = (*loops, _repeats(spec, task["parameterIterator"]["items"]))
            limit = task.get("iteratorPolicy", {}).get("parallelismLimit")
        if "dag" in component:
            yield from _tasks(spec, component["dag"]["tasks"], enclosing, limit)
        else:
            container = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
            yield Task(
                name=re.sub(r"-\d+$", "", task["taskInfo"]["name"]),  # KFP numbers those of one component
                loops=enclosing,
                at_once=limit,
                cached=bool(task.get("cachingOptions", {}).get("enableCache")),
                attempts=1 + task.get("retryPolicy", {}).get("maxRetryCount", 0),
                machine=_machine(container.get("resources", {})),
                image=container.get("image", ""),
            )


def _in_order(dag: Mapping[str, Any]) -> list[Any]:
    """Sort tasks topologically."""
    waits = {name: set(task.get("dependentTasks", [])) for name, task in dag.items()}
    return [dag[name] for name in TopologicalSorter(waits).static_order()]


def _repeats(spec: Spec, items: Mapping[str, Any]) -> int | None:
    """Return how often a loop repeats; None for the branches of training, which the plan lists."""
    if "raw" in items:
        return len(json.loads(items["raw"]))
    return constant(spec, "judges", "shards") if items["inputParameter"].endswith("--judges-Output") else None


def _machine(resources: Mapping[str, Any]) -> Machine:
    accelerator = resources.get("accelerator", {})
    return Machine(
        cpu=resources.get("resourceCpuLimit", ""),
        memory=resources.get("resourceMemoryLimit", ""),
        accelerator=accelerator.get("resourceType", ""),
        accelerators=int(accelerator.get("resourceCount", 0)),
    )
