"""Requests stay within the limits of the chat server and the user; asking stops on demand."""

from __future__ import annotations

import asyncio
import gc
import itertools
import signal
import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from aiohttp import web
from chat_asking import chat, question, until_stopped
from chat_server import Bucket, ChatServer, completion, problem

from laurel.llm.chat import ChatRequest, Reply, Sampling, Tokens
from laurel.llm.concurrently import Idle, concurrently
from laurel.llm.openai_chat import OpenAIChat
from laurel.params.judges import OpenAIParams


def test_no_more_than_the_given_rate_is_sent(server: ChatServer) -> None:
    began = time.monotonic()
    list(chat(server, requests_per_minute=3000).ask(question(str(i)) for i in range(120)))
    for sent, when in enumerate(sorted(server.times), start=1):  # a burst of a fiftieth of a minute's at most
        assert sent <= 60 + 50 * (when - began) + 1
    assert server.times[-1] - began > (120 - 60) / 50 * 0.95


def test_tokens_are_limited_too(server: ChatServer) -> None:
    sampling = Sampling(max_tokens=99)
    requests = (question("four", sampling=sampling) for _ in range(40))  # 100 tokens each
    began = time.monotonic()
    list(chat(server, tokens_per_minute=120_000).ask(requests))  # 24 at once, then 19.6 a second
    assert 0.7 < server.times[-1] - began < 30


def test_rate_limit_headers_are_stored_and_used(server: ChatServer) -> None:
    server.bucket = Bucket(50, 50)
    server.latency = 0.2
    answers = list(chat(server, max_in_flight=64).ask(question(str(i)) for i in range(200)))
    assert all(isinstance(answer, Reply) for _, answer in answers)
    refused = sum(status == 429 for _, status in server.statuses)
    assert refused < 30, "how few is a matter of test_limits.py, where no machine is busy"


def test_a_server_that_asks_for_a_pause_gets_it(server: ChatServer) -> None:
    refused = []

    def first_is_refused(request: web.Request, body: dict[str, Any]) -> web.Response | None:
        if not refused:
            refused.append(time.monotonic())
            return problem(429, "later", {"Retry-After": "1"})
        return None

    server.behave = first_is_refused
    list(chat(server, max_in_flight=1).ask(question(str(i)) for i in range(20)))
    assert server.times[0] <= refused[0]
    assert min(server.times[1:]) > refused[0] + 0.95


def test_a_place_is_free_when_the_caller_has_dealt_with_the_answer(server: ChatServer) -> None:
    """Else a killed run would lose more answers than may be in flight."""
    server.latency = 0.02
    drawn = ahead = 0

    def requests() -> Iterator[ChatRequest]:
        nonlocal drawn
        for drawn in range(1, 101):
            yield question(str(drawn))

    for done, _ in enumerate(chat(server, max_in_flight=10).ask(requests())):
        ahead = max(ahead, drawn - done)
        if done == 3:
            time.sleep(0.3)
    assert ahead == 10
    assert drawn == 100
    assert server.most_at_once <= 10


def test_an_answer_is_handed_over_as_soon_as_it_is_there(server: ChatServer) -> None:
    started = time.monotonic()
    answers = chat(server, timeout_seconds=30.0).ask([question("slow hang"), question("quick")])
    number, _ = next(answers)
    answers.close()
    assert number == 1
    assert time.monotonic() - started < 25


def test_a_busy_caller_does_not_make_answers_late(server: ChatServer) -> None:
    """Else the caller's first pause alone would be longer than what the others may take."""
    server.latency = 0.1
    answers = chat(server, timeout_seconds=3.0, retries=0, max_in_flight=4).ask(map(question, "abcdefgh"))
    assert isinstance(next(answers)[1], Reply)
    time.sleep(3.5)
    assert all(isinstance(answer, Reply) for _, answer in answers)


# ---- the end ----


@pytest.mark.parametrize("stop", ["close", "interrupt"])
def test_stopping_cancels_requests_in_flight(server: ChatServer, caplog: pytest.LogCaptureFixture, stop: str) -> None:
    def requests() -> Iterator[ChatRequest]:
        yield question("quick")
        for i in range(20):
            yield question(f"{i} hang")
        if stop == "interrupt":
            raise KeyboardInterrupt

    before = set(threading.enumerate())
    started = time.monotonic()
    answers = chat(server, timeout_seconds=30.0).ask(requests())
    if stop == "close":
        next(answers)
        answers.close()  # type: ignore[attr-defined]
    else:
        with pytest.raises(KeyboardInterrupt):
            list(answers)
    del answers
    gc.collect()
    assert time.monotonic() - started < 25
    assert set(threading.enumerate()) <= before
    assert not caplog.records  # asyncio would log tasks that were destroyed, aiohttp what was not closed


