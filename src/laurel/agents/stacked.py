"""Actor-critics of one shape as a batch: their weights in one array, outputs and gradients without autograd.

Row s of every array depends only on policy s, so that a policy's results are bit-identical alone and in a batch. On the
CPU the arrays are NumPy's, whose matrix products and tanh cost a fraction of PyTorch's at these sizes; on other devices
the same code runs on tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from laurel.agents.policy import ActorCritic
from laurel.arrays import Array

ACTOR, CRITIC = slice(0, 1), slice(1, 2)
BOTH = slice(0, 2)


class Stack:
    """The weights of S actor-critics, a row each; the policies' own tensors become views of them.

    Args:
        policies: of one shape, on one device.
        arrays: the array module, `numpy` or `torch`; by default NumPy on the CPU.
    """

    def __init__(self, policies: Sequence[ActorCritic], arrays: Any = None) -> None:
        first = policies[0]
        self.device = first.device
        self.arrays: Any = arrays or (np if self.device.type == "cpu" else torch)
        self.n_features, self.n_actions, self.hidden = first.n_features, first.n_actions, first.hidden
        self.continuous = first.continuous
        self._shapes = [shape for _, shape in _layout(first)]
        self.n_weights = sum(int(np.prod(shape)) for shape in self._shapes)
        self.weights = self.zeros(len(policies), self.n_weights)
        self.parts = self.split(self.weights)
        for row, policy in enumerate(policies):
            for name, view in self.named(self.weights, row).items():
                parameter = policy.get_parameter(name)
                view.copy_(parameter.detach())
                parameter.data = view

    def zeros(self, *shape: int) -> Any:
        """Return an array of zeros on the device of the weights."""
        if self.arrays is np:
            return np.zeros(shape, dtype=np.float32)
        return torch.zeros(shape, device=self.device)

    def put(self, array: Any) -> Any:
        """Copy a NumPy array to the device of the weights."""
        return array if self.arrays is np else torch.from_numpy(array).to(self.device)

    def split(self, flat: Any) -> list[Any]:
        """Return views (S, ...) of the parts of an array (S, n_weights), in the order of `_layout`."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes]).tolist()
        starts = [0, *ends[:-1]]
        rows = flat.shape[0]
        return [
            flat[:, start:end].reshape(rows, *shape)
            for start, end, shape in zip(starts, ends, self._shapes, strict=True)
        ]

    def named(self, flat: Any, row: int) -> dict[str, torch.Tensor]:
        """Return views of a row of an array (S, n_weights) by the names and shapes that ActorCritic has for them."""
        parts = [part[row] if self.arrays is torch else torch.from_numpy(part[row]) for part in self.split(flat)]
        last = 2 * len(self.hidden)
        named: dict[str, torch.Tensor] = {}
        for i, layer in enumerate(range(0, last, 2)):
            for tower, body in enumerate(("actor", "critic")):
                named[f"{body}.{layer}.weight"] = parts[2 * i][tower].T
                named[f"{body}.{layer}.bias"] = parts[2 * i + 1][tower, 0]
        heads = parts[last:]
        for body, (weight, bias) in (("actor", heads[:2]), ("critic", heads[2:4])):
            named |= {f"{body}.{last}.weight": weight, f"{body}.{last}.bias": bias[:, 0]}
        if self.continuous:
            named["log_std"] = heads[4][:, 0]
        return named


