"""The supported algorithms of Stable-Baselines3, and allowed values of their arguments.

Only these names are accepted in params.yaml and in agents' files. Stable-Baselines3, which may not be installed, is
imported only when a class is needed.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.errors import MissingPackageError, ParamsError, closest
from laurel.params.file import shown
from laurel.params.sb3 import RESERVED, SB3Params

SB3, CONTRIB = "stable_baselines3", "sb3_contrib"
DISCRETE, CONTINUOUS, BOTH = ("Discrete",), ("Box",), ("Discrete", "Box")
ALGORITHMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "A2C": (SB3, BOTH),
    "DDPG": (SB3, CONTINUOUS),
    "DQN": (SB3, DISCRETE),
    "PPO": (SB3, BOTH),
    "SAC": (SB3, CONTINUOUS),
    "TD3": (SB3, CONTINUOUS),
    "CrossQ": (CONTRIB, CONTINUOUS),
    "QRDQN": (CONTRIB, DISCRETE),
    "TQC": (CONTRIB, CONTINUOUS),
    "TRPO": (CONTRIB, BOTH),
}
"""Name -> package and the kinds of action spaces."""
COUNTS = (
    "batch_size",
    "buffer_size",
    "cg_max_steps",
    "line_search_max_iter",
    "n_critic_updates",
    "n_epochs",
    "n_steps",
    "policy_delay",
    "sub_sampling_factor",
    "target_update_interval",
    "train_freq",
)
"""Arguments that are 1 or more."""
POSITIVE = ("clip_range", "learning_rate", "max_grad_norm")
SHARES = (
    "exploration_final_eps",
    "exploration_fraction",
    "exploration_initial_eps",
    "gae_lambda",
    "gamma",
    "tau",
)
"""Arguments between 0 and 1."""
ACTIVATIONS = ("ELU", "GELU", "LeakyReLU", "ReLU", "SiLU", "Tanh")
"""Activations of torch.nn that policy_kwargs.activation_fn can name."""


def algorithm_class(name: str) -> Any:
    """Return a class of `ALGORITHMS` by its name.

    Raises:
        KeyError: no algorithm has this name.
        ParamsError: its package is not installed.
    """
    package, _ = ALGORITHMS[name]
    try:
        return getattr(importlib.import_module(package), name)
    except ModuleNotFoundError as error:
        if error.name not in (SB3, CONTRIB):
            raise
        raise MissingPackageError(
            f"agent.sb3.algorithm: {name} needs the package {error.name}, which is not installed. "
            "Run pip install 'laurel-rl[sb3]'."
        ) from None


def check_algorithm(settings: SB3Params, action_space: gym.Space[Any]) -> Any:
    """Return the algorithm's class if it fits the arguments and the action space.

    Raises:
        ParamsError: it does not.
    """
    algorithm, name = algorithm_class(settings.algorithm), settings.algorithm
    _check_space(name, action_space)
    parameters = inspect.signature(algorithm.__init__).parameters
    for key, value in settings.kwargs.items():
        if key not in parameters or key == "self":
            allowed = sorted(set(parameters) - set(RESERVED) - {"self"})
            raise ParamsError(
                f"agent.sb3.kwargs: {name} has no argument {key}.{closest(key, allowed)} Allowed: {', '.join(allowed)}."
            )
        if key == "train_freq" and isinstance(value, list):
            _check_frequency(value, settings.n_envs)
        else:
            _check_value(key, value, parameters[key].default)
    if settings.noise and "action_noise" not in parameters:
        raise ParamsError(
            f"agent.sb3.noise is {settings.noise}, but {name} does not support action noise. Set it to 0."
        )
    return algorithm


def _check_space(name: str, space: gym.Space[Any]) -> None:
    """Raise ParamsError for an action space that the algorithm does not support."""
    kind, (_, kinds) = type(space).__name__, ALGORITHMS[name]
    if kind not in kinds:
        fit = [candidate for candidate in sorted(ALGORITHMS) if kind in ALGORITHMS[candidate][1]]
        needed = f"{' and '.join(kinds)} spaces"
        hint = f" {', '.join(fit)} support it." if fit else ""
    elif len(space.shape or ()) > 1:
        needed, hint = "spaces of one dimension", ""
    elif isinstance(space, gym.spaces.Box) and not space.is_bounded():
        needed, hint = "bounded Box spaces", ""
    elif isinstance(space, gym.spaces.Discrete) and space.start != 0:
        needed, hint = "Discrete spaces from 0 on", ""
    else:
        return
    raise ParamsError(
        f"agent.sb3.algorithm: {name} needs {needed}, but the environment's action space is {space}."
        f"{hint or ' Wrap the environment so that it has one of these.'}"
    )


def _check_value(key: str, value: Any, default: Any) -> None:
    """Raise ParamsError for a number or truth value that is out of range or of another kind than the default."""
    match default:
        case bool():
            allowed, fits = "true or false", isinstance(value, bool)
        case int():
            allowed, fits = "a whole number", isinstance(value, int) and not isinstance(value, bool)
        case float():
            allowed, fits = "a number", isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return
    if fits:
        if key in COUNTS:
            allowed, fits = "1 or more", value >= 1
        elif key in POSITIVE:
            allowed, fits = "more than 0", 0 < value < math.inf
        elif key in SHARES:
            allowed, fits = "from 0 to 1", 0 <= value <= 1
    if not fits:
        raise ParamsError(
            f"agent.sb3.kwargs: {key} is {shown(value)}, but must be {allowed}, such as {shown(default)}."
        )


def _check_frequency(value: Sequence[Any], n_envs: int) -> None:
    """Raise ParamsError for a number of steps or episodes between updates that Stable-Baselines3 refuses, which it does
    only when training begins.
    """
    match value:
        case [int(number), "step" | "episode"] if number >= 1 and not isinstance(number, bool):
            pass
        case _:
            raise ParamsError(
                f"agent.sb3.kwargs: train_freq is {shown(value)}, but must be a whole number of steps, 1 or more, or "
                "such a number with its unit, [1, step] or [1, episode]."
            )
    if value[1] == "episode" and n_envs > 1:
        raise ParamsError(
            f"agent.sb3.kwargs: train_freq is {shown(value)}, but updates after whole episodes need a single "
            f"environment, and agent.sb3.n_envs is {n_envs}. Set that to 1, or count steps."
        )


def arguments(settings: SB3Params, algorithm: Any, steps: int, action_space: gym.Space[Any]) -> dict[str, Any]:
    """Convert plain values to the class's arguments; a replay buffer is no larger than a run can fill.

    Raises:
        ParamsError: policy_kwargs is not valid.
    """
    options: dict[str, Any] = dict(settings.kwargs)
    if "policy_kwargs" in options:
        options["policy_kwargs"] = policy_options(options["policy_kwargs"])
    if isinstance(options.get("train_freq"), list):  # e.g. [1, episode]
        options["train_freq"] = tuple(options["train_freq"])
    parameters = inspect.signature(algorithm.__init__).parameters
    if "buffer_size" in parameters:
        options.setdefault("buffer_size", min(int(parameters["buffer_size"].default), steps + settings.n_envs))
    if settings.noise:
        from stable_baselines3.common.noise import NormalActionNoise

        (n,) = action_space.shape or ()
        options["action_noise"] = NormalActionNoise(np.zeros(n), np.full(n, settings.noise))
    return options


def policy_options(content: Any) -> dict[str, Any]:
    """Convert plain values to a policy's arguments: activations are given by name.

    Raises:
        ParamsError: the activation is not known, or `content` is not a mapping.
    """
    import torch

    if not isinstance(content, Mapping):
        raise ParamsError(
            f"agent.sb3.kwargs: policy_kwargs is {content!r}, but must be a mapping, e.g. net_arch: [64]."
        )
    options = dict(content)
    name = options.get("activation_fn")
    if name is not None:
        if name not in ACTIVATIONS:
            raise ParamsError(
                f"agent.sb3.kwargs: policy_kwargs.activation_fn is {name!r}, but must be one of "
                f"{', '.join(ACTIVATIONS)}.{closest(str(name), ACTIVATIONS)}"
            )
        options["activation_fn"] = getattr(torch.nn, name)
    return options
