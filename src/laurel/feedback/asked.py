"""Records a sample of a chat model's questions and answers, of any kind of question, which become traces in MLflow.

The sample has the first items in the order of asking, with new or stored answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic

from laurel.data.asked import MOST, Asked, AskedPrompt, GivenAnswer, cut
from laurel.feedback.annotator import Answer
from laurel.feedback.prompt import Prompt
from laurel.feedback.question import Item, Question, Value


def prompt_of(prompt: Prompt) -> AskedPrompt:
    """Return a prompt in the form of samples."""
    return {
        "kind": prompt.form.kind,
        "name": prompt.name,
        "digest": prompt.digest,
        "answer": prompt.answer,
        "description": prompt.description,
        "text": prompt.text,
    }


class AskedSample(Generic[Item, Value]):
    """Records the first items that were asked about, with their answers."""

    def __init__(self, name: str, question: Question[Item, Value]) -> None:
        self._name, self._question = name, question
        self._kept: list[tuple[Item, list[Answer[Value]]]] = []
        self._read: list[list[GivenAnswer]] = []

    def add(self, item: Item, answers: Sequence[Answer[Value]]) -> None:
        """Add an item if there is room; missing answers are left out."""
        if len(self._kept) < MOST and (recorded := [answer for answer in answers if answer.key]):
            self._kept.append((item, recorded))

    def read(self, texts: Callable[[Sequence[str]], dict[str, str]]) -> list[Asked]:
        """Return the sample; an empty list if nothing was answered.

        Args:
            texts: returns key -> raw answer, for the keys of stored answers.
        """
        if not self._kept:
            return []
        new = self._kept[len(self._read) :]
        stored = texts([answer.key for _, answers in new for answer in answers])
        self._read += [[self._given_answer(item, answer, stored) for answer in answers] for item, answers in new]
        return [{"name": self._name, "prompt": prompt_of(self._question.prompt), "items": list(self._read)}]

    def _given_answer(self, item: Item, answer: Answer[Value], stored: dict[str, str]) -> GivenAnswer:
        messages = self._question.messages(item, answer.variant)
        return {
            "variant": answer.variant,
            "vote": answer.vote,
            "messages": [{"role": message.role, "content": cut(message.content)} for message in messages],
            "verdict": answer.verdict,
            "value": _plain(answer.value),
            "text": cut(stored.get(answer.key, "")),
        }


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else cut(str(value))
