"""A sample of a chat model's questions and answers for MLflow, of any kind of question.

A sample is plain JSON, since other processes than the logging one ask questions: the online judge, or agents in
training. `laurel.feedback.asked` records it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NotRequired, TypedDict

MOST = 20
"""Items of a sample."""
ASKED = "asked_sample"
"""Key of samples in an actor's account (`laurel.feedback.chooser.Chooser.account`)."""
LONGEST = 4000
"""Maximum number of characters kept of a message or answer."""


class AskedPrompt(TypedDict):
    """A prompt's file, in the form of a prompt registry."""

    kind: str
    """The kind of question."""
    name: str
    digest: str
    """SHA-256 of the text."""
    answer: str
    """The form of answers."""
    description: str
    text: str


class GivenAnswer(TypedDict):
    """An answer, and the messages that were shown for it."""

    variant: int
    vote: int
    messages: list[dict[str, str]]
    verdict: str
    value: Any
    """A number, a text, or a list of them."""
    text: str
    """The model's text; empty if there was no answer, or if choices were scored."""
    annotator: NotRequired[str]
    """The annotator that answered, if several were asked."""


class Asked(TypedDict):
    """A sample of the questions in one prompt to one model."""

    name: str
    """Name of the model with its prompt, as in `laurel.feedback.asker.Asker.name`."""
    prompt: AskedPrompt
    items: list[list[GivenAnswer]]
    """The answers about each item, one per answered variant and vote."""


def joined(samples: Iterable[Asked]) -> list[Asked]:
    """Merge samples: one per model and prompt, with the first distinct items of all its samples."""
    by_name: dict[str, Asked] = {}
    for sample in samples:
        items = by_name.setdefault(sample["name"], {**sample, "items": []})["items"]
        for item in sample["items"]:
            if len(items) == MOST:  # hundreds of agents may have asked
                break
            if item not in items:
                items.append(item)
    return list(by_name.values())


def cut(text: str) -> str:
    """Return the beginning of a long text."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text) - LONGEST:,} more characters)"
