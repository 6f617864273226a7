"""Modules that the pool's fork server imports once, instead of each worker process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Literal

from laurel.envs import modules_of
from laurel.params import EnvParams
from laurel.params.arms import Arm

Work = Literal["play", "reward", "train"]
_MODULES: Mapping[Work, tuple[str, ...]] = {
    "play": ("laurel.evaluation.play", "laurel.agents.actors.checkpoint", "laurel.rewards.model"),
    "reward": ("laurel.rewards.stored", "laurel.rewards.training", "torch._dynamo"),
    "train": ("laurel.training.arms", "torch._dynamo"),
}
"""Work of a process -> modules that it imports; torch.optim imports torch._dynamo at its first step."""


def preload(work: Work, env: EnvParams, arms: Iterable[Arm] = ()) -> list[str]:
    """Name the modules that processes import for some work in an environment, at seconds each."""
    modules = [*_MODULES[work], *modules_of(env)]
    if work == "train" and find_spec("envpool"):
        modules.append("envpool")
    if any(arm.agent.engine == "sb3" for arm in arms):
        modules.append("laurel.training.sb3")
    return modules
