"""Which of two texts describes the better step? Asked with either text first, to cancel a model's position bias."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from laurel.feedback import prompt as prompts
from laurel.feedback.annotator import Pair
from laurel.feedback.parsing import ABSTAIN, VerdictReader
from laurel.feedback.prompt import LONGEST, TEXT, Form, Prompt, answer_schema, as_text, quote
from laurel.feedback.question import Question, Reading

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter

_VERDICT = {"anyOf": [{"type": "integer", "enum": [1, 2]}, {"type": "null"}]}
"""OpenAI refuses an `enum` without a `type`, and other servers a `type` that is a list beside an `enum`."""
FORM = Form(
    "pair",
    slots=("first", "second"),
    choices=("1", "2"),
    schema=answer_schema(analysis=TEXT, best_description=_VERDICT),
)

_SCHEMA_IN_KEYS = (
    '{"type": "object", "properties": {"analysis": {"type": "string"}, "best_description": {"enum": [1, 2, null]}}, '
    '"required": ["analysis", "best_description"], "additionalProperties": false}'
)
"""The schema's first wording, used in keys, so that rewording it does not invalidate paid answers."""
_SAMPLE = Pair('Say "é" & {{ x }}\n\x00\u2028', "x" * (LONGEST + 1))
_REMEMBERED = 1024
"""Number of answers whose parse is cached, since models repeat themselves."""
_NOUNS = r"(?:text|caption|description|option|report|message|answer)"
VERDICTS = VerdictReader(
    "best_description",
    words={"1": "first", "2": "second", "null": "tie", "none": "tie"},
    options={
        "first": rf"(?:{_NOUNS}[ _]?(?:number )?#?)?1|(?:the )?first(?: one| {_NOUNS})?",
        "second": rf"(?:{_NOUNS}[ _]?(?:number )?#?)?2|(?:the )?second(?: one| {_NOUNS})?",
        "tie": r"null|none|neither(?: (?:text|caption|description))?(?: is better)?|both|(?:it is )?(?:a )?tie",
    },
    named="[12]|first|second",
    nouns=_NOUNS,
)
"""Parses which of the texts, in the order shown, is better: first, second, tie or abstain."""
_AS_SHOWN = {
    "first": Reading("first", 1.0),
    "second": Reading("second", 0.0),
    "tie": Reading("tie", 0.5),
    ABSTAIN: Reading[float](ABSTAIN, None),
}
_SWAPPED = {**_AS_SHOWN, "first": _AS_SHOWN["second"], "second": _AS_SHOWN["first"]}


class PairQuestion(Question[Pair, float]):
    """Asks which text of a pair is better; the value is the probability that the first one is.

    Variant 0 shows the first text first, variant 1 the second.

    Args:
        scored: whether to use the probabilities of the answers 1 and 2, if the prompt is a choice.
    """

    form: ClassVar[Form] = FORM
    sample = _SAMPLE

    def __init__(
        self,
        prompt: Prompt,
        adapter: EnvAdapter,
        goal: str | None = None,
        *,
        scored: bool = True,
        both_orders: bool = True,
    ) -> None:
        super().__init__(prompt, adapter, goal, scored=scored)
        self.variants = 2 if both_orders else 1
        self._parse = lru_cache(_REMEMBERED)(self.parse)

    def example(self, first: str, second: str) -> Pair:
        return Pair(first, second)

    def texts(self, item: Pair, variant: int) -> Mapping[str, str]:
        """Return the two texts in the order shown."""
        first, second = item[::-1] if variant else item
        return {"first": quote(first), "second": quote(second)}

    def content(self, item: Pair, variant: int) -> str:
        first, second = item[::-1] if variant else item
        content = f"{len(first)}:{first}{second}"
        if ("<" in content or "[" in content) and as_text(first + second) != first + second:
            # old versions showed such texts unescaped, and a model may have misread their marks as the end of a turn
            return f"{content}:as text"
        return content

    def read(
        self, text: str, logprobs: Mapping[str, float] | None, variant: int = 0, *, cut: bool = False
    ) -> Reading[float] | None:
        """Return the verdict on the texts in their own order, regardless of the order shown, and p(first)."""
        if logprobs is not None and self.choices and self.choices[0] in logprobs:
            p_shown_first = exp(logprobs[self.choices[0]])
            p = 1 - p_shown_first if variant else p_shown_first
            return Reading("first" if p > 0.5 else "second" if p < 0.5 else "tie", p)
        shown = self._parse(text, cut=cut)
        return _SWAPPED[shown.verdict] if shown and variant else shown

    @classmethod
    def parse(cls, text: str, *, cut: bool = False) -> Reading[float] | None:
        """Return the verdict on the texts in the order shown, and p(the first one shown is better)."""
        verdict = VERDICTS.read(text, cut=cut)
        return None if verdict is None else _AS_SHOWN[verdict]

    def shared(self) -> dict[str, Any]:
        """Return the shared part of the keys, unchanged since before there were other kinds, so that paid answers stay
        valid.
        """
        shared = super().shared()
        del shared["question"]
        return {**shared, "schema": None if self.prompt.schema is None else _SCHEMA_IN_KEYS}


QUESTION = PairQuestion


def load_prompt(name: str | Path) -> Prompt:
    """Load a prompt for pairs; arguments and errors as in `laurel.feedback.prompt.load_prompt`."""
    return prompts.load_prompt(name, FORM)
