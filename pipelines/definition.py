"""The pipeline on KFP: the stages of dvc.yaml as a graph, with a branch for every arm.

    plan ─────────────────────────────┐ arms
    collect → caption → annotate → train-reward → [train-agents, an arm each] → merge-agents → evaluate

Knows which stage reads what; knows nothing about where it runs. All parameters are one argument of a run, so
that a compiled pipeline serves every params.yaml. A branch trains all seeds of its arm: at most eight artifacts
are collected, far from the hundred that Vertex AI allows.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp import compiler, dsl

from laurel import __version__
from laurel.components import IMAGE
from laurel.components.annotate import annotate
from laurel.components.caption import caption
from laurel.components.collect import collect
from laurel.components.evaluate import evaluate
from laurel.components.merge_agents import merge_agents
from laurel.components.plan import plan
from laurel.components.train_agents import train_agents
from laurel.components.train_reward import train_reward
from laurel.errors import DataError, ParamsError, closest
from laurel.params import Params

NAME = "laurel"
RETRIES = 2
"""Further attempts at a step that failed, after 30 seconds and after 60."""


@dataclass(frozen=True)
class Resources:
    """What a step's machine has."""

    cpu: str | None = None
    """Cores, e.g. "4" or "500m"; None leaves it to the backend."""
    memory: str | None = None
    """E.g. "16G" or "512Mi"."""
    accelerator: str | None = None
    """Type, e.g. NVIDIA_TESLA_T4 on Vertex AI or nvidia.com/gpu on a cluster; None is a machine without one."""
    accelerators: int = 0
    """How many."""

    def __post_init__(self) -> None:
        for name, value, form in (("cpu", self.cpu, r"\d+m?|\d*\.\d+"), ("memory", self.memory, r"\d+([EPTGMK]i?)?")):
            if value is not None and not re.fullmatch(form, value):
                example = "4 or 500m" if name == "cpu" else "16G or 512Mi"
                raise ParamsError(f'{name} is "{value}", but must be a quantity such as {example}.')
        if (self.accelerator is None) != (self.accelerators == 0) or self.accelerators < 0:
            raise ParamsError(
                f"{self.accelerators} accelerators of type {self.accelerator}: give a type and a count of at least 1, "
                "or neither."
            )


RESOURCES: Mapping[str, Resources] = {
    "plan": Resources("1", "2G"),
    "collect": Resources("4", "8G"),
    "caption": Resources("2", "8G"),
    "annotate": Resources("4", "8G"),
    "train-reward": Resources("4", "8G"),
    "train-agents": Resources("8", "16G"),
    "merge-agents": Resources("1", "2G"),
    "evaluate": Resources("4", "8G"),
}
"""What each step gets unless told otherwise: no accelerator anywhere."""


def argument(params: Params) -> dict[str, Any]:
    """Return parameters as the pipeline's argument: KFP passes no null, which stands for a default everywhere
    but in the environment's own arguments.

    Raises:
        ParamsError: an argument of the environment is null.
    """
    content = params.dump()
    if _holds_null(content["env"]["kwargs"]):
        raise ParamsError(
            "env.kwargs holds null, which KFP cannot pass on. Leave that argument out if it is a default."
        )
    return _without_null(content)


def _holds_null(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(map(_holds_null, items))


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


def make_pipeline(
    params: Params,
    *,
    image: str = IMAGE,
    resources: Mapping[str, Resources] = RESOURCES,
    retries: int = RETRIES,
) -> Callable[..., Any]:
    """Return the pipeline; its parameters are `params` and `code_version`.

    Args:
        params: default of the pipeline's parameter of that name.
        image: what the steps run in; its reference is part of what KFP caches by.
        resources: step -> what its machine has; a step that is not named has what the backend gives.
        retries: further attempts at a step that failed.

    Raises:
        ParamsError: resources of a step that does not exist.
    """
    for name in resources:
        if name not in RESOURCES:
            raise ParamsError(f"{name} is no step.{closest(name, RESOURCES)} Steps: {', '.join(RESOURCES)}.")
    default = argument(params)

    def place(task: dsl.PipelineTask, step: str) -> dsl.PipelineTask:
        """Say where a task runs and how often it is tried."""
        task.set_container_image(image)
        if retries:
            task.set_retry(retries, backoff_duration="30s", backoff_factor=2.0, backoff_max_duration="300s")
        wanted = resources.get(step, Resources())
        if wanted.cpu:
            task.set_cpu_limit(wanted.cpu)
        if wanted.memory:
            task.set_memory_limit(wanted.memory)
        if wanted.accelerator:
            task.set_accelerator_type(wanted.accelerator).set_accelerator_limit(wanted.accelerators)
        return task

    @dsl.pipeline(
        name=NAME,
        description="Language-model feedback as reward for reinforcement learning, from collection to report.",
    )
    def laurel(params: dict[str, Any] = default, code_version: str = __version__) -> dsl.Artifact:
        """Learn a reward from a language model's preferences, train agents on it, and compare them.

        Args:
            params: The content of params.yaml.
            code_version: Commit or version of the code in the image. Steps are cached by it, too: change it whenever
                an image is built anew under an old name.

        Returns:
            The directory of report.html and metrics.json.
        """
        both = {"params": params, "code_version": code_version}
        arms = place(plan(**both), "plan").output
        trajectories = place(collect(**both), "collect").outputs["trajectories"]
        captions = place(caption(**both, trajectories=trajectories), "caption").outputs["captions"]
        preferences = place(annotate(**both, captions=captions), "annotate").outputs["preferences"]
        reward = place(
            train_reward(**both, trajectories=trajectories, captions=captions, preferences=preferences), "train-reward"
        ).outputs["reward"]
        feedback = {"captions": captions, "preferences": preferences, "reward": reward}
        with dsl.ParallelFor(items=arms, name="arms") as arm:
            shard = place(train_agents(**both, arm=arm, **feedback), "train-agents").outputs["agents"]
        agents = place(merge_agents(**both, **feedback, shards=dsl.Collected(shard)), "merge-agents").outputs["agents"]
        evaluation = place(evaluate(**both, trajectories=trajectories, **feedback, agents=agents), "evaluate")
        return evaluation.outputs["reports"]

    return laurel


def compile_pipeline(
    output: Path,
    params: Params,
    *,
    image: str = IMAGE,
    resources: Mapping[str, Resources] = RESOURCES,
    retries: int = RETRIES,
) -> None:
    """Write the pipeline as YAML that KFP and Vertex AI take; the other arguments are those of `make_pipeline`.

    Raises:
        DataError: the file cannot be written, or is not to be YAML.
        ParamsError: as `make_pipeline`.
    """
    if output.suffix not in (".yaml", ".yml"):
        raise DataError(f"{output}: the pipeline is YAML. Choose a name that ends in .yaml.")
    pipeline = make_pipeline(params, image=image, resources=resources, retries=retries)
    partial = output.with_name(f".{output.stem}.partial{output.suffix}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        compiler.Compiler().compile(pipeline, str(partial))
        text = partial.read_text(encoding="utf-8")
        # KFP's comment on the defaults names their keys in another order each time
        partial.write_text(re.sub(r"(?m)^(#\s+params: dict) \[Default: .*\]$", r"\1", text), encoding="utf-8")
        partial.replace(output)
    except OSError as error:
        raise DataError(f"{output}: cannot be written ({error.strerror}). Choose another --output.") from None
