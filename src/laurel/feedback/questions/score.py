"""How good are these texts, from 0 to 10? Asked about a group at once, so that scores are relative to each other.

After RULER (OpenPipe's ART, "Relative Universal LLM-Elicited Rewards"), where a judge scores a group of trajectories
side by side. A group of one is scored alone. The value is the scores, in the group's order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from laurel.feedback.parsing import last_value
from laurel.feedback.prompt import HARD_TEXT, TEXT, Form, Prompt, answer_schema, quote
from laurel.feedback.question import Question, Reading

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter

HIGHEST = 10
_SCHEMA = answer_schema(analysis=TEXT, scores={"type": "array", "items": {"type": "number"}})
Scores = tuple[float, ...]


class ScoreQuestion(Question[tuple[str, ...], Scores]):
    """Asks about a group of texts; variant 1 shows them in the opposite order.

    Args:
        size: texts of a group.
        both_orders: whether groups are also shown in the opposite order.
    """

    form: ClassVar[Form] = Form("score", slots=("texts",), choices=(), schema=_SCHEMA)
    sample = (HARD_TEXT,)

    def __init__(
        self, prompt: Prompt, adapter: EnvAdapter, goal: str | None = None, *, size: int = 1, both_orders: bool = True
    ) -> None:
        super().__init__(prompt, adapter, goal)
        self.size = size
        self.variants = 2 if both_orders and size > 1 else 1

    def example(self, first: str, second: str) -> tuple[str, ...]:
        return first, second

    def texts(self, item: tuple[str, ...], variant: int) -> Mapping[str, str]:
        """Return the texts, numbered in the order shown."""
        shown = item[::-1] if variant else item
        return {"texts": "\n".join(f"{number}: {quote(text)}" for number, text in enumerate(shown, 1))}

    def content(self, item: tuple[str, ...], variant: int) -> str:
        return json.dumps(item[::-1] if variant else item)

    @classmethod
    def parse(cls, text: str, *, cut: bool = False) -> Reading[Scores] | None:
        """Return the scores at the end of an answer, in the order shown; None if one is not from 0 to HIGHEST."""
        listed = None if cut else last_value(text, "scores")
        if not isinstance(listed, list) or not listed or not all(map(_is_score, listed)):
            return None
        return Reading("scores", tuple(map(float, listed)))

    def read(
        self, text: str, logprobs: Mapping[str, float] | None, variant: int = 0, *, cut: bool = False
    ) -> Reading[Scores] | None:
        """Return the scores in the group's order; None if their number differs from that of the texts."""
        reading = self.parse(text, cut=cut)
        if reading is None or reading.value is None or len(reading.value) != self.size:
            return None
        return Reading(reading.verdict, reading.value[::-1]) if variant else reading


QUESTION = ScoreQuestion


def _is_score(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value <= HIGHEST  # NaN is not
