"""Did a step help towards the goal? The value is the probability that it did.

After ONI (Zheng et al. 2024, arXiv 2410.23022), whose language model labels each message as helpful or not.
"""

from __future__ import annotations

from typing import ClassVar

from laurel.feedback.prompt import Form
from laurel.feedback.yes_no import YesNoQuestion, schema, verdicts


class HelpfulQuestion(YesNoQuestion[str]):
    """Asks about a caption."""

    form: ClassVar[Form] = Form("helpful", slots=("caption",), choices=("yes", "no"), schema=schema("helpful"))
    VERDICTS = verdicts("helpful")


QUESTION = HelpfulQuestion
