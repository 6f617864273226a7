"""Generation of answers by a language model, token by token, for a batch of prompts at a time.

Every prompt has its own random numbers, so that its answer depends on its batch only through floating-point rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from laurel.llm.chat import Reply
from laurel.llm.decoding import decode, draw
from laurel.llm.local_model import LocalModel
from laurel.llm.local_prompts import Pack, Prompt
from laurel.llm.replies import CHANNEL, answer_of
from laurel.seeding import generator


class Writer:
    """Generates answers."""

    def __init__(self, local: LocalModel) -> None:
        self._local = local

    def packs(self, prompts: Sequence[Prompt], batch_tokens: int) -> list[Pack]:
        """Return a pack per prompt: each takes a row with the maximum length of prompt and answer."""
        return [Pack([prompt], len(prompt.tokens) + self._limit(prompt)) for prompt in prompts]

    def answer(self, packs: Sequence[Pack]) -> list[Reply]:
        """Return the answer to each prompt."""
        prompts = [prompt for pack in packs for prompt in pack.prompts]
        written = self._write(prompts)
        replies = []
        for prompt, tokens in zip(prompts, written, strict=True):
            stopped = bool(tokens) and tokens[-1] in self._local.stops
            text, ended = self._text(tokens[:-1] if stopped else tokens, "stop" if stopped else "length")
            replies.append(Reply(text, input_tokens=len(prompt.tokens), output_tokens=len(tokens), finish_reason=ended))
        return replies

    def _text(self, tokens: list[int], ended: str) -> tuple[str, str]:
        """Return an answer's text and its finish reason; the marks of harmony's channels are special tokens."""
        decode = self._local.tokenizer.decode
        marked = CHANNEL in self._local.tokenizer.get_added_vocab()
        written = answer_of({"content": decode(tokens, skip_special_tokens=not marked)}, ended)
        assert written is not None  # plain text is a message's content
        return written

    def _limit(self, prompt: Prompt) -> int:
        return min(prompt.request.sampling.max_tokens, self._local.context - len(prompt.tokens))

    def _write(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        draws = [Draw(prompt) for prompt in prompts]
        return decode(
            self._local,
            [prompt.tokens for prompt in prompts],
            lambda rows, logits: [
                draws[row].token(row_logits) for row, row_logits in zip(rows.tolist(), logits.float(), strict=True)
            ],
            [self._limit(prompt) for prompt in prompts],
        )


class Draw:
    """Samples the tokens of an answer with a generator seeded by the request's seed (0 by default) and prompt."""

    def __init__(self, prompt: Prompt) -> None:
        self._sampling = prompt.request.sampling
        self._rng = generator(self._sampling.seed or 0, prompt.text)

    def token(self, logits: torch.Tensor) -> int:
        """Draw a token from its logits (V,): the likeliest at temperature 0, else one of the nucleus.

        The nucleus is the set of likeliest tokens that have probability top_p together (Holtzman et al. 2020).
        """
        if self._sampling.temperature == 0:
            return int(logits.argmax())
        p = (logits / self._sampling.temperature).softmax(dim=-1).double()
        if self._sampling.top_p < 1:
            p, tokens = p.sort(descending=True, stable=True)
            p[p.cumsum(dim=-1) - p >= self._sampling.top_p] = 0
        rank = int(draw(p[None], torch.tensor([self._rng.random()], dtype=p.dtype, device=p.device)))
        return int(tokens[rank]) if self._sampling.top_p < 1 else rank
