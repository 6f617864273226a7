"""Is a goal sensible after the last step? The value is the probability that it is.

The closed form of Du et al. 2023, "Guiding Pretraining in Reinforcement Learning with Large Language Models" (ELLM,
arXiv 2302.06692): each possible goal is asked about separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from laurel.feedback.prompt import HARD_TEXT, Form
from laurel.feedback.questions.goals import NOTHING_YET
from laurel.feedback.yes_no import YesNoQuestion, schema, verdicts


class PossibleGoal(NamedTuple):
    """A goal that an agent might set itself."""

    context: str
    """The caption of the last step; empty at the beginning of an episode."""
    goal: str


class SensibleQuestion(YesNoQuestion[PossibleGoal]):
    """Asks about a possible goal."""

    form: ClassVar[Form] = Form(
        "sensible", slots=("context", "possible"), choices=("yes", "no"), schema=schema("sensible")
    )
    VERDICTS = verdicts("sensible")
    sample = PossibleGoal(HARD_TEXT, HARD_TEXT)

    def example(self, first: str, second: str) -> PossibleGoal:
        return PossibleGoal(context=second, goal=first)

    def texts(self, item: PossibleGoal, variant: int) -> Mapping[str, str]:
        """Return the caption of the last step, and the goal."""
        return super().texts(item._replace(context=item.context or NOTHING_YET), variant)


QUESTION = SensibleQuestion
