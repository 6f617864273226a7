"""A question: how good is a step, from 0 to 10? Its prompt `rating/zero_to_ten` is zero_to_ten.jinja in this folder."""

import json
import re
from pathlib import Path

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
        found = re.fullmatch(r'{"score": ?(10|\d)}', text)
        return Reading("rating", float(found[1])) if found else None


QUESTION = RatingQuestion
