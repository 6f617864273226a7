"""Environments as tensors: all copies stepped at once, on the device of the networks.

Each has exactly the transitions of the Gymnasium or MiniGrid original, but its own random streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.envs import make_reference, reference_id
from laurel.envs.cartpole import CartPoleAdapter
from laurel.envs.minigrid import MiniGridAdapter
from laurel.envs.spaces import UNBOUNDED

if TYPE_CHECKING:
    import gymnasium as gym
    import torch

    from laurel.envs.base import EnvAdapter
    from laurel.envs.tensor.base import TensorEnv
    from laurel.params import EnvParams

TENSORS = "tensors"
"""The value of `backend` for environments as tensors."""
SIZES = {"DoorKey": (5, 6, 8, 16), "Empty": (5, 6, 8, 16), "Empty-Random": (5, 6)}
ADAPTERS: dict[str, type[EnvAdapter]] = {
    "CartPole-v0": CartPoleAdapter,
    "CartPole-v1": CartPoleAdapter,
    **{f"MiniGrid-{task}-{n}x{n}-v0": MiniGridAdapter for task, sizes in SIZES.items() for n in sizes},
}
"""Ids with a tensor version -> the adapter whose packed observations it produces."""


def has_tensors(env: EnvParams, adapter: EnvAdapter) -> bool:
    """Whether an environment with this id, arguments and adapter has a tensor version."""
    from laurel.envs.vector import is_original

    expected = ADAPTERS.get(reference_id(env))
    return env.backend == "auto" and not env.kwargs and type(adapter) is expected and is_original(env)


def make_tensors(env: EnvParams, adapter: EnvAdapter, n_envs: int, seed: int, device: torch.device) -> TensorEnv:
    """Make N copies of an environment that `has_tensors`; the same seed gives the same episodes on any device."""
    reference = make_reference(env)
    try:
        return _tensors_like(reference, adapter, (n_envs, (seed,), device))
    finally:
        reference.close()


def _tensors_like(
    reference: gym.Env[Any, Any], adapter: EnvAdapter, rows: tuple[int, Sequence[int], torch.device]
) -> TensorEnv:
    """Return the tensor version of an environment made by Gymnasium."""
    from laurel.envs.tensor.cartpole import TensorCartPole
    from laurel.envs.tensor.doorkey import TensorDoorKey, TensorEmpty

    n_envs, seeds, device = rows
    bare: Any = reference.unwrapped
    if isinstance(adapter, CartPoleAdapter):
        high = bare.observation_space.high
        limit = reference.get_wrapper_attr("_max_episode_steps")
        return TensorCartPole(n_envs, seeds, limit, device, scale=np.where(high < UNBOUNDED, high, 1))
    if adapter.env_id.startswith("MiniGrid-DoorKey-"):
        return TensorDoorKey(n_envs, seeds, bare.max_steps, device, size=bare.width)
    anywhere = bare.agent_start_pos is None
    return TensorEmpty(n_envs, seeds, bare.max_steps, device, size=bare.width, anywhere=anywhere)
