"""The output layer of a language model in single precision, while the rest computes in half precision.

Logits are about 16 to 32, where bfloat16 has a resolution of 1/8: used directly, the probabilities of two choices
differ by multiples of 0.03, and many pairs would be ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

LARGEST = 2**30
"""Maximum size in bytes of an output layer in single precision."""


class PreciseHead(torch.nn.Module):
    """Turns hidden states (B, W, D) into logits (B, W, V) in float32."""

    def __init__(self, head: torch.nn.Linear) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(head.weight.detach().float(), requires_grad=False)
        self.bias = None if head.bias is None else torch.nn.Parameter(head.bias.detach().float(), requires_grad=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return torch.nn.functional.linear(hidden.float(), self.weight, self.bias)


class SomeLogits(torch.nn.Module):
    """Turns hidden states (B, W, D) into the logits (B, W, K) of some tokens (K,): faster, the fewer there are."""

    def __init__(self, head: Any, tokens: torch.Tensor) -> None:
        super().__init__()
        self.plain = isinstance(head, (torch.nn.Linear, PreciseHead))
        self.head, self.tokens = head, tokens
        if self.plain:
            self.weight = head.weight.detach()[tokens]
            self.bias = None if head.bias is None else head.bias.detach()[tokens]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        if not self.plain:  # a quantised one, or one with LoRA weights
            logits: torch.Tensor = self.head(hidden)[..., self.tokens]
            return logits
        return torch.nn.functional.linear(hidden.to(self.weight.dtype), self.weight, self.bias)


@contextmanager
def some_logits(model: Any, tokens: torch.Tensor) -> Iterator[None]:
    """Let the model compute only the logits of these tokens (K,)."""
    head = model.get_output_embeddings()
    model.set_output_embeddings(SomeLogits(head, tokens))
    try:
        yield
    finally:
        model.set_output_embeddings(head)


def make_precise(model: Any) -> None:
    """Add a `PreciseHead` to a model in half precision on a CPU, unless its head is not a linear layer or is too
    large.
    """
    head = model.get_output_embeddings()
    half = type(head) is torch.nn.Linear and head.weight.dtype in (torch.bfloat16, torch.float16)
    if half and head.weight.device.type == "cpu" and 4 * head.weight.numel() <= LARGEST:
        model.set_output_embeddings(PreciseHead(head))
