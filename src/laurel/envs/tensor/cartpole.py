"""Cart pole as tensors: the equations of Gymnasium's CartPole (Barto, Sutton & Anderson 1983), in its precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from laurel.arrays import FloatArray
from laurel.envs.cartpole import FALLEN
from laurel.envs.tensor.base import TensorEnv

GRAVITY, FORCE, SECONDS = 9.8, 10.0, 0.02
POLE, TOTAL, HALF_LENGTH = 0.1, 1.1, 0.5
END_OF_TRACK, BEGIN_WITHIN = 2.4, 0.05


class TensorCartPole(TensorEnv):
    """Position, velocity, angle and angular velocity (R, 4), in double precision as in Gymnasium.

    Args:
        scale: (4,) what the adapter divides observations by.
    """

    n_words: ClassVar[int] = 4

    def __init__(
        self, n_envs: int, seeds: Sequence[int], limit: int, device: torch.device, *, scale: FloatArray
    ) -> None:
        self._scale, self._scale_there = scale, torch.from_numpy(scale).to(device)
        super().__init__(n_envs, seeds, limit, device)

    def features(self, observation: Tensor) -> Tensor:
        return observation / self._scale_there

    def _like(self, seeds: Sequence[int]) -> TensorCartPole:
        return TensorCartPole(self.n_envs, seeds, self.limit, self.device, scale=self._scale)

    def _begin(self, drawn: Tensor) -> dict[str, Tensor]:
        return {"motion": (drawn.double() * 2.0**-32 * 2 - 1) * BEGIN_WITHIN}

    def _move(self, state: Mapping[str, Tensor], action: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        _, velocity, angle, turning = state["motion"].unbind(-1)
        force = torch.where(action == 1, FORCE, -FORCE).double()
        cosine, sine = angle.cos(), angle.sin()
        push = (force + POLE * HALF_LENGTH * turning.square() * sine) / TOTAL
        pole = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE * cosine.square() / TOTAL))
        cart = push - POLE * HALF_LENGTH * pole * cosine / TOTAL
        rates = torch.stack([velocity, cart, turning, pole], dim=-1)
        motion = state["motion"] + SECONDS * rates
        fallen = (motion[:, 0].abs() > END_OF_TRACK) | (motion[:, 2].abs() > FALLEN)
        return {"motion": motion}, torch.ones_like(force, dtype=torch.float32), fallen

    def _observe(self, state: Mapping[str, Tensor]) -> Tensor:
        return state["motion"].float()
