"""A question of another package: one module with its prompts beside it, asked by the same Asker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from test_language_model import PlayedModel

from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.feedback.asker import Asker
from laurel.feedback.question import QUESTIONS, kind_of
from laurel.llm.chat import ChatRequest, Reply, Sampling
from laurel.llm.responses import ResponseStore

SCORE = """
import json
import re
from pathlib import Path

from laurel.feedback.prompt import Form, quote
from laurel.feedback.question import Question, Reading


class ScoreQuestion(Question):
    form = Form(
        "score", slots=("caption",), choices=(), schema=json.dumps({"type": "object"}), folder=Path(__file__).parent
    )
    sample = 'Say "x".'

    def texts(self, item, variant):
        return {"caption": quote(item)}

    def content(self, item, variant):
        return item

    @classmethod
    def parse(cls, text, *, cut=False):
        found = re.fullmatch(r'{"score": (10|\\d)}', text)
        return Reading("score", float(found[1])) if found else None


QUESTION = ScoreQuestion
"""
PROMPT = """---
answer: json
---
{% block user %}
The goal: {{ goal }}
How good is this step, from 0 to 10? {{ caption }}
{% endblock %}
{% block follow_up %}
A number from 0 to 10, please.
{% endblock %}
"""


class ScoringModel(PlayedModel):
    """Scores the length of a caption, in words at first."""

    def _reply(self, number: int, request: ChatRequest) -> tuple[int, Any]:
        caption = request.messages[0].content.rsplit('"', 2)[1]
        return number, Reply("Ten!" if len(request.messages) == 1 else f'{{"score": {len(caption)}}}')


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scores.py").write_text(SCORE)
    (tmp_path / "zero_to_ten.jinja").write_text(PROMPT)
    info = tmp_path / "scores-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scores\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{QUESTIONS.group}]\nscore = scores\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


def test_it_is_found_asked_read_followed_up_and_kept(tmp_path: Path, door_key: EnvAdapter) -> None:
    kind = QUESTIONS.load("score", "question")
    question = kind(kind.load_prompt("zero_to_ten"), door_key)
    store = ResponseStore(tmp_path / "responses.db")
    for calls in (4, 0):
        model = ScoringModel(lambda *_: Reply(""))
        answers = list(Asker(model, Sampling(), question, store).ask(["abc", "abcdefg"]))
        assert [(one.verdict, one.value) for about in answers for one in about] == [("score", 3.0), ("score", 7.0)]
        assert len(model.requests) == calls
    assert {row["prompt"] for row in store.rows()} == {"score/zero_to_ten"}
    assert kind_of("score/zero_to_ten") is kind


def test_answers_to_a_question_that_is_gone_say_so() -> None:
    with pytest.raises(ParamsError, match=r'prompt scores/zero: there is no question "scores"\. Did you mean "score"'):
        kind_of("scores/zero")
