"""Probabilities of given answers, computed by a language model in one forward pass per batch, without generation.

The prefix that all prompts share is computed once, for all batches. The rest of each is packed into rows as trees:
prompts with a longer common prefix, such as the same first text, share these tokens, and each token attends only to its
ancestors (tree attention; Miao et al. 2023, arXiv 2305.09781). The log-probability of an answer is the sum over its
tokens, or their mean if requested.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import DynamicCache

from laurel.llm.chat import Reply
from laurel.llm.local_model import LocalModel
from laurel.llm.local_prompts import Pack, Prompt

WIDTH = 256
"""Maximum tokens of a row of packed prompts: wider rows save little more, and attention is quadratic in their width."""


class Read(NamedTuple):
    """A log-probability to read off."""

    place: int
    """Index of the token before, in its row."""
    token: int
    prompt: int
    choice: str


class Row(NamedTuple):
    """Tokens after the shared prefix, and the log-probabilities to read from their logits."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    """Index of each token's parent; -1 is the end of the shared prefix."""
    line: tuple[int, ...] = ()
    """Indices of the tokens of the last path."""
    reads: tuple[Read, ...] = ()

    def with_path(self, path: Sequence[int]) -> Row:
        """Add a path; the prefix that it shares with the last path is not added again."""
        last = [self.tokens[place] for place in self.line]
        begins = _alike(last, path, min(len(last), len(path)))
        line = (*self.line[:begins], *range(len(self.tokens), len(self.tokens) + len(path) - begins))
        parents = (*self.parents, *(-1, *line)[begins : len(path)])
        return self._replace(tokens=(*self.tokens, *path[begins:]), parents=parents, line=line)

    def depths(self) -> list[int]:
        """Return the depth of each token in its tree."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths


class ResumedCache(DynamicCache):
    """A read-only key-value cache of the shared prefix, which all rows of a batch extend."""

    def __init__(self, beginning: DynamicCache, rows: int) -> None:
        super().__init__()
        self.layers = beginning.layers
        self._rows = rows

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of the beginning and of what is new, for attention in one layer."""
        layer: Any = copy.copy(self.layers[layer_idx])
        layer.keys, layer.values = (states.expand(self._rows, -1, -1, -1) for states in (layer.keys, layer.values))
        return layer.update(key_states, value_states, *args, **kwargs)


class Scorer:
    """Scores prompts with a common prefix; its `shared` tokens are computed once."""

    def __init__(self, local: LocalModel, prompts: Sequence[Prompt]) -> None:
        self._local = local
        self.shared = common_beginning(prompts) if local.resumes else 0
        self._beginning: DynamicCache | None = None
        if self.shared:
            tokens = torch.tensor([prompts[0].tokens[: self.shared]])
            self._beginning = DynamicCache(config=local.model.config)
            local.logits(tokens, torch.tensor([[self.shared - 1]]), past_key_values=self._beginning, use_cache=True)

    def packs(self, prompts: Sequence[Prompt], batch_tokens: int) -> list[Pack]:
        """Divide prompts into packs: a row of WIDTH tokens, or one prompt if the model does not support trees."""
        packs: list[tuple[list[Prompt], list[Row]]] = []
        for prompt in sorted(prompts, key=lambda prompt: prompt.tokens):
            if packs and self._local.trees:
                rows = self._rows(prompt, packs[-1][1])
                if len(rows[0].tokens) <= min(WIDTH, batch_tokens):
                    packs[-1] = [*packs[-1][0], prompt], rows
                    continue
            packs.append(([prompt], self._rows(prompt)))
        return [Pack(group, max(len(row.tokens) for row in rows), len(rows)) for group, rows in packs]

    def answer(self, packs: Sequence[Pack]) -> list[Reply]:
        """Return the log-probability of each choice of each prompt, normalised over its choices."""
        prompts = [prompt for pack in packs for prompt in pack.prompts]
        rows: list[Row] = []
        for pack in packs:
            of_pack: list[Row] = []
            for prompt in pack.prompts:
                of_pack = self._rows(prompt, of_pack)
            rows += of_pack
        sums = {prompt.number: dict.fromkeys(prompt.answers, 0.0) for prompt in prompts}
        for read, logprob in self._logprobs(rows):
            sums[read.prompt][read.choice] += logprob
        return [_reply(prompt, sums[prompt.number]) for prompt in prompts]

    def _rows(self, prompt: Prompt, before: Sequence[Row] = ()) -> list[Row]:
        """Return the rows with a prompt added: to the last row where the model takes trees, else a row a path."""
        rows = list(before)
        for path, reads in _paths(prompt, self.shared):
            row = rows.pop() if rows and self._local.trees else Row()
            row = row.with_path(path)
            placed = (Read(row.line[read.place], *read[1:]) for read in reads)
            rows.append(row._replace(reads=(*row.reads, *placed)))
        return rows

    def _logprobs(self, rows: Sequence[Row]) -> Iterator[tuple[Read, float]]:
        """Run the model on rows; yield the log-probabilities read off them.

        Padding is on the right, where no earlier token attends to it, so rows without branches need no mask.
        """
        cache = ResumedCache(self._beginning, len(rows)) if self._beginning else None
        depths = [row.depths() for row in rows]
        inputs: dict[str, Any] = {}
        if any(depth != place for of_row in depths for place, depth in enumerate(of_row)):
            inputs = {
                "attention_mask": tree_mask(rows, self.shared, self._local.model.dtype),
                "position_ids": self.shared + padded(depths),
            }
            inputs = {name: tensor.to(self._local.device) for name, tensor in inputs.items()}
        wanted = [list(dict.fromkeys(read.place for read in row.reads)) for row in rows]
        tokens = padded([row.tokens for row in rows])
        plain = tokens.shape[1] <= WIDTH and self._local.model.dtype.itemsize == 2
        with self._local.plain_attention() if plain else nullcontext():
            logits = self._local.logits(
                tokens, padded(wanted), past_key_values=cache, use_cache=cache is not None, **inputs
            )
        reads = [(number, read) for number, row in enumerate(rows) for read in row.reads]
        of_row, position, token = torch.tensor([(i, wanted[i].index(read.place), read.token) for i, read in reads]).T
        values = logits.float().log_softmax(dim=-1)[of_row, position, token].tolist()
        yield from zip((read for _, read in reads), values, strict=True)


