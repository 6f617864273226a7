"""A question: how good is a step, from 0 to 10? Its prompt `rating/zero_to_ten` is zero_to_ten.jinja in this folder."""

import json
from pathlib import Path

from laurel.feedback.parsing import last_value
from laurel.feedback.prompt import Form, quote
from laurel.feedback.question import Question, Reading

SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer"}},
    "required": ["score"],
    "additionalProperties": False,
}


class RatingQuestion(Question):
    """Asks about one caption; the parsed value is the rating."""

    form = Form("rating", slots=("caption",), choices=(), schema=json.dumps(SCHEMA), folder=Path(__file__).parent)
    sample = 'Say "x".'

    def texts(self, item, variant):
        return {"caption": quote(item)}

    def content(self, item, variant):
        return item

    @classmethod
    def parse(cls, text, *, cut=False):
        score = None if cut else last_value(text, "score")
        is_rating = score in range(11) and not isinstance(score, bool)
        return Reading("rating", float(score)) if is_rating else None


QUESTION = RatingQuestion
