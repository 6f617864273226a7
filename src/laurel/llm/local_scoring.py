"""Probabilities of given answers, read off a language model in two passes for each batch; no text is written.

What all prompts begin with is computed once, for all batches; what several prompts of a batch begin with, such as the
first of two texts, once for the batch. Where the first tokens of the answers differ, they alone are compared;
otherwise the probability of an answer is the product over its tokens, or their mean where that is asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache

from laurel.llm.chat import Reply
from laurel.llm.local_model import LocalModel
from laurel.llm.local_prompts import Prompt

PASS_TOKENS = 4
"""Tokens that must be saved for a beginning to be computed apart."""


class Read(NamedTuple):
    """A log-probability to read off."""

    position: int
    """Of the token before, in its row."""
    token: int
    choice: str


class Row(NamedTuple):
    """What the model is run on after the shared beginning, and what is read off it."""

    prompt: int
    """Its place in the batch."""
    tokens: list[int]
    reads: list[Read]
    begins: int
    """Tokens that other rows begin with, too."""


class ResumedCache(DynamicCache):
    """A cache that goes on from one row of another for each of its own, and keeps nothing of what is added.

    The rows are copied for one layer at a time, so that they take the memory of one layer.
    """

    def __init__(self, beginnings: DynamicCache, rows: torch.Tensor) -> None:
        super().__init__()
        self.layers = beginnings.layers
        self._rows = rows

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of the beginning and of what is new, for attention in one layer."""
        layer: Any = copy.copy(self.layers[layer_idx])
        layer.keys, layer.values = (self._of_rows(states) for states in (layer.keys, layer.values))
        return layer.update(key_states, value_states, *args, **kwargs)

    def _of_rows(self, states: torch.Tensor) -> torch.Tensor:
        if len(states) == 1:  # without a copy
            return states.expand(len(self._rows), -1, -1, -1)
        return states[self._rows.to(states.device)]