def press(server: ChatServer, answers: Iterator[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Press Ctrl-C after the first answer; return what came until it took effect."""
    seen = [next(answers)]
    before = len(server.bodies)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        seen.extend(answers)
    assert len(server.bodies) <= before + 32, "nothing more was sent but what was on its way"
    return seen


def test_ctrl_c_keeps_what_arrives_within_a_moment(server: ChatServer, capsys: pytest.CaptureFixture[str]) -> None:
    handler = signal.getsignal(signal.SIGINT)
    server.latency = 0.3
    seen = press(server, chat(server, max_in_flight=8).ask(question(str(i)) for i in range(1000)))
    assert len(seen) >= 8
    assert len(seen) == sum(server.answered.values()), "all that was paid for"
    assert "Stopping: waiting up to 3 s" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_error_keeps_the_answers_to_pending_requests(server: ChatServer, capsys: pytest.CaptureFixture[str]) -> None:
    """They are paid for: dropped, they would be asked and paid again in the next run."""
    server.latency = 0.3
    asked, later = itertools.count(1), {"Retry-After": "9000"}
    server.behave = lambda request, body: problem(503, "busy", later) if next(asked) == 20 else None
    answers, error = until_stopped(chat(server, max_in_flight=8).ask(question(str(i)) for i in range(1000)))
    assert "asks for a pause of 9000 s" in str(error)
    assert sorted(number for number, _ in answers) == sorted(map(int, server.answered)), "all that was paid for"
    assert 19 <= len(answers) < 28
    assert "An error ends this: waiting up to 30 s for pending answers" in capsys.readouterr().err


def test_an_error_waits_for_no_retry(server: ChatServer) -> None:
    """Requests that wait for another attempt are not pending."""
    began = time.monotonic()
    server.behave = lambda request, body: problem(*((401, "no") if len(server.bodies) == 9 else (500, "broken")))
    patient = OpenAIChat(OpenAIParams(model="tiny", base_url=server.url, retries=9), backoff=1000.0)
    _, error = until_stopped(patient.ask(question(str(i)) for i in range(9)))
    assert "401" in str(error)
    assert time.monotonic() - began < 25


def test_nor_does_a_request_that_fails_after_the_error() -> None:
    async def work(fails: bool) -> None:
        await asyncio.sleep(0.1 if fails else 0.4)
        if fails:
            raise ValueError("the error")
        await idle.sleep(1000.0)

    async def close() -> None:
        pass

    idle, began = Idle(), time.monotonic()
    with pytest.raises(ValueError, match="the error"):
        list(concurrently([True, False], work, 2, close, idle))
    assert time.monotonic() - began < 25


def test_failed_attempts_that_are_not_repeated_any_more_are_billed(server: ChatServer) -> None:
    empty = web.json_response({**completion(), "choices": []}).body
    server.behave = lambda request, body: problem(401, "no") if len(server.bodies) == 9 else web.Response(body=empty)
    patient = OpenAIChat(OpenAIParams(model="tiny", base_url=server.url, retries=9), backoff=1000.0)
    answers, _ = until_stopped(patient.ask(question(str(i)) for i in range(9)))
    assert [answer.lost for _, answer in answers] == [Tokens(5, 1)] * 8


def test_ctrl_c_sends_no_queued_request(server: ChatServer) -> None:
    server.latency = 0.5
    answers = chat(server, max_in_flight=32).ask(question(str(i)) for i in range(1000))
    seen = [*islice(answers, 39), *press(server, answers)]
    assert len(seen) == len(server.times) <= 8 + 32 + 32, "the first window, a full one, and what is on its way then"


def test_ctrl_c_waits_no_longer_than_a_moment(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.llm.concurrently.GRACE", 0.2)
    began = time.monotonic()
    press(server, chat(server).ask(question("quick" if i == 0 else f"{i} hang") for i in range(9)))
    assert time.monotonic() - began < 50


def test_ctrl_c_pressed_twice_ends_at_once(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.llm.concurrently.GRACE", 1000.0)
    answers = chat(server).ask(question("quick" if i == 0 else f"{i} hang") for i in range(9))
    next(answers)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    answers.close()  # type: ignore[attr-defined]