def tree_mask(rows: Sequence[Row], shared: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the additive attention mask (B, 1, W, shared + W) of rows: 0 where a token is attended to."""
    width = max(len(row.tokens) for row in rows)
    seen = np.zeros((len(rows), width, shared + width), dtype=np.bool_)
    seen[:, :, :shared] = True
    for of_row, row in zip(seen, rows, strict=True):
        for place, parent in enumerate(row.parents):
            if parent >= 0:
                of_row[place] = of_row[parent]
            of_row[place, shared + place] = True
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(torch.from_numpy(~seen), torch.finfo(dtype).min)
    return mask[:, None]


def padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return rows of numbers, padded with zeros on the right."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])


def _paths(prompt: Prompt, shared: int) -> list[tuple[list[int], list[Read]]]:
    """Return the rows of tokens that a prompt adds to the shared beginning, each with the positions to read off.

    That is a single row, the prompt's, if each answer is one token.
    """
    tokens = prompt.tokens[shared:]
    last = len(tokens) - 1
    if all(len(answer) == 1 for answer in prompt.answers.values()):
        return [(tokens, [Read(last, answer[0], prompt.number, choice) for choice, answer in prompt.answers.items()])]
    return [
        (tokens + answer[:-1], [Read(last + j, token, prompt.number, choice) for j, token in enumerate(answer)])
        for choice, answer in prompt.answers.items()
    ]


def common_beginning(prompts: Sequence[Prompt]) -> int:
    """Return the length of the prompts' common prefix, leaving each prompt at least one token."""
    if len(prompts) == 1:
        return 0
    first, last = min(prompt.tokens for prompt in prompts), max(prompt.tokens for prompt in prompts)
    return _alike(first, last, min(len(prompt.tokens) for prompt in prompts) - 1)


def _alike(first: Sequence[int], second: Sequence[int], limit: int) -> int:
    return next((i for i in range(limit) if first[i] != second[i]), limit)


def _reply(prompt: Prompt, sums: dict[str, float]) -> Reply:
    """Make a reply from the log-probabilities of the answers, which are sums over their tokens."""
    if prompt.request.per_token:
        sums = {choice: value / len(prompt.answers[choice]) for choice, value in sums.items()}
    return Reply("", _normalised(sums), input_tokens=len(prompt.tokens), output_tokens=0)


def _normalised(logprobs: dict[str, float]) -> dict[str, float]:
    values = torch.tensor(list(logprobs.values()), dtype=torch.float64).log_softmax(dim=0).tolist()
    return dict(zip(logprobs, values, strict=True))
