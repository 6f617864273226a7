"""Probabilities of given answers, read off a language model in one pass for each batch; no text is written.

What all prompts begin with is computed once, for all batches. Where the first tokens of the answers differ, they alone
are compared; otherwise the probability of an answer is the product over its tokens, or their mean where that is asked
for, and what a prompt has of its own is computed once for all of its answers.
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


class Read(NamedTuple):
    """A log-probability to read off."""

    position: int
    """Of the token before, in its row."""
    token: int
    prompt: int
    choice: str


class ResumedCache(DynamicCache):
    """A cache that holds a beginning for each of n rows and keeps nothing of what is added.

    The beginning is copied for one layer at a time, so that it takes the memory of one layer.
    """

    def __init__(self, beginning: DynamicCache, n_rows: int) -> None:
        super().__init__()
        self.layers = beginning.layers
        self._n_rows = n_rows

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of the beginning and of what is new, for attention in one layer."""
        layer: Any = copy.copy(self.layers[layer_idx])
        layer.keys, layer.values = (states.expand(self._n_rows, -1, -1, -1) for states in (layer.keys, layer.values))
        return layer.update(key_states, value_states, *args, **kwargs)


class Scorer:
    """Scores prompts that have something in common; `shared` tokens of them are computed once."""

    def __init__(self, local: LocalModel, prompts: Sequence[Prompt]) -> None:
        self._local = local
        self.shared = common_beginning(prompts) if local.resumes else 0
        self._beginning: DynamicCache | None = None
        if self.shared:
            tokens = torch.tensor([prompts[0].tokens[: self.shared]])
            self._beginning = DynamicCache(config=local.model.config)
            local.logits(tokens, torch.tensor([self.shared - 1]), past_key_values=self._beginning, use_cache=True)

    def width(self, prompt: Prompt) -> int:
        """Return how many tokens a row of this prompt has."""
        return max(len(row) for row, _ in self._rows(prompt, 0))

    def height(self, prompt: Prompt) -> int:
        """Return how many rows this prompt takes."""
        return len(self._rows(prompt, 0))

    def answer(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Return the log-probability of each choice of each prompt, normalised over its choices."""
        if self._local.resumes and any(map(self._branches, prompts)):
            return [
                self._branched(prompt) if self._branches(prompt) else self._together([prompt])[0] for prompt in prompts
            ]
        return self._together(prompts)

    def _together(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Answer prompts in one pass."""
        rows = [row for i, prompt in enumerate(prompts) for row in self._rows(prompt, i)]
        reads = [(r, read) for r, (_, of_row) in enumerate(rows) for read in of_row]
        logprobs = self._logprobs([tokens for tokens, _ in rows], reads)
        sums = [dict.fromkeys(prompt.answers, 0.0) for prompt in prompts]
        for (_, read), logprob in zip(reads, logprobs, strict=True):
            sums[read.prompt][read.choice] += logprob
        return [_reply(prompt, choices) for prompt, choices in zip(prompts, sums, strict=True)]

    def _branches(self, prompt: Prompt) -> bool:
        """Say whether its answers need rows of their own: they differ later than in the first token."""
        first = {answer[0] for answer in prompt.answers.values()}
        return len(first) < len(prompt.answers) or prompt.request.per_token

    def _branched(self, prompt: Prompt) -> Reply:
        """Answer a prompt in two passes: its own tokens once, then the tokens of all its answers."""
        local, own = self._local, prompt.tokens[self.shared :]
        cache = copy.deepcopy(self._beginning) if self._beginning else DynamicCache(config=local.model.config)
        first = local.logits(
            torch.tensor([own]), torch.tensor([len(own) - 1]), past_key_values=cache, use_cache=True
        ).float()[0, 0]
        sums = {choice: float(first.log_softmax(dim=-1)[answer[0]]) for choice, answer in prompt.answers.items()}
        longer = {choice: answer for choice, answer in prompt.answers.items() if len(answer) > 1}
        if longer:
            width = max(map(len, longer.values())) - 1
            rows = [answer[:-1] + [0] * (width + 1 - len(answer)) for answer in longer.values()]
            logits = local.logits(
                torch.tensor(rows),
                torch.arange(width),
                past_key_values=ResumedCache(cache, len(rows)),
                use_cache=True,
            )
            rest = logits.float().log_softmax(dim=-1)
            for row, (choice, answer) in enumerate(longer.items()):
                sums[choice] += sum(float(rest[row, at, token]) for at, token in enumerate(answer[1:]))
        return _reply(prompt, sums)

    def _rows(self, prompt: Prompt, i: int) -> list[tuple[list[int], list[Read]]]:
        """Return the rows that a prompt needs: tokens after the shared beginning, and what is read off them."""
        own = prompt.tokens[self.shared :]
        last = len(own) - 1
        if not self._branches(prompt):
            return [(own, [Read(last, answer[0], i, choice) for choice, answer in prompt.answers.items()])]
        return [
            (own + answer[:-1], [Read(last + j, token, i, choice) for j, token in enumerate(answer)])
            for choice, answer in prompt.answers.items()
        ]

    def _logprobs(self, rows: list[list[int]], reads: list[tuple[int, Read]]) -> list[float]:
        """Run the model on rows, and read.

        Padding stands on the right, where no token before it can see it, so it needs no mask and moves no position.
        """
        width = max(len(row) for row in rows)
        tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        wanted, column = torch.tensor([read.position for _, read in reads]).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        cache = None if self._beginning is None else ResumedCache(self._beginning, len(rows))
        logits = self._local.logits(tokens, wanted, past_key_values=cache, use_cache=cache is not None)
        of_reads = logits[torch.tensor([row for row, _ in reads]), column].float().log_softmax(dim=-1)
        return of_reads[torch.arange(len(reads)), torch.tensor([read.token for _, read in reads])].tolist()


def common_beginning(prompts: Sequence[Prompt]) -> int:
    """Return how many tokens all prompts begin with, leaving each at least one of its own."""
    if len(prompts) == 1:
        return 0
    first, last = min(prompt.tokens for prompt in prompts), max(prompt.tokens for prompt in prompts)
    limit = min(len(prompt.tokens) for prompt in prompts) - 1
    return next((i for i in range(limit) if first[i] != last[i]), limit)


def _reply(prompt: Prompt, sums: dict[str, float]) -> Reply:
    """Make the reply of the log-probabilities of the answers, which are sums over their tokens."""
    if prompt.request.per_token:
        sums = {choice: value / len(prompt.answers[choice]) for choice, value in sums.items()}
    return Reply("", _normalised(sums), input_tokens=len(prompt.tokens), output_tokens=0)


def _normalised(logprobs: dict[str, float]) -> dict[str, float]:
    values = torch.tensor(list(logprobs.values()), dtype=torch.float64).log_softmax(dim=0).tolist()
    return dict(zip(logprobs, values, strict=True))