class Pass:
    """Forward and backward pass of B rows of features through some policies of a stack, with buffers.

    Outputs have a column for each row of features, (S, A, B) and (S, 1, B), so that sums over actions are fast.
    """

    def __init__(self, stack: Stack, policies: slice, batch: int, bodies: slice = BOTH) -> None:
        self.stack = stack
        self.bodies = bodies
        self.weights = [part[policies] for part in stack.parts]
        n = self.weights[0].shape[0]
        n_bodies = bodies.stop - bodies.start
        self.hidden = [stack.zeros(n, n_bodies, batch, width) for width in stack.hidden]
        self.output = stack.zeros(n, stack.n_actions, batch)
        self.value = stack.zeros(n, 1, batch)
        self._delta: list[Any] = []
        self._ones = stack.zeros(n, n_bodies, 1, batch) + 1
        self._features: Any = None

    def forward(self, features: Any) -> None:
        """Compute `output` and `value`, for the bodies of this pass, from features (S, B, F)."""
        xp, self._features = self.stack.arrays, features
        inputs = features[:, None]
        for i, layer in enumerate(self.hidden):
            xp.matmul(inputs, self.weights[2 * i][:, self.bodies], out=layer)
            layer += self.weights[2 * i + 1][:, self.bodies]
            inputs = xp.tanh(layer, out=layer)
        actor_weight, actor_bias, critic_weight, critic_bias = self.weights[2 * len(self.hidden) :][:4]
        if self.bodies.start == 0:
            xp.matmul(actor_weight, self._top(ACTOR).swapaxes(-1, -2), out=self.output)
            self.output += actor_bias
        if self.bodies.stop == 2:
            xp.matmul(critic_weight, self._top(CRITIC).swapaxes(-1, -2), out=self.value)
            self.value += critic_bias

    def backward(self, d_output: Any, d_value: Any, gradient: Sequence[Any]) -> None:
        """Write the gradient of the loss with respect to the weights, after a `forward` of both bodies.

        Args:
            d_output: (S, A, B) gradient of the loss with respect to `output`.
            d_value: (S, 1, B) gradient of the loss with respect to `value`.
            gradient: `split` of an array like the weights; the part of log_std is not written.
        """
        xp, last = self.stack.arrays, 2 * len(self.hidden)
        self._delta = self._delta or [xp.zeros_like(layer) for layer in self.hidden]
        for i, (body, delta) in enumerate(((ACTOR, d_output), (CRITIC, d_value))):
            xp.matmul(delta, self._top(body), out=gradient[last + 2 * i])
            xp.matmul(delta, self._ones[:, 0].swapaxes(-1, -2), out=gradient[last + 2 * i + 1])
            if self.hidden:
                product = xp.multiply if delta.shape[1] == 1 else xp.matmul  # matmul is slow for a column by a row
                product(delta.swapaxes(-1, -2), self.weights[last + 2 * i], out=self._delta[-1][:, i])
        for i in reversed(range(len(self.hidden))):
            layer, delta = self.hidden[i], self._delta[i]
            xp.multiply(layer, layer, out=layer)  # in place: the buffer is not needed again
            xp.subtract(1, layer, out=layer) if xp is np else layer.neg_().add_(1)
            delta *= layer
            inputs = self.hidden[i - 1] if i else self._features[:, None]
            xp.matmul(inputs.swapaxes(-1, -2), delta, out=gradient[2 * i])
            xp.matmul(self._ones, delta, out=gradient[2 * i + 1])
            if i:
                xp.matmul(delta, self.weights[2 * i].swapaxes(-1, -2), out=self._delta[i - 1])

    def _top(self, body: slice) -> Any:
        """Return the input of a head (S, B, H)."""
        return self.hidden[-1][:, body.start - self.bodies.start] if self.hidden else self._features


def host(array: Any) -> Array:
    """Convert an array to NumPy."""
    host: Array = array if isinstance(array, np.ndarray) else array.cpu().numpy()
    return host


def _layout(policy: ActorCritic) -> list[tuple[str, tuple[int, ...]]]:
    """Return the parts of a row of weights and their shapes; both bodies of a hidden layer lie side by side."""
    parts: list[tuple[str, tuple[int, ...]]] = []
    for i, (n_in, n_out) in enumerate(pairwise((policy.n_features, *policy.hidden))):
        parts += [(f"hidden.{i}.weight", (2, n_in, n_out)), (f"hidden.{i}.bias", (2, 1, n_out))]
    top = (policy.n_features, *policy.hidden)[-1]
    parts += [("actor.weight", (policy.n_actions, top)), ("actor.bias", (policy.n_actions, 1))]
    parts += [("critic.weight", (1, top)), ("critic.bias", (1, 1))]
    return [*parts, ("log_std", (policy.n_actions, 1))] if policy.continuous else parts
