"""Generation of answers by a language model, token by token, for a batch of prompts at a time.

Every prompt has its own random numbers, so that its answer depends on its batch only through floating-point rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import DynamicCache

from laurel.llm.chat import Reply
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
        """Return the tokens of each answer; one that ended leaves the batch."""
        local, width = self._local, max(len(prompt.tokens) for prompt in prompts)
        padding = [width - len(prompt.tokens) for prompt in prompts]
        # padding on the left, so that the next tokens of all prompts are in the same column
        tokens = torch.tensor([[0] * pad + prompt.tokens for pad, prompt in zip(padding, prompts, strict=True)])
        mask = torch.tensor([[0] * pad + [1] * (width - pad) for pad in padding], device=local.device)
        cache = DynamicCache(config=local.model.config)
        draws = [Draw(prompt) for prompt in prompts]
        written: list[list[int]] = [[] for _ in prompts]
        rows = list(range(len(prompts)))
        while rows:
            positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
            logits = local.logits(
                tokens,
                torch.full((len(tokens), 1), tokens.shape[1] - 1),
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
            drawn = [draws[row].token(of_row) for row, of_row in zip(rows, logits[:, 0].float(), strict=True)]
            going = []
            for i, (row, token) in enumerate(zip(rows, drawn, strict=True)):
                written[row].append(token)
                if token not in local.stops and len(written[row]) < self._limit(prompts[row]):
                    going.append(i)
            if going and len(going) < len(rows):
                left = torch.tensor(going, device=local.device)
                mask = mask[left]
                cache.reorder_cache(left)  # type: ignore[arg-type]  # its LongTensor is an alias of old
            rows = [rows[i] for i in going]
            tokens = torch.tensor([[drawn[i]] for i in going])
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        return written


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
        cumulated = p.cumsum(dim=-1)
        # inverse of the cumulative distribution; a token of probability 0 is never drawn
        rank = int((cumulated <= self._rng.random() * cumulated[-1]).sum())
        return int(tokens[rank]) if self._sampling.top_p < 1 else rank
