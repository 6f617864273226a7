"""The gradients of GRPO and RLOO against the formulas of `laurel.agents.groups`, written out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tiny_llama import make_tiny_llama

from laurel.llm.causal import load_causal, tokens_of, trained
from laurel.llm.local_model import LocalModel
from laurel.llm.lora import with_lora
from laurel.llm.trl_tuning import Group, Tuning, gradient_of_groups

TEMPERATURE, BETA, EPSILON = 0.7, 0.3, 1e-4
"""EPSILON is added to the standard deviation by TRL."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    """A model whose LoRA weights are not zero, so that it diverges from the frozen one."""
    found = with_lora(load_causal(str(make_tiny_llama(tmp_path_factory.mktemp("tiny"))), chats=False), 2)
    generator = torch.Generator().manual_seed(0)
    for _, weight in trained(found.model):
        weight.data = 0.3 * torch.randn(weight.shape, generator=generator)
    return found


def groups_of(local: LocalModel) -> list[Group]:
    """Return groups of four answers of different lengths."""
    rng, most = np.random.default_rng(0), len(local.tokenizer)
    return [
        Group(
            prompt,
            tuple(rng.integers(5, most, size=rng.integers(1, 6)).tolist() for _ in range(4)),
            tuple(rng.normal(size=4).tolist()),
        )
        for prompt in ("It was", "The film about the sea was", "I")
    ]


def token_logs(local: LocalModel, prompt: str, answer: Sequence[Any]) -> torch.Tensor:
    """Return the log-probability of each token of an answer."""
    read = tokens_of(local, prompt)
    logs = (local.model(torch.tensor([[*read, *answer]])).logits[0] / TEMPERATURE).log_softmax(-1)
    return logs[range(len(read) - 1, len(read) + len(answer) - 1), list(answer)]


def by_hand(local: LocalModel, groups: Sequence[Group], loss: str) -> torch.Tensor:
    terms = []
    for prompt, answers, scores in groups:
        logs = [token_logs(local, prompt, answer) for answer in answers]
        with torch.no_grad(), local.model.disable_adapter():
            frozen = [token_logs(local, prompt, answer) for answer in answers]
        pay = np.array(scores)
        if loss == "grpo":
            advantages = (pay - pay.mean()) / (pay.std(ddof=1) + EPSILON)
            for log, base, advantage in zip(logs, frozen, advantages.tolist(), strict=True):
                divergence = (base - log).exp() - (base - log) - 1
                terms.append((log - log.detach()).exp() * (advantage - BETA * divergence))
        else:
            pay -= [BETA * float((log - base).sum().detach()) for log, base in zip(logs, frozen, strict=True)]
            for place, log in enumerate(logs):
                ratio = (log.sum() - log.sum().detach()).exp()
                terms.append((ratio * (pay[place] - np.delete(pay, place).mean()))[None])
    return -torch.cat(terms).mean()


@pytest.mark.parametrize("loss", ["grpo", "rloo"])
@pytest.mark.parametrize("batch_size", [4, 12])
def test_gradients_are_those_of_the_formulas(local: LocalModel, loss: Any, batch_size: int) -> None:
    """Whatever batches the answers are read in."""
    groups = groups_of(local)
    with torch.enable_grad():
        local.model.zero_grad()
        expected = by_hand(local, groups, loss)
        expected.backward()  # type: ignore[no-untyped-call]
    gradient = {name: weight.grad.clone() for name, weight in trained(local.model) if weight.grad is not None}
    how = Tuning(batch_size=batch_size, beta=BETA, temperature=TEMPERATURE, max_grad_norm=1e9)
    found, computed = gradient_of_groups(local, groups, loss, how, 0)
    assert found == pytest.approx(float(expected.detach()), abs=1e-5)
    assert computed.keys() == gradient.keys()
    error = torch.cat([(computed[name] - weight).flatten() for name, weight in gradient.items()]).norm()
    assert float(error) < 1e-3 * float(torch.cat([weight.flatten() for weight in gradient.values()]).norm())


@pytest.mark.parametrize("loss", ["grpo", "rloo"])
def test_the_gradient_of_all_groups_is_clipped(local: LocalModel, loss: Any) -> None:
    groups = groups_of(local)
    how = Tuning(batch_size=4, beta=BETA, temperature=TEMPERATURE, max_grad_norm=0.01)
    _, computed = gradient_of_groups(local, groups, loss, how, 0)
    assert float(torch.cat([weight.flatten() for weight in computed.values()]).norm()) == pytest.approx(0.01, rel=1e-2)
