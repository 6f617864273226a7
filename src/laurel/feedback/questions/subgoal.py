"""Which of the listed subgoals should an agent reach next? Asked and read as `action` is."""

from __future__ import annotations

from typing import ClassVar

from laurel.feedback.prompt import Form
from laurel.feedback.questions.action import ActionQuestion


class SubgoalQuestion(ActionQuestion):
    """Asks about an agent's reports and view, as text."""

    form: ClassVar[Form] = Form("subgoal", slots=("state",), optional=("options",), choices=(), schema="{}")


QUESTION = SubgoalQuestion
