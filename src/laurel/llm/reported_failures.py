"""A chat model whose failures are reported when they first happen, since a run may take hours until it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from laurel.console import tell
from laurel.data.missing import kind_of
from laurel.llm.chat import ChatModel, ChatRequest, Failure, Reply, Withheld

KINDS = 5
"""Reasons that are reported; those that differ in numbers alone are one."""


class ReportingChat:
    """Implements `laurel.llm.chat.ChatModel` on top of another one."""

    def __init__(self, model: ChatModel) -> None:
        self.identity = model.identity
        self.at_once: int = getattr(model, "at_once", 0)
        self._model = model
        self._told: set[str] = set()

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield what the model yields, and raise what it raises."""
        for number, answer in self._model.ask(requests):
            if isinstance(answer, Failure) and not isinstance(answer, Withheld):
                self._tell(answer.reason)
            yield number, answer

    def _tell(self, reason: str) -> None:
        kind = kind_of(reason)
        if kind not in self._told and len(self._told) < KINDS:
            self._told.add(kind)
            tell(f"{self.identity.model} gave no answer, and may again for the same reason: {reason}")
