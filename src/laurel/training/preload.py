"""Modules that the pool's fork server imports once, instead of each worker process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Literal

from laurel.agents.algorithms import algorithm_of
from laurel.envs import modules_of
from laurel.params import EnvParams
from laurel.params.algorithms import AlgorithmParams
from laurel.params.kinds import ACTORS
from laurel.params.resolved_arms import Arm
from laurel.rewards import methods

Work = Literal["play", "reward", "train"]
_MODULES: Mapping[Work, tuple[str, ...]] = {
    "play": (
        "laurel.evaluation.play",
        "laurel.agents.checkpoint",
        "laurel.agents.actors.checkpoint",
        "laurel.rewards.model",
        "pandas.core.arrays.arrow.extension_types",
    ),
    "reward": (
        "laurel.rewards.stored",
        "laurel.rewards.training",
        "laurel.training.trial",
        "laurel.data.own_preferences",
    ),
    "train": ("laurel.training.arms", "laurel.rewards.model", "threadpoolctl"),
}
"""Work of a process -> modules that it imports."""
_SB3: Mapping[Work, tuple[str, ...]] = {
    "play": ("stable_baselines3", "laurel.agents.sb3.policy", "torch._dynamo"),
    "train": ("laurel.training.sb3", "torch._dynamo"),
}
"""Further modules where Stable-Baselines3 trains the agent; the classes of torch.optim import torch._dynamo."""
_ANY = (
    "laurel.cli.app",
    "laurel.training.plugins_read",
    "pandas",
    "pyarrow.pandas_compat",
    "pyarrow.vendored.version",
    "safetensors.numpy",
    "safetensors.torch",
    "numpy.ctypeslib",
    "multiprocessing.popen_forkserver",
)
"""Modules that all of them import: the command's module, PyArrow's array conversion, reading and writing of weights,
and process start-up."""


def preload(work: Work, env: EnvParams, arms: Iterable[Arm] = ()) -> list[str]:
    """Return the modules, some of which take seconds to import, that processes need for some work in an environment."""
    modules = [*_ANY, *_MODULES[work], *modules_of(env)]
    modules += [f"{methods.__name__}.{module.name}" for module in iter_modules(methods.__path__)]
    if work == "train" and find_spec("envpool"):
        modules.append("envpool")
    for arm in arms:
        modules += _of_arm(work, arm)
    return list(dict.fromkeys(modules))


def _of_arm(work: Work, arm: Arm) -> tuple[str, ...]:
    """Return the modules that an arm's algorithm or actor adds."""
    if work == "reward":
        return ()
    if arm.actor is not None:
        return getattr(ACTORS.load(arm.actor, "agent.actor"), "imports", ()) if work == "play" else ()
    if isinstance(arm.agent.settings, AlgorithmParams):
        return algorithm_of(arm.agent.settings).imports(work)
    return _SB3[work]
