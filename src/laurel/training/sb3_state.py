"""Contents of a Stable-Baselines3 checkpoint besides the policy: tensors, arrays and numbers, but no pickle.

The parts of an algorithm are found through the interfaces that its own `save` uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save as arrays_as_bytes
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes
from stable_baselines3.common.save_util import recursive_getattr
from torch import Tensor

from laurel.agents.checkpoint import load_policy
from laurel.agents.sb3.policy import SB3Policy
from laurel.arrays import Array
from laurel.errors import DataError
from laurel.training.checkpoint import ACTIONS, OPTIMIZER, REPLAY, incomplete

PLACE = "(place)"
"""Name of the array with a replay buffer's position and whether it is full."""
NUMBERS = (bool, int, float)
OF_A_CALL = ("start_time", "_num_timesteps_at_start")
"""Attributes of a single call of `learn`, which are not part of the training state."""


def save_state(directory: Path, model: Any, actions: Array, *, finished: bool) -> dict[str, Any]:
    """Write tensors and arrays into a directory; return the rest, for a JSON file.

    Once training is finished, data that only resumption needs is left out.
    """
    (directory / OPTIMIZER).write_bytes(as_bytes(_tensors(model)))
    if not finished:
        _write_arrays(directory / ACTIONS, {"actions": actions, **_random_arrays()})
        if getattr(model, "replay_buffer", None) is not None:
            _write_arrays(directory / REPLAY, _replay_arrays(model.replay_buffer))
    numbers = {name: value for name, value in vars(model).items() if type(value) in NUMBERS and name not in OF_A_CALL}
    if finished:
        return {"numbers": numbers}
    random = {**np.random.get_state(legacy=False), "action_space": model.action_space.np_random.bit_generator.state}
    random.pop("state")  # an array among the arrays
    return {"numbers": numbers, "random": random}


def restore_state(directory: Path, model: Any, state: Mapping[str, Any]) -> Array:
    """Put an algorithm into the state of a checkpoint; return the actions (T, N) or (T, N, A) taken until then.

    Raises:
        DataError: it is damaged or of another agent.
    """
    try:
        saved = load_policy(directory)
        if not isinstance(saved, SB3Policy):
            raise ValueError("an agent of another engine")
        model.policy.load_state_dict(saved.policy.state_dict())
        _restore_tensors(model, load_file(directory / OPTIMIZER))
        for name, value in state["numbers"].items():
            if type(getattr(model, name)) in NUMBERS:
                setattr(model, name, value)
        if getattr(model, "replay_buffer", None) is not None:
            _restore_replay(model.replay_buffer, load_arrays(directory / REPLAY))
        arrays = load_arrays(directory / ACTIONS)
        if len(arrays["actions"]) * model.n_envs != state["env_steps"]:
            raise ValueError(f"actions of {len(arrays['actions'])} steps, but {state['env_steps']} were made")
        random = dict(state["random"])
        model.action_space.np_random.bit_generator.state = random.pop("action_space")
        np.random.set_state({**random, "state": {"key": arrays["numpy"], "pos": int(arrays["position"][0])}})
        torch.set_rng_state(torch.from_numpy(arrays["torch"]))
        taken = arrays["actions"]
        return taken.astype(np.int64) if taken.dtype.kind == "u" else taken
    except (
        DataError,
        OSError,
        SafetensorError,
        AttributeError,
        RuntimeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise incomplete(directory, error) from None


def _write_arrays(file: Path, arrays: dict[str, Array]) -> None:
    content = arrays_as_bytes({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    file.write_bytes(content)  # safetensors creates files that only their owner can read


def _tensors(model: Any) -> dict[str, Tensor]:
    """Return optimisers' states and single variables by unique names."""
    modules, variables = model._get_torch_save_params()
    tensors = {f"{name}": recursive_getattr(model, name).data.cpu() for name in variables}
    for name in modules:
        part = recursive_getattr(model, name)
        if isinstance(part, torch.optim.Optimizer):
            for i, state in part.state_dict()["state"].items():
                for key, value in state.items():
                    tensors[f"{name}/{i}/{key}"] = torch.as_tensor(value).cpu().contiguous()
    return tensors


def _restore_tensors(model: Any, tensors: Mapping[str, Tensor]) -> None:
    modules, variables = model._get_torch_save_params()
    for name in variables:
        recursive_getattr(model, name).data.copy_(tensors[name])
    for name in modules:
        part = recursive_getattr(model, name)
        if isinstance(part, torch.optim.Optimizer):
            content = part.state_dict()
            content["state"] = {}
            for full, value in tensors.items():
                owner, _, rest = full.partition("/")
                if owner == name and rest:
                    i, _, key = rest.partition("/")
                    content["state"].setdefault(int(i), {})[key] = value
            part.load_state_dict(content)


def _random_arrays() -> dict[str, Array]:
    state: Any = np.random.get_state(legacy=False)
    return {
        "numpy": state["state"]["key"],
        "position": np.array([state["state"]["pos"]], dtype=np.int64),
        "torch": torch.get_rng_state().numpy(),
    }


def _replay_arrays(buffer: Any) -> dict[str, Array]:
    """Return the filled rows of a replay buffer's arrays, and its position."""
    rows = buffer.buffer_size if buffer.full else buffer.pos
    arrays = {name: value[:rows] for name, value in vars(buffer).items() if isinstance(value, np.ndarray)}
    return {**arrays, PLACE: np.array([buffer.pos, int(buffer.full)], dtype=np.int64)}


def _restore_replay(buffer: Any, arrays: dict[str, Array]) -> None:
    pos, full = arrays.pop(PLACE).tolist()
    for name, rows in arrays.items():
        getattr(buffer, name)[: len(rows)] = rows
    buffer.pos, buffer.full = int(pos), bool(full)
