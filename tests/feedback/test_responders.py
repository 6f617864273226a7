"""Answers of a judge to agents in training: which of them are asked for again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laurel.feedback import responders
from laurel.feedback.annotator import Answer, Judgement, Pair
from laurel.feedback.question_queue import QuestionQueue, Verdict
from laurel.llm.chat import RefusedError
from laurel.rewards.judging import _answer

READ = Answer(0, 0, "first", 1.0, "a key")


class OneOrder:
    """Has an answer about pairs in their own order alone."""

    name, simulated = "one order", False

    @property
    def usage(self) -> dict[str, float | None]:
        return {}

    def __init__(self, other: str) -> None:
        self._other = other

    def prepare(self, pairs: Iterable[Pair]) -> None:
        """Do nothing."""

    def annotate(self, pairs: Iterable[Pair]) -> Iterator[Judgement]:
        for _ in pairs:
            yield Judgement("incomplete", None, 1, None, (READ, Answer(1, 0, self._other, None, "")))


@pytest.mark.parametrize(("other", "status"), [("unread", "parse_failed"), ("failed", None)])
def test_a_pair_is_asked_again_only_if_an_answer_is_missing(
    other: str, status: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unreadable answers are stored, too: agents would wait for them forever, and their share would be too low."""
    monkeypatch.setattr(responders, "kind_of", lambda _: SimpleNamespace(make=lambda *_, **__: OneOrder(other)))
    anything: Any = None
    judge = responders.make_responder("pair", anything, anything, 0, anything)
    queue = QuestionQueue(tmp_path / "queue")
    (number,) = queue.post("topic", [("a", "b")])
    assert _answer(queue, {"topic": judge}) == 1
    found = queue.answers([number])
    assert {verdict.status for verdict in found.values()} == ({status} if status else set())
    assert all(verdict.answers == '[[0, "first"], [1, "unread"]]' for verdict in found.values())


def test_an_error_of_one_voter_drops_no_answers_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are paid for, also those that have not arrived yet."""

    def answers(name: str) -> Iterator[Verdict]:
        for number in range(3):
            if (name, number) == ("second", 1):
                raise RefusedError("It is away.")
            came.append(name)
            yield Verdict("ok", 1.0)

    def voter(name: str, *_: Any) -> Any:
        return SimpleNamespace(name=name, simulated=False, at_once=3, answers=lambda _: answers(name))

    came: list[str] = []
    monkeypatch.setattr(responders, "_voter", voter)
    annotate: Any = SimpleNamespace(voters=["first", "second"], weights=[1.0, 1.0], tie_band=0.0)
    anything: Any = None
    judge = responders.make_responder("caption", annotate, anything, 0, anything)
    with pytest.raises(RefusedError):
        list(judge.answers([("a", ""), ("b", ""), ("c", "")]))
    assert came == ["first"] * 3 + ["second"]
