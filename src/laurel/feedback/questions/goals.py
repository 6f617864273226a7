"""Which goals are sensible after the last step? The value is the goals, in the model's order.

The open form of Du et al. 2023, "Guiding Pretraining in Reinforcement Learning with Large Language Models" (ELLM, arXiv
2302.06692).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from laurel.feedback.parsing import object_in
from laurel.feedback.prompt import TEXT, Form, answer_schema
from laurel.feedback.question import Question, Reading

MOST_GOALS = 20
LONGEST_GOAL = 300
_SCHEMA = answer_schema(goals={"type": "array", "items": TEXT})
NOTHING_YET = "Nothing yet: the episode begins."
"""The context that is shown at the beginning of an episode."""


class GoalsQuestion(Question[str, tuple[str, ...]]):
    """Asks about the last caption of an episode; an empty one is its beginning."""

    form: ClassVar[Form] = Form("goals", slots=("context",), choices=(), schema=_SCHEMA)

    def texts(self, item: str, variant: int) -> Mapping[str, str]:
        """Return the caption of the last step."""
        return super().texts(item or NOTHING_YET, variant)

    @classmethod
    def parse(cls, text: str, *, cut: bool = False) -> Reading[tuple[str, ...]] | None:
        """Return the goals of an answer's JSON object, each once; None if it has no list of sentences."""
        listed = None if cut else object_in(text).get("goals")
        if not isinstance(listed, list) or not all(isinstance(goal, str) for goal in listed):
            return None
        goals = [goal.strip() for goal in listed if 0 < len(goal.strip()) <= LONGEST_GOAL]
        return Reading("goals", tuple(dict.fromkeys(goals))[:MOST_GOALS])


QUESTION = GoalsQuestion
