"""The images that steps run in: which steps need CUDA, and which packages the parameters need."""

from __future__ import annotations

from dataclasses import dataclass

from laurel.feedback.annotator_kind import kind_of
from laurel.params import Params
from laurel.pipelines.template import Spec, tasks


@dataclass(frozen=True)
class Needs:
    """What the steps need of their image, beside Laurel."""

    cuda: bool = False
    """For an accelerator."""
    packages: tuple[str, ...] = ()
    """Of Python, beyond those that every image has."""


NOTHING = Needs()


def needed(spec: Spec, params: Params) -> dict[str, Needs]:
    """Return what the steps that run in each image need of it."""
    found: dict[str, Needs] = {}
    for task in tasks(spec):
        packages = packages_of(params) if task.name == "annotate" else ()
        before = found.get(task.image, NOTHING)
        found[task.image] = Needs(before.cuda or task.machine.accelerators > 0, before.packages or packages)
    return found


def packages_of(params: Params) -> tuple[str, ...]:
    """Return the packages that annotating needs and no image has unless it was built with them."""
    return tuple(dict.fromkeys(name for voter in params.annotate.all_voters for name in kind_of(voter).packages))


def check_quantization(spec: Spec, params: Params) -> str | None:
    """Say what is wrong with weights in few bits, which only a GPU can compute with, in a step without one."""
    without = any(task.name == "annotate" and not task.machine.accelerators for task in tasks(spec))
    if not (without and "bitsandbytes" in packages_of(params)):
        return None
    return (
        "annotate.huggingface.quantization needs a GPU, but the step annotate runs without one: set "
        "pipeline.resources.annotate.accelerator, or add --gpu L4"
    )
