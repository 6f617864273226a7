"""The rows of one agent as a NumPy vector environment, with copies to and from the device at every step.

For occasional steps; code that steps often should use tensors.
"""

from __future__ import annotations

import numpy as np
import torch

from laurel.arrays import Array, BoolArray
from laurel.envs.base import EnvAdapter
from laurel.envs.tensor import TENSORS
from laurel.envs.tensor.base import TensorEnv, host
from laurel.envs.vector import Step, VectorEnv


class TensorVector(VectorEnv):
    """N copies of an environment on a device."""

    def __init__(self, rows: TensorEnv, adapter: EnvAdapter) -> None:
        self.backend, self.rows, self.adapter, self.n_envs = TENSORS, rows, adapter, rows.n_envs
        self._resting = np.zeros(rows.n_envs, dtype=np.bool_)

    def reset(self) -> Array:
        return host(self.rows.reset())

    def begin_step(self, actions: Array) -> None:
        self._actions = actions

    def end_step(self) -> Step:
        assert self._actions is not None
        action = torch.from_numpy(self._actions).to(self.rows.device)
        step = Step._make([*map(host, self.rows.step(action, self.rows.draw(1)[0])), {}])
        return step._replace(reward=step.reward * ~self._resting, valid=step.valid & ~self._resting)

    def stop(self, mask: BoolArray, observation: Array) -> None:
        self._resting |= mask

    def close(self) -> None:
        """Do nothing: the tensors are freed with their last reference."""
