"""Which of the named actions is best in a state? The value is a probability per action."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from laurel.feedback.parsing import ABSTAIN, VerdictReader
from laurel.feedback.prompt import TEXT, Form, Prompt, answer_schema, as_text, load_prompt, quote
from laurel.feedback.question import Question, Reading

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter

Choice = tuple[float, ...]
"""A probability per option; 1 for the option that a written answer names."""
CHOSEN = "chosen"

_NOTHING = "(?!)"
_ANY, _NONE = (VerdictReader("choice", {}, {"option": option}, named=_NOTHING) for option in (".+", _NOTHING))
"""Readers that accept any option, and only refusals to choose."""


_LISTED = re.compile(r"(?m)^- (.+)$")
"""An option in a prompt."""


def _reader_of(options: Sequence[str]) -> VerdictReader:
    """Return the reader of answers that name one of the options; its verdicts are option_0, option_1 and so on."""
    plain = {option: re.escape(" ".join(option.casefold().split()).rstrip(".")) for option in options}
    names = {f"option_{number}": plain[option] for number, option in enumerate(options)}
    return VerdictReader("choice", {}, names, named="|".join(plain.values()))


class ActionQuestion(Question[str, Choice]):
    """Asks about a state description.

    Args:
        options: distinct texts to choose from: actions, or subgoals.
        goal: the goal in the prompt; None: the environment's own goal.
        scored: whether to use the probability of each option's text, if the prompt is a choice.
        per_token: whether an option's log-likelihood is the mean over its tokens instead of the sum, which is lower for
            longer texts.
    """

    form: ClassVar[Form] = Form("action", slots=("state",), optional=("options",), choices=(), schema="{}")

    def __init__(
        self,
        prompt: Prompt,
        adapter: EnvAdapter,
        options: Sequence[str],
        goal: str | None = None,
        *,
        scored: bool = True,
        per_token: bool = False,
    ) -> None:
        super().__init__(prompt, adapter, goal, scored=scored)
        self.options = tuple(options)
        self.per_token = per_token
        self._listed = "\n".join(f"- {as_text(option)}" for option in self.options)
        self._reader = _reader_of(self.options)

    @classmethod
    def load_for(cls, name: str | Path, options: Sequence[str]) -> Prompt:
        """Load a prompt of this kind for some options; errors as in `load_prompt`."""
        schema = answer_schema(analysis=TEXT, choice={"type": "string", "enum": list(options)})
        form = Form(cls.form.kind, cls.form.slots, tuple(options), schema, cls.form.optional)
        return load_prompt(name, form)

    def texts(self, item: str, variant: int) -> Mapping[str, str]:
        return {"state": quote(item), "options": self._listed}

    def shared(self) -> dict[str, Any]:
        """Return the shared part of the answers' keys, options included, and how they are scored."""
        scored = {"scored": "whole"} if self.choices else {}  # earlier, only their first tokens, if these differed
        return {**super().shared(), "options": self.options, "per_token": self.per_token, **scored}

    @classmethod
    def parse(cls, text: str, *, cut: bool = False) -> Reading[Choice] | None:
        """Return None: the meaning of an answer depends on the options (`read`)."""
        return None

    @classmethod
    def verdict_of(cls, text: str, *, cut: bool = False) -> str | None:
        """Return CHOSEN for any short text: the options are not stored with an answer."""
        if _NONE.read(text, cut=cut) == ABSTAIN:
            return ABSTAIN
        return CHOSEN if _ANY.read(text, cut=cut) else None

    @classmethod
    def verdict_of_stored(cls, text: str, asked: Sequence[str], *, cut: bool = False) -> str | None:
        """Return the verdict among the options that the messages list; of a prompt that lists none, `verdict_of`."""
        listed = dict.fromkeys(option for message in asked for option in _LISTED.findall(message))
        if not listed:
            return cls.verdict_of(text, cut=cut)
        verdict = _reader_of(tuple(listed)).read(text, cut=cut)
        return verdict if verdict in (None, ABSTAIN) else CHOSEN

    def read(
        self, text: str, logprobs: Mapping[str, float] | None, variant: int = 0, *, cut: bool = False
    ) -> Reading[Choice] | None:
        """Return the probabilities of the options from their log-probabilities, or 1 for the one that is named."""
        if logprobs is not None and self.choices and set(logprobs) == set(self.choices):
            return Reading(CHOSEN, tuple(exp(logprobs[option]) for option in self.options))
        verdict = self._reader.read(text, cut=cut)
        if verdict is None or verdict == ABSTAIN:
            return None if verdict is None else Reading(ABSTAIN, None)
        named = int(verdict.removeprefix("option_"))
        return Reading(CHOSEN, tuple(float(number == named) for number in range(len(self.options))))


QUESTION = ActionQuestion
