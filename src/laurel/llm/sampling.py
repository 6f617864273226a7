"""Sampling from a causal language model in large batches, with log-probabilities.

Each distinct prompt is processed once, and its key-value cache is shared by all its answers. All random numbers come
from one generator, so a seed reproduces the batch. A grammar, an automaton over tokens, may constrain answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from laurel.arrays import FloatArray, IntArray
from laurel.llm.local_model import LocalModel

if TYPE_CHECKING:
    import torch

BATCH_TOKENS = 2**16
"""Maximum tokens per batch, including prompts and answers."""


class Sampled(NamedTuple):
    """N answers."""

    tokens: list[list[int]]
    """The tokens, without the one that ended them."""
    log_prob: FloatArray
    """(N,) sum over the tokens, including the end token, under the sampling distribution: within the grammar, at the
    temperature."""
    ends: list[int | None]
    """The end token of each answer; None if it was cut off at the limit."""

    @property
    def ended(self) -> list[bool]:
        """Whether the model ended the answer, rather than the limit."""
        return [end is not None for end in self.ends]

    @property
    def whole(self) -> list[list[int]]:
        """The tokens with those that ended them."""
        return [[*answer, *([] if end is None else [end])] for answer, end in zip(self.tokens, self.ends, strict=True)]


@dataclass
class Grammar:
    """An automaton of allowed tokens: states and transitions. The first state is 0."""

    edges: list[dict[int, int]] = field(default_factory=lambda: [{}])
    """State -> token -> next state."""
    END = -1
    """The next state of a token that ends the answer."""

    def add(self, path: Sequence[int], start: int = 0, target: int | None = None) -> int:
        """Allow a sequence of tokens from a state; return the state after it, `target` if given.

        A path that is a prefix of another one must be added first.
        """
        state = start
        for place, token in enumerate(path):
            if token not in self.edges[state]:
                if target is None or place + 1 < len(path):
                    self.edges.append({})
                    self.edges[state][token] = len(self.edges) - 1
                else:
                    self.edges[state][token] = target
            state = self.edges[state][token]
        return state

    def end(self, state: int, stops: Iterable[int]) -> None:
        """Allow the answer to end in a state."""
        self.edges[state] |= dict.fromkeys(stops, self.END)

    @property
    def tokens(self) -> list[int]:
        """All tokens that occur, (K,)."""
        return sorted({token for edges in self.edges for token in edges})

    def allowed(self) -> torch.Tensor:
        """Return which of `tokens` are allowed in each state (S, K).

        Raises:
            ValueError: a state has no allowed token.
        """
        import torch

        if not all(self.edges):
            raise ValueError("a state of the grammar has neither a next token nor an end")
        return torch.tensor([[token in edges for token in self.tokens] for edges in self.edges])


def sample(
    local: LocalModel,
    prompts: Sequence[Sequence[int]],
    rng: np.random.Generator,
    *,
    max_tokens: int,
    temperature: float = 1.0,
    grammar: Grammar | None = None,
) -> Sampled:
    """Sample an answer to each of N prompts, given as tokens; equal prompts are processed once.

    Args:
        rng: for sampling; temperature 0 is greedy.
        max_tokens: of an answer, including its end token.
        grammar: constrains answers; None: no constraint. It must end within `max_tokens`.
    """
    import torch

    from laurel.llm.local_head import some_logits

    if not prompts:
        return Sampled([], np.zeros(0, dtype=np.float32), [])
    distinct = list(dict.fromkeys(map(tuple, prompts)))
    place = {prompt: number for number, prompt in enumerate(distinct)}
    indices = np.array([place[tuple(prompt)] for prompt in prompts])
    order = np.argsort(indices, kind="stable")
    rows = max(1, BATCH_TOKENS // (max(map(len, distinct)) + max_tokens))
    tokens: list[list[int]] = [[] for _ in prompts]
    log_prob = np.zeros(len(prompts), dtype=np.float32)
    ends: list[int | None] = [None] * len(prompts)
    written = None if grammar is None else torch.tensor(grammar.tokens, device=local.device)
    with without_dropout(local.model), nullcontext() if written is None else some_logits(local.model, written):
        for start in range(0, len(order), rows):
            batch = order[start : start + rows]
            answers = _batch(local, [distinct[i] for i in indices[batch]], rng, max_tokens, temperature, grammar)
            for i, answer, log, end in zip(batch, *answers, strict=True):
                tokens[i], log_prob[i], ends[i] = answer, log, end
    return Sampled(tokens, log_prob, ends)


@contextmanager
def without_dropout(model: Any) -> Iterator[None]:
    """Put each module of a model into evaluation mode, and back."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _batch(
    local: LocalModel,
    prompts: Sequence[tuple[int, ...]],
    rng: np.random.Generator,
    max_tokens: int,
    temperature: float,
    grammar: Grammar | None,
) -> Sampled:
    import torch

    from laurel.llm.decoding import decode, draw

    allowed = None if grammar is None else grammar.allowed().to(local.device)
    names = None if grammar is None else torch.tensor(grammar.tokens, device=local.device)
    states = np.zeros(len(prompts), dtype=np.int64)
    log_prob = np.zeros(len(prompts), dtype=np.float32)

    def choose(rows: IntArray, logits: torch.Tensor) -> list[int]:
        scores = logits.float() / (temperature or 1.0)
        if allowed is not None:
            scores = scores.masked_fill(~allowed[torch.from_numpy(states[rows]).to(local.device)], -torch.inf)
        logs = scores.log_softmax(dim=-1)
        drawn = (
            logs.argmax(dim=-1)
            if temperature == 0
            else draw(logs.double().exp(), torch.from_numpy(rng.random(len(rows))).to(local.device))
        )
        log_prob[rows] += logs.gather(1, drawn[:, None])[:, 0].cpu().numpy()
        tokens: list[int] = (drawn if names is None else names[drawn]).tolist()
        if grammar is not None:
            states[rows] = [grammar.edges[states[row]][token] for row, token in zip(rows, tokens, strict=True)]
        return tokens

    answers = decode(local, prompts, choose, [max_tokens] * len(prompts))
    ends = [answer[-1] if answer[-1] in local.stops else None for answer in answers]
    return Sampled(
        [answer if end is None else answer[:-1] for answer, end in zip(answers, ends, strict=True)], log_prob, ends
    )


def log_probs(
    local: LocalModel, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], temperature: float = 1.0
) -> FloatArray:
    """Return the log-probabilities (N,) of answers, given as tokens including the end token, without a grammar."""
    import torch

    totals = np.zeros(len(prompts), dtype=np.float32)
    longest = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
    rows = max(1, BATCH_TOKENS // 4 // longest)
    for start in range(0, len(prompts), rows):
        batch = [
            [*prompt, *answer]
            for prompt, answer in zip(prompts[start : start + rows], answers[start : start + rows], strict=True)
        ]
        width = max(map(len, batch))
        tokens = torch.tensor([row + [0] * (width - len(row)) for row in batch])  # no earlier token attends to padding
        with without_dropout(local.model):
            logs = (local.logits(tokens, torch.arange(width)).float() / temperature).log_softmax(dim=-1)
        for i, row in enumerate(batch):
            first = len(prompts[start + i])
            places = torch.arange(first - 1, len(row) - 1)
            totals[start + i] = float(logs[i, places, torch.tensor(row[first:], dtype=torch.long)].sum())
    return totals
