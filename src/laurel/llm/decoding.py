"""Token by token, answers of a causal language model to a batch of prompts, however the next token is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from transformers import DynamicCache

from laurel.arrays import IntArray
from laurel.llm.local_model import LocalModel


def decode(
    local: LocalModel,
    prompts: Sequence[Sequence[int]],
    choose: Callable[[IntArray, torch.Tensor], list[int]],
    limits: Sequence[int],
) -> list[list[int]]:
    """Return the tokens of the answer to each of N prompts, with the token that ended it; those that ended leave the
    batch. Equal prompts are processed once, and their answers share the cache of keys and values.

    Args:
        prompts: tokens, at least one each.
        choose: from the numbers (R,) of the answers that go on and their logits (R, V), the next token of each.
        limits: (N,) maximum tokens of each answer, at least one.
    """
    place = {prompt: number for number, prompt in enumerate(dict.fromkeys(map(tuple, prompts)))}
    shared_row = torch.tensor([place[tuple(prompt)] for prompt in prompts], device=local.device)
    width = max(map(len, place))
    # padding on the left, so that the next tokens of all prompts are in the same column
    tokens = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in place])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in place], device=local.device)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    cache = DynamicCache(config=local.model.config)
    inputs = {"past_key_values": cache, "use_cache": True}
    wanted = torch.full((len(place), 1), width - 1)
    logits = local.logits(tokens, wanted, attention_mask=mask, position_ids=positions, **inputs)
    if len(place) < len(prompts):
        cache.reorder_cache(shared_row)  # type: ignore[arg-type]  # its LongTensor is an alias of old
    logits, mask, positions = logits[shared_row, -1], mask[shared_row], positions[shared_row, -1:]
    written: list[list[int]] = [[] for _ in prompts]
    rows = np.arange(len(prompts))
    while True:
        chosen, going = choose(rows, logits), []
        for i, (row, token) in enumerate(zip(rows.tolist(), chosen, strict=True)):
            written[row].append(token)
            if token not in local.stops and len(written[row]) < limits[row]:
                going.append(i)
        if not going:
            return written
        if len(going) < len(rows):
            left = torch.tensor(going, device=local.device)
            cache.reorder_cache(left)  # type: ignore[arg-type]
            rows, mask, positions = rows[going], mask[left], positions[left]
        mask, positions = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1), positions + 1
        following = torch.tensor([[chosen[i]] for i in going])
        logits = local.logits(
            following, torch.zeros_like(following), attention_mask=mask, position_ids=positions, **inputs
        )[:, -1]


def draw(p: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    """Return the tokens (N,) where the cumulative distributions of p (N, V), which need not sum to 1, pass shares (N,)
    of their sums; one of probability 0 is never drawn.
    """
    cumulated = p.cumsum(dim=-1)
    return (cumulated <= level[:, None] * cumulated[:, -1:]).sum(dim=-1).clamp(max=p.shape[-1] - 1)
