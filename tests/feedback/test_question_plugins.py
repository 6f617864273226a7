"""A question of another package: one module with its prompts beside it, asked by the same Asker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError, PromptError
from laurel.feedback.asker import Asker
from laurel.feedback.question import QUESTIONS, kind_of
from laurel.llm.chat import ChatRequest, Reply, Sampling
from laurel.llm.responses import ResponseStore
from played_model import PlayedModel

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
        assert [(one.verdict, one.value) for about in answers for one in about] == [("rating", 3.0), ("rating", 7.0)]
        assert len(model.requests) == calls
    assert {row["prompt"] for row in store.rows()} == {"rating/zero_to_ten"}
    assert kind_of("rating/zero_to_ten") is kind


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
