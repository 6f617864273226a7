"""How tests ask a chat server: a client, questions, and what comes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chat_server import ChatServer

from laurel.llm.chat import ChatRequest, Failure, Message, RefusedError, Reply
from laurel.llm.openai_chat import OpenAIChat
from laurel.params.judges import OpenAIParams

KEY = "sk-planted-4711-secret"


def chat(server: ChatServer, **params: Any) -> OpenAIChat:
    params = {"timeout_seconds": 60.0, **params}  # which nothing takes, on however busy a machine
    return OpenAIChat(OpenAIParams(model="tiny", base_url=server.url, **params), backoff=0.02)


def question(text: str, **fields: Any) -> ChatRequest:
    return ChatRequest((Message("user", text),), **fields)


def only(answers: Iterator[tuple[int, Reply | Failure]]) -> Reply | Failure:
    ((number, answer),) = answers
    assert number == 0
    return answer


def reply(answers: Iterator[tuple[int, Reply | Failure]]) -> Reply:
    answer = only(answers)
    assert isinstance(answer, Reply), answer
    return answer


def until_stopped(answers: Iterator[tuple[int, Reply | Failure]]) -> tuple[list[Any], RefusedError]:
    """Return what came before the run stopped, and why it did."""
    seen = []
    try:
        for answer in answers:
            seen.append(answer)  # noqa: PERF402 - what came before the error counts
    except RefusedError as error:
        return seen, error
    raise AssertionError("the run did not stop")
