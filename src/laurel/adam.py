"""Adam steps, bit-identical to `torch.optim`'s, without its classes: constructing those imports torch._dynamo, which
costs each process a second of CPU time.
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
        fused: torch's implementation: True for the fused one, None for torch's default. Their results differ in the
            last bits.
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
        """Set the gradients to None."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take an optimiser step; parameters without a gradient stay unchanged."""
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
        """Return the step count and moments of each parameter that has been updated, by its index."""
        return self._state

    def restore(self, state: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Restore a `state`.

        Raises:
            KeyError: something is missing.
        """
        self._state = {
            i: {name: part[name].to(self._parameters[i].device, copy=True) for name in ("step", *MOMENTS)}
            for i, part in state.items()
        }
