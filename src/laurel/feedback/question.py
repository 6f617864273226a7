"""A question plug-in: its items, how the prompt is rendered, and how an answer is read.

A kind is a module in `laurel.feedback.questions`, or an entry point of the group `laurel.questions`, with a subclass of
`Question` bound to QUESTION. It names the slots of its prompts, fills them for an item, and parses the answers.
`laurel.feedback.asker.Asker` asks any kind: store, budget, retries, votes.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from laurel.feedback.prompt import HARD_TEXT, Form, Prompt, load_prompt, quote
from laurel.llm.chat import Message
from laurel.plugins import Plugins

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter

Item = TypeVar("Item")
"""The subject of a question: a text, or several."""
Value = TypeVar("Value")
"""The value of an answer, e.g. a probability."""


class Reading(NamedTuple, Generic[Value]):
    """A parsed answer."""

    verdict: str
    """One of the kind's verdicts, a single word."""
    value: Value | None
    """The value of the answer; None if it has none, e.g. if it abstains."""


class Question(ABC, Generic[Item, Value]):
    """A kind of question, ready to be asked about items.

    Args:
        prompt: a prompt of this kind's form.
        adapter: the environment's; has the texts of the task.
        goal: as for `Prompt.messages`.
        scored: whether the probabilities of the prompt's choices are wanted, where it has choices.
    """

    form: ClassVar[Form]
    sample: Any = HARD_TEXT
    """An item that exercises all quoting and shortening of texts; the prompt rendered with it is part of every key."""
    per_token: bool = False
    """Whether the likelihood of a choice that is scored is the mean over its tokens."""
    variants: int = 1
    """Number of variants per item, e.g. 2 if either text may be shown first."""

    def __init__(self, prompt: Prompt, adapter: EnvAdapter, goal: str | None = None, *, scored: bool = True) -> None:
        self.prompt = prompt
        self.adapter = adapter
        self.goal = goal
        self.choices = prompt.choices if scored else ()

    def example(self, first: str, second: str) -> Any:
        """Return an example item from two captions, for displaying the prompt: only the first, if items are single
        texts.
        """
        return first

    def texts(self, item: Item, variant: int) -> Mapping[str, str]:
        """Return slot -> quoted text (`laurel.feedback.prompt.quote`) for the texts of an item, in order."""
        return {slot: quote(text) for slot, text in zip(self.form.slots, _texts(item), strict=True)}

    def content(self, item: Item, variant: int) -> str:
        """Return the content of this item and variant, which identifies it in the key of its answer."""
        *firsts, last = _texts(item)
        return "".join(f"{len(text)}:{text}" for text in firsts) + last

    @classmethod
    @abstractmethod
    def parse(cls, text: str, *, cut: bool = False) -> Reading[Value] | None:
        """Parse an answer; None where it is unreadable: an answer is never guessed."""

    @classmethod
    def verdict_of(cls, text: str, *, cut: bool = False) -> str | None:
        """Return the verdict of a stored answer whose question is not known; None where it is unreadable."""
        reading = cls.parse(text, cut=cut)
        return None if reading is None else reading.verdict

    @classmethod
    def verdict_of_stored(cls, text: str, asked: Sequence[str], *, cut: bool = False) -> str | None:
        """Return the verdict of a stored answer, as `verdict_of`.

        Args:
            asked: the user's messages, for kinds whose answers mean something only with what was asked.
        """
        return cls.verdict_of(text, cut=cut)

    def read(
        self, text: str, logprobs: Mapping[str, float] | None, variant: int = 0, *, cut: bool = False
    ) -> Reading[Value] | None:
        """Read an answer about the item; a kind with variants or scored choices overrides it.

        Args:
            text: the model's answer; where choices were scored instead, the most probable one.
            logprobs: choice -> log-probability, where choices were scored.
        """
        return self.parse(text, cut=cut)

    def messages(self, item: Item, variant: int = 0) -> tuple[Message, ...]:
        """Render the prompt; errors as in `Prompt.messages`."""
        return self.prompt.messages(self.texts(item, variant), self.adapter, self.goal)

    def shared(self) -> dict[str, Any]:
        """Return the part of the answers' keys that all items share, besides the model."""
        return {
            "question": self.form.kind,
            "prompt": self.prompt.digest,  # a template may branch on the content of a caption, which no sample shows
            "words": self.prompt.words(self.adapter, self.goal),
            "sample": [asdict(turn) for turn in (*self.messages(self.sample), *self.prompt.follow_up((), ""))],
            "choices": self.choices,
            "schema": None if self.prompt.schema is None else json.loads(self.prompt.schema),
        }

    @classmethod
    def load_prompt(cls, name: str | Path) -> Prompt:
        """Load a prompt of this kind by name, or from a file; errors as in `prompt.load_prompt`."""
        return load_prompt(name, cls.form)


def _texts(item: Any) -> tuple[str, ...]:
    return (item,) if isinstance(item, str) else tuple(item)


QUESTIONS: Plugins[type[Question[Any, Any]]] = Plugins(
    "question", group="laurel.questions", package="laurel.feedback.questions"
)
"""All kinds of questions."""


def kind_of(prompt: str) -> type[Question[Any, Any]]:
    """Return the kind of question of a prompt, by the name under which its answers are stored.

    Raises:
        ParamsError: there is no such kind.
    """
    kind, slash, _ = prompt.partition("/")
    return QUESTIONS.load(kind if slash else "pair", f"prompt {prompt}")