class Scorer:
    """Scores prompts that have something in common; `shared` tokens of them are computed once."""

    def __init__(self, local: LocalModel, prompts: Sequence[Prompt]) -> None:
        self._local = local
        self.shared = common_beginning(prompts) if local.resumes else 0
        self._beginning: DynamicCache | None = None
        if self.shared:
            tokens = torch.tensor([prompts[0].tokens[: self.shared]])
            self._beginning = DynamicCache(config=local.model.config)
            local.logits(tokens, torch.tensor([[self.shared - 1]]), past_key_values=self._beginning, use_cache=True)
        self._begins: dict[int, int] = {}
        if local.resumes and local.skips:
            own = [prompt.tokens[self.shared :] for prompt in prompts]
            found = beginnings(own, [len(prompt.answers) if _branches(prompt) else 1 for prompt in prompts])
            self._begins = {prompt.number: begins for prompt, begins in zip(prompts, found, strict=True)}

    def width(self, prompt: Prompt) -> int:
        """Return how many tokens a row of this prompt has."""
        return max(len(row.tokens) - row.begins for row in self._rows(prompt))

    def height(self, prompt: Prompt) -> int:
        """Return how many rows this prompt takes."""
        return len(self._rows(prompt))

    def answer(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Return the log-probability of each choice of each prompt, normalised over its choices."""
        rows = [row for place, prompt in enumerate(prompts) for row in self._rows(prompt, place)]
        sums = [dict.fromkeys(prompt.answers, 0.0) for prompt in prompts]
        for row, logprobs in zip(rows, self._logprobs(rows), strict=True):
            for read, logprob in zip(row.reads, logprobs, strict=True):
                sums[row.prompt][read.choice] += logprob
        return [_reply(prompt, choices) for prompt, choices in zip(prompts, sums, strict=True)]

    def _rows(self, prompt: Prompt, place: int = 0) -> list[Row]:
        """Return the rows that a prompt needs."""
        own, begins = prompt.tokens[self.shared :], self._begins.get(prompt.number, 0)
        last = len(own) - 1
        if not _branches(prompt):
            return [
                Row(place, own, [Read(last, answer[0], choice) for choice, answer in prompt.answers.items()], begins)
            ]
        return [
            Row(place, own + answer[:-1], [Read(last + j, token, choice) for j, token in enumerate(answer)], begins)
            for choice, answer in prompt.answers.items()
        ]

    def _logprobs(self, rows: list[Row]) -> list[list[float]]:
        """Run the model on rows; return what is read off each.

        Padding stands on the right, where no token before it can see it, so it needs no mask and moves no position.
        """
        cache, inputs = self._begun(rows)
        tokens = _padded([row.tokens[row.begins :] for row in rows])
        if inputs:
            seen = torch.cat([inputs["attention_mask"], torch.ones_like(tokens)], dim=1)
            positions = inputs["position_ids"] + torch.arange(tokens.shape[1])
            device = self._local.device
            inputs = {"attention_mask": seen.to(device), "position_ids": positions.to(device)}
        wanted = [list(dict.fromkeys(read.position - row.begins for read in row.reads)) for row in rows]
        logits = self._local.logits(
            tokens, _padded(wanted), past_key_values=cache, use_cache=cache is not None, **inputs
        )
        reads = [
            (number, wanted[number].index(read.position - row.begins), read.token)
            for number, row in enumerate(rows)
            for read in row.reads
        ]
        of_row, at, token = torch.tensor(reads).T
        flat = iter(logits[of_row, at].float().log_softmax(dim=-1)[torch.arange(len(reads)), token].tolist())
        return [[next(flat) for _ in row.reads] for row in rows]

    def _begun(self, rows: list[Row]) -> tuple[DynamicCache | None, dict[str, Any]]:
        """Run the model on what several rows begin with.

        Returns:
            A cache that goes on from there, and, unless there is nothing of the kind, which of its places are padding
            (rows, places) and the positions that rows go on from (rows, 1).
        """
        begun = {tuple(row.tokens[: row.begins]): 0 for row in rows}
        if not any(begun):
            every = torch.zeros(len(rows), dtype=torch.long)
            return (ResumedCache(self._beginning, every) if self._beginning else None), {}
        begun = {tokens: number for number, tokens in enumerate(begun)}
        cache = copy.deepcopy(self._beginning) if self._beginning else DynamicCache(config=self._local.model.config)
        cache.batch_repeat_interleave(len(begun))
        tokens = _padded(list(begun))
        self._local.logits(tokens, torch.zeros(len(begun), 1, dtype=torch.long), past_key_values=cache, use_cache=True)
        of_rows = torch.tensor([begun[tuple(row.tokens[: row.begins])] for row in rows])
        begins = torch.tensor([[row.begins] for row in rows])
        seen = torch.arange(self.shared + tokens.shape[1]) < self.shared + begins
        return ResumedCache(cache, of_rows), {"attention_mask": seen.long(), "position_ids": self.shared + begins}


def _padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])


def _branches(prompt: Prompt) -> bool:
    """Say whether its answers need rows of their own: they differ later than in the first token."""
    first = {answer[0] for answer in prompt.answers.values()}
    return len(first) < len(prompt.answers) or prompt.request.per_token


def common_beginning(prompts: Sequence[Prompt]) -> int:
    """Return how many tokens all prompts begin with, leaving each at least one of its own."""
    if len(prompts) == 1:
        return 0
    first, last = min(prompt.tokens for prompt in prompts), max(prompt.tokens for prompt in prompts)
    return _alike(first, last, min(len(prompt.tokens) for prompt in prompts) - 1)


def _alike(one: Sequence[int], other: Sequence[int], limit: int) -> int:
    return next((i for i in range(limit) if one[i] != other[i]), limit)


def beginnings(prompts: Sequence[list[int]], rows: Sequence[int]) -> list[int]:
    """Return how many tokens of each prompt are to be computed once for all that begin with them.

    Prompts that begin alike are neighbours once they are sorted. They are divided into groups by dynamic programming
    over where the last group starts, so that the fewest tokens are computed.

    Args:
        prompts: the tokens of each.
        rows: that each has, which go on differently after its last token.
    """
    order = sorted(range(len(prompts)), key=lambda i: prompts[i])
    saved, cuts = [0], [(0, 0)]
    for end in range(1, len(order) + 1):
        last, total = prompts[order[end - 1]], 0
        begins = len(last) - 1
        best = (saved[end - 1], 0, end - 1)
        for start in range(end - 1, -1, -1):
            begins = _alike(prompts[order[start]], last, min(begins, len(prompts[order[start]]) - 1))
            if begins == 0:
                break
            total += rows[order[start]]
            best = max(best, (saved[start] + begins * (total - 1) - PASS_TOKENS, begins, start))
        saved.append(best[0])
        cuts.append(best[1:])
    found, end = [0] * len(order), len(order)
    while end:
        begins, start = cuts[end]
        for i in order[start:end]:
            found[i] = begins
        end = start
    return found


def _reply(prompt: Prompt, sums: dict[str, float]) -> Reply:
    """Make the reply of the log-probabilities of the answers, which are sums over their tokens."""
    if prompt.request.per_token:
        sums = {choice: value / len(prompt.answers[choice]) for choice, value in sums.items()}
    return Reply("", _normalised(sums), input_tokens=len(prompt.tokens), output_tokens=0)


def _normalised(logprobs: dict[str, float]) -> dict[str, float]:
    values = torch.tensor(list(logprobs.values()), dtype=torch.float64).log_softmax(dim=0).tolist()
    return dict(zip(logprobs, values, strict=True))
