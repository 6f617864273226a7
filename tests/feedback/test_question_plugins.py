"""A question of another package: one module with its prompts beside it, asked by the same Asker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError, PromptError
from laurel.feedback.asker import Asker
from laurel.feedback.prompt import Form
from laurel.feedback.question import QUESTIONS, Question, Reading, kind_of
from laurel.llm.chat import ChatRequest, Reply, Sampling
from laurel.llm.responses import ResponseStore
from played_model import PlayedModel

LETTER = """---
description: A letter.
answer: choice
---
{% block user %}{{ goal }} {{ a }} {{ b }} {{ c }}{% endblock %}
{% block follow_up %}A letter only.{% endblock %}
"""

pytestmark = pytest.mark.usefixtures("examples")


class ScoringModel(PlayedModel):
    """Scores the length of a caption, in words at first."""

    def _reply(self, number: int, request: ChatRequest) -> tuple[int, Any]:
        caption = request.messages[0].content.rsplit('"', 2)[1]
        return number, Reply("Ten!" if len(request.messages) == 1 else f'{{"score": {len(caption)}}}')


def test_it_is_found_asked_read_followed_up_and_kept(tmp_path: Path, door_key: EnvAdapter) -> None:
    kind = QUESTIONS.load("rating", "question")
    question = kind(kind.load_prompt("zero_to_ten"), door_key)
    store = ResponseStore(tmp_path / "responses.db")
    for calls in (4, 0):
        model = ScoringModel(lambda *_: Reply(""))
        answers = list(Asker(model, Sampling(), question, store).ask(["abc", "abcdefg"]))
        assert [(answer.verdict, answer.value) for about in answers for answer in about] == [
            ("rating", 3.0),
            ("rating", 7.0),
        ]
        assert len(model.requests) == calls
    assert {row["prompt"] for row in store.rows()} == {"rating/zero_to_ten"}
    assert kind_of("rating/zero_to_ten") is kind


def test_the_example_says_the_form_of_its_answers_and_reads_json_however_it_is_laid_out(door_key: EnvAdapter) -> None:
    """A server may write the spaces of JSON as it likes, and a local model knows no schema."""
    kind = QUESTIONS.load("rating", "question")
    question = kind(kind.load_prompt("zero_to_ten"), door_key)
    for turns in (question.messages("abc"), question.prompt.follow_up((), "")):
        assert '{"score": <' in turns[-1].content
    texts = (
        '{"score":7}',
        '{ "score": 7 }',
        '{\n  "score": 7\n}\n',
        '```json\n{"score": 7}\n```',
        "7",
        '{"score": 11}',
    )
    read = [kind.parse(text) for text in (*texts, '{"score": true}', '{"score": [7]}')]
    assert [answer and answer.value for answer in read] == [7.0] * 4 + [None] * 4
    assert kind.parse('{"score": 7}', cut=True) is None


class BestOfThree(Question[tuple[str, str, str], str]):
    """Which of three texts is best? It parses the choice, and leaves their probabilities to others."""

    form = Form("best", slots=("a", "b", "c"), choices=("A", "B", "C"), schema="{}")
    sample = ("x", "y", "z")

    @classmethod
    def parse(cls, text: str, *, cut: bool = False) -> Reading[str] | None:
        return Reading("named", text) if text in ("A", "B", "C") else None


class FixedModel(PlayedModel):
    """Gives the same answer to everything."""

    def _reply(self, number: int, request: ChatRequest) -> tuple[int, Any]:
        return number, self._answer("", "", request)


@pytest.mark.parametrize(("text", "expected"), [("", "B"), ("C", "C"), ("Well!", None)])
def test_a_question_that_only_parses_gets_the_most_probable_choice(
    text: str, expected: str | None, tmp_path: Path, door_key: EnvAdapter
) -> None:
    file = tmp_path / "letter.jinja"
    file.write_text(LETTER)
    model = FixedModel(lambda *_: Reply(text, {"A": -2.0, "B": -0.3, "C": -2.5}))
    question = BestOfThree(BestOfThree.load_prompt(file), door_key)
    for _ in range(2):  # the second time from the store
        asker = Asker(model, Sampling(), question, ResponseStore(tmp_path / "responses.db"))
        assert [answer.value for (answer,) in asker.ask([("x", "y", "z")])] == [expected]


def test_a_question_without_prompts_says_where_they_were_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = QUESTIONS.load("rating", "question")
    monkeypatch.setattr(kind, "form", replace(kind.form, folder=tmp_path))
    with pytest.raises(
        PromptError, match=rf'prompt: "plain" is unknown\. Prompts: none in {tmp_path}; or your own file'
    ):
        kind.load_prompt("plain")


def test_answers_to_a_question_that_is_gone_say_so() -> None:
    with pytest.raises(
        ParamsError, match=r'prompt ratings/zero: there is no question "ratings"\. Did you mean "rating"'
    ):
        kind_of("ratings/zero")
