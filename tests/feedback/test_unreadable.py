"""Models without readable answers: asking stops early, and says how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from laurel.envs.base import EnvAdapter
from laurel.feedback.unreadable import UnreadableError
from laurel.llm.chat import ChatRequest, Reply
from laurel.llm.responses import ResponseStore
from played_model import PlayedModel, annotator, longer, questions


@pytest.fixture
def store(tmp_path: Path) -> ResponseStore:
    return ResponseStore(tmp_path / "responses.db")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (
            Reply('{"analysis": "The', None, 9, 512, "length"),
            ("cut off", " times", "raise max_tokens (512 now), or try another model or prompt"),
        ),
        (Reply("", None, 9, 512, "reasoning_length"), ("still reasoning", "a lower annotate.openai.reasoning_effort")),
        (
            Reply("Hm, 日本.", None, 9, 5),
            ("no answer in the requested form", "Hm, \\u65e5", "another model or prompt"),
        ),
    ],
)
def test_asking_stops_early_if_no_answer_can_be_read(
    door_key: EnvAdapter, store: ResponseStore, reply: Reply, words: tuple[str, ...]
) -> None:
    model = PlayedModel(lambda *_: reply)
    for _ in range(2):
        before = len(model.requests)
        with pytest.raises(UnreadableError) as caught:
            list(annotator(model, door_key, store).annotate(questions(1000)))
        assert all(word in str(caught.value) for word in words), caught.value
        assert len(model.requests) - before < 100
        assert len(store) == len(model.requests), "what was on its way is waited for, and kept"
    assert len(model.requests) - before <= 20, "what is kept says so at once"


def test_a_question_that_is_asked_about_twice_counts_once(door_key: EnvAdapter, store: ResponseStore) -> None:
    judge = annotator(PlayedModel(lambda *_: Reply("Hm.")), door_key, store)
    list(judge.annotate(questions(5)))
    with pytest.raises(UnreadableError, match=r"none of the first 24 questions .* requested form, 24 times") as caught:
        list(judge.annotate(questions(12)))  # which is all of them
    assert "so no more are asked. Reasons" in str(caught.value)


def test_more_tokens_are_not_advised_where_the_length_is_that_of_a_choice(
    door_key: EnvAdapter, store: ResponseStore
) -> None:
    model = PlayedModel(lambda *_: Reply("", None, 9, 4, "reasoning_length"))
    with pytest.raises(UnreadableError) as caught:
        list(annotator(model, door_key, store, "answer_only").annotate(questions(100)))
    assert "raise max_tokens" not in str(caught.value)
    assert "set annotate.openai.reasoning_effort if the model reasons first (without it a choice has at most 4" in str(
        caught.value
    )


def test_one_readable_answer_is_reason_enough_to_go_on(door_key: EnvAdapter, store: ResponseStore) -> None:
    seen = []

    def once(first: str, second: str, request: ChatRequest) -> Reply:
        seen.append(first)
        return longer(first, second, request) if len(seen) == 40 else Reply("Hm.")

    judged = list(annotator(PlayedModel(once), door_key, store).annotate(questions(200)))
    assert len(judged) == 200


def test_answers_that_need_a_follow_up_are_not_given_up(door_key: EnvAdapter, store: ResponseStore) -> None:
    def shy(first: str, second: str, request: ChatRequest) -> Reply:
        return longer(first, second, request) if len(request.messages) > 2 else Reply("Hm.")

    judged = list(annotator(PlayedModel(shy, in_flight=12), door_key, store).annotate(questions(500)))
    assert {judgement.status for judgement in judged} <= {"ok", "tie"}


def test_asking_continues_if_told_never_to_give_up(door_key: EnvAdapter, store: ResponseStore) -> None:
    patient = annotator(PlayedModel(lambda *_: Reply("Hm.")), door_key, store, gives_up=False)
    assert {judgement.status for judgement in patient.annotate(questions(50))} == {"parse_failed"}
