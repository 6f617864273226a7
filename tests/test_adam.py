"""Adam's steps are those of `torch.optim`, to the bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from laurel.adam import Adam

KINDS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "fused": (torch.optim.Adam, {"eps": 1e-5}),
    "plain": (torch.optim.Adam, {"fused": None}),
    "decayed": (torch.optim.AdamW, {"weight_decay": 0.03}),
}
"""Torch's class and the settings of both; the fused implementation is the default."""


def parameters(dtype: torch.dtype) -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in ((33, 7), (7,), (4, 1, 5))]


def set_gradients(weights: list[nn.Parameter], step: int, *, without: int | None = None) -> None:
    torch.manual_seed(step)
    for i, weight in enumerate(weights):
        gradient = torch.randn_like(weight)
        weight.grad = None if i == without else gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_torch_to_the_bit(kind: str, dtype: torch.dtype) -> None:
    """Also where the learning rate falls, and where a parameter has no gradient at first or at last."""
    made, options = KINDS[kind]
    ours, theirs = parameters(dtype), parameters(dtype)
    adam = Adam(ours, 0.01, **options)
    reference: Any = made(theirs, lr=0.01, **{"fused": True, **options})
    for step in range(12):
        without = {0: 2, 11: 0}.get(step)
        adam.learning_rate = reference.param_groups[0]["lr"] = 0.01 * (1 - step / 12)
        for optimizer, weights in ((adam, ours), (reference, theirs)):
            set_gradients(weights, step, without=without)
            optimizer.step()
            optimizer.zero_grad()
            assert [weight.grad for weight in weights] == [None] * 3
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    found, wanted = adam.state(), reference.state_dict()["state"]
    assert found.keys() == wanted.keys()
    for i, parts in wanted.items():
        assert found[i].keys() == parts.keys()
        assert all(torch.equal(found[i][name], value) for name, value in parts.items())
    assert float(found[0]["step"]) == 11


def test_it_continues_from_a_state_without_changing_it() -> None:
    through, resumed = parameters(torch.float32), parameters(torch.float32)
    adam = Adam(through, 0.01)
    for step in range(6):
        if step == 3:
            with torch.no_grad():
                for weight, value in zip(resumed, through, strict=True):
                    weight.copy_(value)
            later = Adam(resumed, 0.01)
            kept = {i: {name: value.clone() for name, value in parts.items()} for i, parts in adam.state().items()}
            later.restore(kept)
            later_began = {i: parts["exp_avg"].clone() for i, parts in kept.items()}
        set_gradients(through, step)
        adam.step()
        if step >= 3:
            set_gradients(resumed, step)
            later.step()
    assert all(torch.equal(a, b) for a, b in zip(through, resumed, strict=True))
    assert all(torch.equal(parts["exp_avg"], later_began[i]) for i, parts in kept.items())
    with pytest.raises(KeyError):
        later.restore({0: {"step": torch.zeros(())}})
