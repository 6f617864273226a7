"""The images that steps run in: which steps need CUDA, and which packages the parameters need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from laurel.feedback.annotator_kind import kind_of
from laurel.llm import smollm2
from laurel.params import Params
from laurel.params.annotation import AnnotateParams
from laurel.pipelines.machines import annotators_of, machine_of, models_of, samples_by_server
from laurel.pipelines.template import Spec, tasks


@dataclass(frozen=True)
class Needs:
    """Requirements of steps for their image, besides Laurel."""

    cuda: bool = False
    """Whether it is for an accelerator."""
    packages: tuple[str, ...] = ()
    """Python packages beyond those that every image has."""


NOTHING = Needs()


def needed(spec: Spec, params: Params) -> dict[str, Needs]:
    """Return what each image must have for the steps that run in it."""
    found: dict[str, Needs] = {}
    for task in tasks(spec):
        packages = packages_of(annotators_of(params, task.name))
        if samples_by_server(params, task.name):
            packages = (*packages, "vllm")
        if smollm2.NAME in models_of(params, task.name):
            packages = (*packages, smollm2.PACKAGE)
        before = found.get(task.image, NOTHING)
        every = tuple(dict.fromkeys([*before.packages, *packages]))
        found[task.image] = Needs(before.cuda or task.machine.accelerators > 0, every)
    return found


def packages_of(voters: Iterable[AnnotateParams]) -> tuple[str, ...]:
    """Return the packages that annotators need and no image has unless it was built with them."""
    return tuple(dict.fromkeys(name for voter in voters for name in kind_of(voter).packages))


def check_quantization(spec: Spec, params: Params) -> str | None:
    """Report quantised weights, which need a GPU, in a step without one."""
    for task in tasks(spec):
        if not task.machine.accelerators and "bitsandbytes" in packages_of(annotators_of(params, task.name)):
            return (
                f"annotate.huggingface.quantization needs a GPU, but the step {task.name} runs without one: set "
                f"pipeline.resources.{machine_of(task.name)}.accelerator, or add --gpu L4"
            )
    return None
