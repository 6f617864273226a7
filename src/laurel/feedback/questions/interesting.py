"""Is a task interesting to an agent that has mastered another one? The value is the probability that it is.

After Zhang et al. 2024, "OMNI: Open-endedness via Models of human Notions of Interestingness" (arXiv 2306.01711), whose
model of interest also judges pairs of tasks.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from laurel.feedback.prompt import HARD_TEXT, Form
from laurel.feedback.yes_no import YesNoQuestion, schema, verdicts


class TaskPair(NamedTuple):
    """Two tasks in words."""

    done: str
    """The mastered task."""
    other: str
    """The candidate task."""


class InterestingQuestion(YesNoQuestion[TaskPair]):
    """Asks about a task, given one that is mastered."""

    form: ClassVar[Form] = Form(
        "interesting", slots=("done", "other"), choices=("yes", "no"), schema=schema("interesting")
    )
    VERDICTS = verdicts("interesting")
    sample = TaskPair(HARD_TEXT, HARD_TEXT)

    def example(self, first: str, second: str) -> TaskPair:
        return TaskPair(done=second, other=first)


QUESTION = InterestingQuestion
