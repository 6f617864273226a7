"""A model whose failures are said: each reason once, whatever the numbers in it, and none that is no failure of its."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from laurel.llm.chat import ChatRequest, Failure, Identity, Message, Reply, Withheld
from laurel.llm.reported_failures import KINDS, ReportingChat


class Model:
    identity = Identity("m")
    at_once = 7

    def __init__(self, answers: list[Reply | Failure]) -> None:
        self.answers = answers

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        for (number, _), answer in zip(enumerate(requests), self.answers, strict=True):
            yield number, answer


def said(answers: list[Reply | Failure], capsys: pytest.CaptureFixture[str]) -> list[str]:
    model = ReportingChat(Model(answers))
    assert (model.identity, model.at_once) == (Model.identity, 7)
    requests = [ChatRequest((Message("user", "a"),))] * len(answers)
    assert list(model.ask(iter(requests))) == list(enumerate(answers))
    return capsys.readouterr().err.splitlines()


def test_a_reason_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    long = [Failure(f"the prompt has {n} tokens") for n in (300, 301)]
    assert said([Reply("1"), *long, Failure("no"), Withheld("no budget")], capsys) == [
        "m gave no answer, and may again for the same reason: the prompt has 300 tokens",
        "m gave no answer, and may again for the same reason: no",
    ]


def test_many_reasons_are_not_all_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(said([Failure("x" * n) for n in range(1, 20)], capsys)) == KINDS
