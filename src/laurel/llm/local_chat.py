"""A language model in this process as chat model.

A request with choices is scored: the probabilities of the choices are computed in one forward pass. For others, an
answer is generated. Requests are read a window at a time and batched by length.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import torch

from laurel.llm.chat import ChatRequest, Failure, RefusedError, Reply
from laurel.llm.local_model import LocalModel, load_model
from laurel.llm.local_prompts import Pack, Prompt, PromptReader
from laurel.llm.local_scoring import Scorer
from laurel.llm.local_writing import Writer

if TYPE_CHECKING:
    from laurel.params.judges import HuggingFaceParams

logger = logging.getLogger(__name__)
WINDOW = 512
"""Number of requests per window, which bounds memory."""

FULL = 1024
"""Batch size in tokens beyond which throughput does not improve: much shorter prompts then go into another batch."""
CPU_TOKENS = 256
"""Maximum tokens of a batch that is scored on a CPU: with more, activations exceed a core's cache."""
LIKE = 0.75
"""A prompt must fill this share of the width of a batch that has FULL tokens, or too much is padding."""


class Worker(Protocol):
    """Answers packs of prompts, in their order."""

    def packs(self, prompts: Sequence[Prompt], batch_tokens: int) -> list[Pack]: ...
    def answer(self, packs: Sequence[Pack]) -> list[Reply]: ...


class LocalChat:
    """Implements `laurel.llm.chat.ChatModel`."""

    def __init__(self, local: LocalModel, batch_tokens: int) -> None:
        self.identity = local.identity
        self._local = local
        self._reader = PromptReader(local)
        self._batch_tokens = batch_tokens
        self._said = False

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield (number of the request, answer) after each batch.

        Raises:
            RefusedError: the chat template does not support such conversations, or the GPU's memory is too small even
                for their common prefix.
        """
        numbered = enumerate(requests)
        while window := list(islice(numbered, WINDOW)):
            scored: list[Prompt] = []
            written: list[Prompt] = []
            for number, request in window:
                prompt = self._reader.read(number, request)
                if isinstance(prompt, Failure):
                    yield number, prompt
                else:
                    (scored if request.choices else written).append(prompt)
            if scored:
                try:
                    scorer = Scorer(self._local, scored)
                except torch.OutOfMemoryError:
                    raise RefusedError(
                        f'The memory of the GPU is too small for the prompts of "{self.identity.model}". '
                        "Shorten them, or use a smaller model."
                    ) from None
                limit = CPU_TOKENS if self._local.device.type == "cpu" else self._batch_tokens
                yield from self._in_batches(scorer, scored, limit)
            yield from self._in_batches(Writer(self._local), written, self._batch_tokens)

    def _in_batches(self, worker: Worker, prompts: list[Prompt], limit: int) -> Iterator[tuple[int, Reply | Failure]]:
        """Answer batches with at most `limit` tokens, the longest first, and smaller ones once memory runs out."""
        queue = sorted(worker.packs(prompts, self._batch_tokens), key=lambda pack: pack.width, reverse=True)
        while queue:
            size, tokens = self._fitting(queue, min(limit, self._batch_tokens))
            batch = queue[:size]
            prompts = [prompt for pack in batch for prompt in pack.prompts]
            replies = self._attempt(worker, batch)
            if replies is None and size > 1:
                self._shrink(tokens)
                continue
            del queue[:size]
            if replies is None and len(prompts) > 1:
                queue[:0] = [pack for prompt in prompts for pack in worker.packs([prompt], self._batch_tokens)]
            elif replies is None:
                yield prompts[0].number, Failure("the memory of the GPU is too small for this prompt alone")
            else:
                yield from zip((prompt.number for prompt in prompts), replies, strict=True)

    def _fitting(self, queue: list[Pack], limit: int) -> tuple[int, int]:
        """Return how many packs of similar width form the next batch, at least one, and its number of tokens."""
        width = queue[0].width
        size = rows = 0
        for pack in queue:
            height = rows + pack.height
            if size and height * width > limit:
                break
            if rows * width >= FULL and pack.width < LIKE * width:
                break
            size, rows = size + 1, height
        return size, rows * width

    def _attempt(self, worker: Worker, batch: list[Pack]) -> list[Reply] | None:
        """Return the answers to a batch, or None if memory does not suffice."""
        started = time.perf_counter()
        try:
            replies = worker.answer(batch)
        except torch.OutOfMemoryError:
            replies = None
        if replies is None:
            torch.cuda.empty_cache()  # the memory of the failed attempt is free only here, after the exception
            return None
        seconds = (time.perf_counter() - started) / len(replies)
        return [reply._replace(seconds=seconds) for reply in replies]

    def _shrink(self, tokens: int) -> None:
        if not self._said:
            logger.warning(
                "A batch of %d tokens does not fit into the memory of the GPU; continuing with smaller ones. "
                "A smaller annotate.huggingface.batch_tokens avoids the failed attempt.",
                tokens,
            )
            self._said = True
        self._batch_tokens = tokens // 2


def load_local(params: HuggingFaceParams) -> LocalChat:
    """Load the language model that the params name.

    Raises:
        RefusedError: it cannot be loaded, or cannot hold a conversation.
        ParamsError: a GPU is asked for, but missing.
    """
    return LocalChat(load_model(params), params.batch_tokens)
