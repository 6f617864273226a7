"""The machine of each step: cores, memory, and an accelerator where the step can use one."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from typing import Any

from laurel.errors import ParamsError
from laurel.feedback.annotator_kind import kind_of
from laurel.params import Params
from laurel.params.annotation import AnnotateParams
from laurel.params.pipeline import Accelerator
from laurel.params.resolved_arms import served_actors, tuned_together
from laurel.params.rewards import method_of
from laurel.stages.workload import judges_in_evaluation, judges_in_training


@dataclass(frozen=True)
class Resources:
    """The machine of a step."""

    cpu: float
    """Cores."""
    memory: str
    """E.g. "16G" or "512Mi"."""
    accelerator: Accelerator | None = None
    """Type; None is a machine without one."""
    accelerators: int = 0
    """How many."""


DEFAULTS: Mapping[str, Resources] = {
    "plan": Resources(1, "2G"),
    "judges": Resources(1, "2G"),
    "collect": Resources(4, "8G"),
    "merge-trajectories": Resources(1, "4G"),
    "caption": Resources(2, "8G"),
    "annotate": Resources(4, "8G"),
    "merge-preferences": Resources(1, "4G"),
    "train-reward": Resources(4, "8G"),
    "train-agents": Resources(8, "16G"),
    "merge-agents": Resources(1, "4G"),
    "evaluate": Resources(4, "8G"),
    "finish": Resources(1, "2G"),
}
"""Default machine of each step: no accelerators."""


def resources(params: Params) -> dict[str, Resources]:
    """Return step -> machine."""
    by_step = dict(DEFAULTS)
    for step, wanted in params.pipeline.resources.items():
        default = DEFAULTS[step]
        count = (1 if wanted.accelerators is None else wanted.accelerators) if wanted.accelerator else 0
        by_step[step] = Resources(wanted.cpu or default.cpu, wanted.memory or default.memory, wanted.accelerator, count)
    return by_step


def sampler(params: Params) -> Resources:
    """Return the machine of propose: that of train-agents, with all its accelerators only if a server uses them."""
    trainer = resources(params)["train-agents"]
    return (
        trainer if samples_by_server(params, "propose") else replace(trainer, accelerators=min(1, trainer.accelerators))
    )


GPU_USERS = ("annotate", "train-reward", "train-agents")
"""Steps that can use an accelerator."""
AGENT_TRAINERS = ("train-agents", "try-candidate", "train-round")
"""Steps that train agents."""
ON_TRAINERS_MACHINE = (*AGENT_TRAINERS, "propose")
"""Steps whose machine is that of train-agents."""


def machine_of(step: str) -> str:
    """Return the step whose entry in pipeline.resources says what machine a step has."""
    return "train-agents" if step in ON_TRAINERS_MACHINE else step


def device_keys(params: Params, step: str) -> list[str]:
    """Return the parameters that say whether a step uses an accelerator; none where it cannot."""
    match step:
        case "train-reward":
            return [
                f"rewards.{name}.device" for name, settings in params.rewards.items() if hasattr(settings, "device")
            ]
        case "train-agents":
            return ["agent.device"]
        case "annotate":
            judges = sorted(map(kind_of, params.annotate.all_voters), key=lambda kind: not kind.local)
            return [f"annotate.{kind.device_key}" for kind in judges if kind.device_key][:1]
    return []


def annotators_of(params: Params, step: str) -> Iterator[AnnotateParams]:
    """Yield the annotators that a step asks: about pairs, for other rewards, while agents are trained, or as actors."""
    judges: Iterable[str | None] = ()
    match step:
        case "annotate":
            yield from params.annotate.all_voters
        case "train-reward":
            judges = [method_of(settings).asked_in_fit() for settings in params.rewards.values()]
        case _ if step in AGENT_TRAINERS:
            judges = judges_in_training(params)
        case "evaluate":
            judges = judges_in_evaluation(params)
    all_judges = params.annotate.all_judges
    for judge in dict.fromkeys(judges):
        if judge in all_judges:  # others are refused when they are asked
            yield from all_judges[judge].voters


def models_of(params: Params, step: str) -> set[str]:
    """Return the language models that a step trains or evaluates: agents, and rewards of texts."""
    if step == "train-reward":
        named = (method_of(settings).trained_model() for settings in params.rewards.values())
        return {model for model in named if model is not None}
    if step not in (*ON_TRAINERS_MACHINE, "evaluate"):
        return set()
    trained = [arm.agent.settings for arm in params.resolved_arms.values() if arm.trained]
    acting = [str(arm.actor_options.get("model")) for arm in params.arms if arm.actor is not None]
    return {*acting, *(str(getattr(settings, "model", None)) for settings in trained)}


def starts_server(judge: AnnotateParams) -> bool:
    """Whether a judge is a server that the step starts itself, on all accelerators of its machine."""
    return getattr(judge.section, "serve", None) is not None


def samples_by_server(params: Params, step: str) -> bool:
    """Whether a step starts servers that sample proposals, on all accelerators of its machine."""
    return step in ON_TRAINERS_MACHINE and bool(served_actors(params.resolved_arms.values()))


def tunes_together(params: Params, step: str) -> bool:
    """Whether a step tunes a language model by several processes, each on an accelerator."""
    return step in AGENT_TRAINERS and tuned_together(params.resolved_arms.values())


def uses_all(params: Params, step: str) -> bool:
    """Whether a step uses more than one accelerator."""
    several = samples_by_server(params, step) or tunes_together(params, step)
    return several or any(map(starts_server, annotators_of(params, step)))


def _uses_gpu(judge: AnnotateParams) -> bool:
    return starts_server(judge) or getattr(judge.section, "device", "cpu") != "cpu"


def idle(params: Params, step: str) -> str | None:
    """Return why a step's accelerator would be idle; None if it is used."""
    if samples_by_server(params, step) or any(map(_uses_gpu, annotators_of(params, step))):
        return None
    if step not in GPU_USERS:
        return f"which this step cannot use; steps that can are {', '.join(GPU_USERS)}."
    keys = device_keys(params, step)
    if not keys:
        return f"but annotate.annotator is {params.annotate.annotator}, which would not use it."
    devices: list[Any] = [reduce(getitem, key.split("."), params.dump()) for key in keys]
    if set(devices) == {"cpu"}:
        verb, pronoun = ("is", "that") if len(keys) == 1 else ("are", "one of them")
        return f"but {' and '.join(keys)} {verb} cpu, so it would be idle. Set {pronoun} to auto or cuda."
    return None


def check_accelerators(params: Params) -> None:
    """Raise if an accelerator would be idle.

    Raises:
        ParamsError: a step has one and cannot use it, or may not by its params.
    """
    for step, machine in resources(params).items():
        if machine.accelerator and (reason := idle(params, step)):
            raise ParamsError(f"pipeline.resources.{step} asks for an accelerator, {reason}")
