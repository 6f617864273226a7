"""Adam's steps as `torch.optim` makes them, to the bit, without its classes: these import torch._dynamo when they are
made, at a processor second for each process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

BETA1, BETA2 = 0.9, 0.999
MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam:
    """Adam (Kingma & Ba 2015, arXiv 1412.6980) with decoupled weight decay (Loshchilov & Hutter 2019, 1711.05101).

    Args:
        weight_decay: 0 for `torch.optim.Adam`, else as `torch.optim.AdamW`.
        fused: which of torch's implementations computes: True for the fused one, None for its choice. Their sums differ
            in the last bits.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        *,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        fused: bool | None = True,
    ) -> None:
        self.learning_rate = learning_rate
        self._parameters = list(parameters)
        self._eps, self._weight_decay, self._fused = eps, weight_decay, fused
        self._state: dict[int, dict[str, Tensor]] = {}

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take a step along the gradients; parameters without one stay."""
        moved = {i: weight for i, weight in enumerate(self._parameters) if weight.grad is not None}
        for i, weight in moved.items():
            if i not in self._state:
                counted_on = weight.device if self._fused else "cpu"
                self._state[i] = {"step": torch.zeros((), device=counted_on)}
                self._state[i] |= {name: torch.zeros_like(weight) for name in MOMENTS}
        states = [self._state[i] for i in moved]
        adamw(
            list(moved.values()),
            [weight.grad for weight in moved.values() if weight.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=self._fused,
            amsgrad=False,
            beta1=BETA1,
            beta2=BETA2,
            lr=self.learning_rate,
            weight_decay=self._weight_decay,
            eps=self._eps,
            maximize=False,
        )

    def state(self) -> Mapping[int, Mapping[str, Tensor]]:
        """Return step and moments of each parameter that was moved, by its place."""
        return self._state

    def restore(self, state: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Go on from a `state`.

        Raises:
            KeyError: something is missing.
        """
        self._state = {
            i: {name: part[name].to(self._parameters[i].device, copy=True) for name in ("step", *MOMENTS)}
            for i, part in state.items()
        }
