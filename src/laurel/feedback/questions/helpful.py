"""Does what happened in a step help towards the goal? The value is the probability that it does.

After ONI (Zheng et al. 2024, arXiv 2410.23022), whose language model labels each message as helpful or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from laurel.feedback.prompt import LONGEST, Form, quote
from laurel.feedback.yes_no import YesNoQuestion, schema, verdicts


class HelpfulQuestion(YesNoQuestion[str]):
    """Asks about a caption."""

    form: ClassVar[Form] = Form("helpful", slots=("caption",), choices=("yes", "no"), schema=schema("helpful"))
    VERDICTS = verdicts("helpful")
    sample = f'It says "é" & {{{{ x }}}}\n\x00\u2028{"x" * LONGEST}'

    def texts(self, item: str, variant: int) -> Mapping[str, str]:
        """Return the caption."""
        return {"caption": quote(item)}

    def content(self, item: str, variant: int) -> str:
        """Return the caption."""
        return item


QUESTION = HelpfulQuestion
