"""Did an episode reach the goal? Asked about the text of an episode, after labelled examples if there are any."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import exp
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from laurel.feedback.annotator import Answer
from laurel.feedback.parsing import ABSTAIN, VerdictReader
from laurel.feedback.prompt import LONGEST, Form, Prompt, quote
from laurel.feedback.question import Question, Reading

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter

_SCHEMA = {
    "type": "object",
    "properties": {
        "analysis": {"type": "string"},
        "goal_reached": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    },
    "required": ["analysis", "goal_reached"],
    "additionalProperties": False,
}
_VERDICTS = VerdictReader(
    "goal_reached",
    words={"true": "yes", "false": "no", "null": "unclear", "none": "unclear"},
    options={"yes": "yes|true", "no": "no|false", "unclear": "unclear|unknown|null|none"},
    named="yes|no|true|false",
)
_MEANINGS = {
    "yes": Reading("yes", 1.0),
    "no": Reading("no", 0.0),
    "unclear": Reading("unclear", 0.5),
    ABSTAIN: Reading[float](ABSTAIN, None),
}


class Example(NamedTuple):
    """An episode whose outcome is known."""

    episode: str
    reached: bool
    why: str = ""
    """In a sentence; shown with the outcome."""


class OutcomeQuestion(Question[str, float]):
    """Asks whether an episode, told as a text, reached the goal; a reading's value is the probability that it did.

    Args:
        goal: what counts as success; None: the environment's own goal.
        scored: whether the probabilities of the answers yes and no are wanted, where the prompt is a choice.
        examples: shown in the prompt, in this order.
    """

    form: ClassVar[Form] = Form(
        "outcome", slots=("episode",), optional=("examples",), choices=("yes", "no"), schema=json.dumps(_SCHEMA)
    )
    sample = f'It says "é" & {{{{ x }}}}\n\x00\u2028{"x" * LONGEST}'

    def __init__(
        self,
        prompt: Prompt,
        adapter: EnvAdapter,
        goal: str | None = None,
        *,
        scored: bool = True,
        examples: Sequence[Example] = (),
    ) -> None:
        super().__init__(prompt, adapter, goal, scored=scored)
        self.examples = tuple(examples)
        self._shown = "\n".join(
            f"{quote(episode)}\nGoal reached: {'yes' if reached else 'no'}{f'. {why}' if why else ''}"
            for episode, reached, why in self.examples
        )

    def texts(self, item: str, variant: int) -> Mapping[str, str]:
        return {"episode": quote(item), "examples": self._shown}

    def content(self, item: str, variant: int) -> str:
        return item

    def shared(self) -> dict[str, Any]:
        """Return what all answers depend on, the examples among it."""
        shown = tuple(tuple(example) if example.why else tuple(example)[:2] for example in self.examples)
        return {**super().shared(), "examples": shown}

    @classmethod
    def parse(cls, text: str, *, cut: bool = False) -> Reading[float] | None:
        """Return yes, no, unclear or abstain, and the probability of success that stands for."""
        verdict = _VERDICTS.read(text, cut=cut)
        return None if verdict is None else _MEANINGS[verdict]

    def read(
        self, text: str, logprobs: Mapping[str, float] | None, variant: int = 0, *, cut: bool = False
    ) -> Reading[float] | None:
        """Return the verdict, and the probability of success, which log-probabilities of the choices say."""
        if logprobs is not None and self.choices and self.choices[0] in logprobs:
            p = exp(logprobs[self.choices[0]])
            return Reading("yes" if p > 0.5 else "no" if p < 0.5 else "unclear", p)
        return self.parse(text, cut=cut)


QUESTION = OutcomeQuestion


def probability(answers: Sequence[Answer[float]]) -> float | None:
    """Return the mean probability of success over the votes about an episode; None unless most of them have one."""
    values = [answer.value for answer in answers if answer.value is not None]
    return sum(values) / len(values) if 2 * len(values) > len(answers) else None
