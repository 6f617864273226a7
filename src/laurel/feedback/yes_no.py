"""Questions whose answer is yes or no, also as log-probabilities of the two words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from typing import ClassVar

from laurel.feedback.annotator import Answer
from laurel.feedback.parsing import ABSTAIN, VerdictReader
from laurel.feedback.prompt import TEXT, answer_schema
from laurel.feedback.question import Item, Question, Reading

_MEANINGS = {
    "yes": Reading("yes", 1.0),
    "no": Reading("no", 0.0),
    "unclear": Reading("unclear", 0.5),
    ABSTAIN: Reading[float](ABSTAIN, None),
}


class YesNoQuestion(Question[Item, float]):
    """A question whose value is the probability of yes.

    A subclass binds VERDICTS and has the choices ("yes", "no").
    """

    VERDICTS: ClassVar[VerdictReader]
    """Reads yes, no or unclear, as `verdicts` makes it."""

    @classmethod
    def parse(cls, text: str, *, cut: bool = False) -> Reading[float] | None:
        """Return yes, no, unclear or abstain, and the corresponding probability of yes."""
        verdict = cls.VERDICTS.read(text, cut=cut)
        return None if verdict is None else _MEANINGS[verdict]

    def read(
        self, text: str, logprobs: Mapping[str, float] | None, variant: int = 0, *, cut: bool = False
    ) -> Reading[float] | None:
        """Return the verdict and the probability of yes, from the choices' log-probabilities if there are any."""
        if logprobs is not None and self.choices and self.choices[0] in logprobs:
            p = exp(logprobs[self.choices[0]])
            return Reading("yes" if p > 0.5 else "no" if p < 0.5 else "unclear", p)
        return self.parse(text, cut=cut)


def verdicts(key: str) -> VerdictReader:
    """Return a parser of verdicts, in words or as the value of a key of a JSON object."""
    return VerdictReader(
        key,
        words={"true": "yes", "false": "no", "null": "unclear", "none": "unclear"},
        options={"yes": "yes|true", "no": "no|false", "unclear": "unclear|unknown|null|none"},
        named="yes|no|true|false",
    )


def schema(key: str) -> str:
    """Return the JSON schema of an answer: an analysis, and true, false or null as the value of a key."""
    return answer_schema(analysis=TEXT, **{key: {"anyOf": [{"type": "boolean"}, {"type": "null"}]}})


def probability(answers: Sequence[Answer[float]]) -> float | None:
    """Return the mean probability of yes over the votes about an item; None unless most of them have one."""
    values = [answer.value for answer in answers if answer.value is not None]
    return sum(values) / len(values) if 2 * len(values) > len(answers) else None
