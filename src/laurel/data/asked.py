"""What a chat model was asked and answered: a sample for MLflow, of questions of any kind.

A sample is plain JSON, since much is asked in other processes than the one that logs: by the online judge, or by agents
in training. `laurel.feedback.asked` takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NotRequired, TypedDict

MOST = 20
"""Items of a sample."""
ASKED = "asked_sample"
"""Key of samples in what an actor's account holds (`laurel.feedback.chooser.Chooser.account`)."""
LONGEST = 4000
"""Characters of a message, or of an answer, that are kept."""


class AskedPrompt(TypedDict):
    """A prompt's file, as a registry of prompts takes it."""

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
    """An answer, and what was shown for it."""

    variant: int
    vote: int
    messages: list[dict[str, str]]
    verdict: str
    value: Any
    """A number, a text, or a list of them."""
    text: str
    """What the model wrote; empty where nothing came, or where choices were scored."""
    annotator: NotRequired[str]
    """Who answered, where several were asked."""


class Asked(TypedDict):
    """A sample of the questions in one prompt to one model."""

    name: str
    """Of the model with its prompt, as in `laurel.feedback.asker.Asker.name`."""
    prompt: AskedPrompt
    items: list[list[GivenAnswer]]
    """The answers about each item, one for each variant and vote that was answered."""


def joined(samples: Iterable[Asked]) -> list[Asked]:
    """Return one sample for each model and prompt, of the first items of all its samples, each once."""
    found: dict[str, Asked] = {}
    for sample in samples:
        items = found.setdefault(sample["name"], {**sample, "items": []})["items"]
        for item in sample["items"]:
            if len(items) == MOST:  # hundreds of agents may have asked
                break
            if item not in items:
                items.append(item)
    return list(found.values())


def cut(text: str) -> str:
    """Return the beginning of a long text."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text) - LONGEST:,} more characters)"
