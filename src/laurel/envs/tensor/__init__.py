"""Environments as tensors: all copies stepped at once, where the networks are.

Each is the task that its namesake of Gymnasium or MiniGrid is, to the last transition; its random streams are its own.
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING

import numpy as np

from laurel.envs import reference_id, step_limit
from laurel.envs.cartpole import CartPoleRoom
from laurel.envs.spaces import UNBOUNDED

if TYPE_CHECKING:
    import torch

    from laurel.envs.base import Room
    from laurel.envs.tensor.base import TensorEnv
    from laurel.params import EnvParams

TENSORS = "tensors"
"""What `backend` says of environments as tensors."""
ROOMS: dict[str, type[Room]] = {"CartPole-v[01]": CartPoleRoom}
"""Ids that have a form of tensors -> the room whose packed observations it gives."""


def has_tensors(env: EnvParams, room: Room) -> bool:
    """Tell whether an environment can be had as tensors, just as it is: its id, its arguments and its room."""
    from laurel.envs.vector import is_original

    known = next((of for pattern, of in ROOMS.items() if fnmatch(reference_id(env), pattern)), None)
    return env.backend == "auto" and not env.kwargs and type(room) is known and is_original(env)


def make_tensors(env: EnvParams, room: Room, n_envs: int, seed: int, device: torch.device) -> TensorEnv:
    """Make N copies of an environment that `has_tensors`; the same seed gives the same episodes on any device."""
    import gymnasium as gym

    from laurel.envs.tensor.cartpole import TensorCartPole

    limit = step_limit(env) or gym.spec(reference_id(env)).max_episode_steps
    assert limit is not None
    space = room.packed.space
    assert isinstance(space, gym.spaces.Box)
    return TensorCartPole(n_envs, [seed], limit, device, scale=np.where(space.high < UNBOUNDED, space.high, 1))
