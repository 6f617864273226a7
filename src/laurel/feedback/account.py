"""The budget and the usage of a stage that asks models."""

from __future__ import annotations

from laurel.feedback.annotator import Usage, added
from laurel.llm.budget import Budget
from laurel.params.annotation import BudgetParams


class Account:
    """Shared by all that ask in a stage, so that together they stay within its budget.

    Args:
        params: the limits.
    """

    def __init__(self, params: BudgetParams) -> None:
        self.budget = Budget(params)
        self.usage: Usage = {}
        """Empty where no model was asked."""

    def add(self, usage: Usage) -> None:
        """Add the usage of asking."""
        self.usage = added(self.usage, usage)
