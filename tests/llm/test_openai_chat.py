"""Every request to a chat server ends as exactly one answer or failure, whatever the server does."""

from __future__ import annotations

import itertools
import math
import random
import re
import socket
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from chat_asking import KEY, chat, only, question, reply, until_stopped
from chat_server import ChatServer, completion, elsewhere, problem, top_logprobs

from laurel.llm.chat import ChatRequest, Failure, Message, RefusedError, Reply, Sampling, Tokens
from laurel.llm.openai_chat import OpenAIChat
from laurel.params.judges import OpenAIParams

# ---- one request, one outcome ----


def test_an_answer_carries_text_tokens_and_time(server: ChatServer) -> None:
    answer = reply(chat(server).ask([question("q")]))
    assert (answer.text, answer.input_tokens, answer.output_tokens) == ("answer q", 5, 1)
    assert (answer.finish_reason, answer.logprobs) == ("stop", None)
    assert 0 < answer.seconds < 5
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_a_request_contains_all_settings(server: ChatServer) -> None:
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=7, seed=3)
    request = ChatRequest((Message("system", "s"), Message("user", "q")), sampling, schema='{"type": "object"}')
    list(chat(server).ask([request]))
    assert server.bodies[0] == {
        "model": "tiny",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "seed": 3,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
        },
    }


@pytest.mark.parametrize("text", ["", "ü😀", "\ud800", "\x00\n"])
def test_any_text_gets_through(server: ChatServer, text: str) -> None:
    reply(chat(server).ask([question(text)]))
    assert server.bodies[0]["messages"][0]["content"] == text


FAULTS = ("429", "429-after", "500", "502", "503", "409", "408", "reset", "half", "cut", "schema", "other", "error200")


@pytest.mark.parametrize("fault", FAULTS)
def test_temporary_failures_are_retried(server: ChatServer, fault: str) -> None:
    answer = reply(chat(server).ask([question(f"q {fault}")]))
    assert answer.text == "answer q"
    assert server.attempts["q"] == 2


@pytest.mark.parametrize("fault", ["drip", "hang"])
def test_timeouts_are_retried(server: ChatServer, fault: str) -> None:
    answer = reply(chat(server, timeout_seconds=1.0, retries=9).ask([question(f"q {fault}")]))
    assert answer.text == "answer q"
    assert server.attempts["q"] >= 2


@pytest.mark.parametrize("fault", ["500", "reset", "half"])
def test_persistent_failures_are_given_up(server: ChatServer, fault: str) -> None:
    answer = only(chat(server, retries=2).ask([question(f"q {','.join([fault] * 9)}")]))
    assert isinstance(answer, Failure)
    assert server.attempts["q"] == 3
    assert answer.reason.startswith("after 3 attempts: ")
    assert "\n" not in answer.reason


def test_persistent_timeouts_are_given_up(server: ChatServer) -> None:
    answer = only(chat(server, timeout_seconds=0.3, retries=2).ask([question(f"q {','.join(['drip'] * 9)}")]))
    assert isinstance(answer, Failure)
    assert re.fullmatch(
        r"after [123] attempts: no complete answer within 0\.3 s \(annotate\.openai\.timeout_seconds\)", answer.reason
    )


def test_a_request_has_a_deadline_over_all_attempts(server: ChatServer) -> None:
    started = time.monotonic()
    answer = only(chat(server, timeout_seconds=1.0, retries=20).ask([question(f"q {','.join(['hang'] * 30)}")]))
    assert isinstance(answer, Failure)
    assert time.monotonic() - started < 18  # all attempts would take 21 s


def test_a_thousand_requests_through_every_fault_end_once_each(server: ChatServer) -> None:
    plain = [fault for fault in FAULTS for _ in range(12)]
    hopeless = ",".join(["500"] * 12)
    several = ["reset,500,half", hopeless, "400", "drip", "hang"] * 4
    plans = [*plain, *several, *[""] * 1000][:1000]
    random.Random(0).shuffle(plans)
    lost = [plan in ("400", hopeless) for plan in plans]
    model = chat(server, timeout_seconds=3.0, retries=8, max_in_flight=64)
    answers = list(model.ask(question(f"{number} {plan}") for number, plan in enumerate(plans)))
    assert sorted(number for number, _ in answers) == list(range(1000))
    for number, answer in answers:
        assert isinstance(answer, Failure) == lost[number], (plans[number], answer)
        if isinstance(answer, Reply):
            assert answer.text == f"answer {number}"
    assert server.most_at_once <= 64


def test_a_refused_request_is_a_failure_and_the_run_continues(server: ChatServer) -> None:
    answers = dict(chat(server).ask([question("a"), question("b 400"), question("c")]))
    assert isinstance(answers[0], Reply)
    assert isinstance(answers[2], Reply)
    assert answers[1] == Failure("refused with status 400: This model's maximum context length is 8 tokens.")
    assert server.attempts["b"] == 1


# ---- when asking makes no sense ----


def behave(server: ChatServer, response: web.Response) -> None:
    body, status, headers = response.body, response.status, dict(response.headers)
    server.behave = lambda request, asked: web.Response(body=body, status=status, headers=headers)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (problem(401, f"Incorrect API key provided: {KEY}"), ("key", "OPENAI_API_KEY")),
        (problem(403, f"{KEY} may not"), ("tiny", "OPENAI_API_KEY")),
        (problem(404, "no such model"), ('"tiny"', "annotate.openai.model", "annotate.openai.base_url")),
        (problem(429, "You exceeded your quota", code="insufficient_quota"), ("quota", "OPENAI_API_KEY")),
    ],
)
def test_an_error_of_all_requests_stops_the_run_with_a_fix(
    server: ChatServer, response: web.Response, words: tuple[str, ...]
) -> None:
    behave(server, response)
    with pytest.raises(RefusedError) as caught:
        list(chat(server).ask(question(str(i)) for i in range(100)))
    assert all(word in str(caught.value) for word in (*words, server.url)), caught.value
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)
    assert len(server.times) <= 32  # what was on its way


def test_a_redirection_is_not_followed(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Authorization would be left out there, but not keys in other headers, and the questions would go, too."""
    monkeypatch.setenv("GATEWAY_KEY", "planted")
    monkeypatch.setenv("LAUREL_ALLOW_KEYS", f"GATEWAY_KEY@{urlsplit(server.url).netloc}")
    with elsewhere() as (other, got):
        behave(server, web.Response(status=307, headers={"Location": f"{other}/chat/completions?t=planted"}))
        named = rf"to another address \(status 307: {other}/chat/completions\).*annotate\.openai\.base_url"
        with pytest.raises(RefusedError, match=named):
            list(chat(server, headers={"X-Gateway": "GATEWAY_KEY"}).ask([question("q")]))
    assert got == []
    assert server.headers[0]["x-gateway"] == "planted"


def test_a_run_does_not_wait_for_hours(server: ChatServer) -> None:
    behave(server, problem(429, "daily limit", {"Retry-After": "7200"}))
    with pytest.raises(RefusedError, match=r"a pause of 7200 s .*daily limit.* kept"):
        list(chat(server).ask([question("q")]))


def test_an_invalid_key_is_refused_without_showing_it(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-4711\nX-Other: ü")
    with pytest.raises(RefusedError, match="OPENAI_API_KEY holds no valid key") as caught:
        chat(server)
    assert "4711" not in str(caught.value)


def test_a_run_stops_if_the_first_requests_are_all_refused_for_one_reason(server: ChatServer) -> None:
    refusals = itertools.count(1000)
    server.behave = lambda request, body: problem(400, f"tiny cannot chat (request {next(refusals)})")
    seen = []
    with pytest.raises(RefusedError, match=r"rejects all requests.*tiny cannot chat"):
        seen.extend(chat(server).ask(question(str(i)) for i in range(1000)))
    assert len(server.times) < 100


@pytest.mark.parametrize("known", [True, False])
def test_refusals_alone_do_not_stop_a_model_that_takes_such_requests(server: ChatServer, known: bool) -> None:
    model = OpenAIChat(OpenAIParams(model="tiny", base_url=server.url), takes_them=known)
    if not known:
        assert [answer.text for _, answer in model.ask([question("1")]) if isinstance(answer, Reply)] == ["answer 1"]
    server.behave = lambda request, body: problem(400, "we do not speak of this")
    answers = [answer for _, answer in model.ask(question(str(i)) for i in range(20))]
    assert answers == [Failure("refused with status 400: we do not speak of this")] * 20


def test_a_server_that_is_down_is_reported_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        params = OpenAIParams(model="m", base_url=f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
        started = time.monotonic()
        with pytest.raises(RefusedError, match=r"cannot be reached: no connection .*annotate\.openai\.base_url"):
            list(OpenAIChat(params).ask(question(str(i)) for i in range(100)))
    assert time.monotonic() - started < 60  # 3 s, where nothing else keeps the machine busy


@pytest.mark.parametrize(
    ("body", "reason"), [("<html>Sign in</html>", "the answer is a web page"), (" ", "the answer is empty")]
)
def test_an_address_without_the_api_is_named_where_it_answers_with_something_else(
    server: ChatServer, body: str, reason: str
) -> None:
    behave(server, web.Response(text=body))
    with pytest.raises(RefusedError, match=rf"the last after 1 attempts: {reason}.*annotate\.openai\.base_url"):
        list(chat(server, retries=0).ask(question(str(i)) for i in range(100)))


def test_a_server_that_refuses_by_its_limits_is_not_said_to_be_away(server: ChatServer) -> None:
    behave(server, problem(429, "slow down"))
    with pytest.raises(
        RefusedError, match=r"rejects requests because of its rate limits.*requests_per_minute"
    ) as refused:
        list(chat(server, retries=0).ask(question(str(i)) for i in range(100)))
    assert "base_url" not in str(refused.value)


def test_a_server_that_goes_down_stops_the_run_and_keeps_answers(server: ChatServer) -> None:
    asked = itertools.count(1)

    def die_after_fifty(request: web.Request, body: dict[str, Any]) -> web.Response | None:
        return problem(503, "gone") if next(asked) > 50 else None

    server.behave = die_after_fifty
    answers, error = until_stopped(chat(server, retries=2).ask(question(str(i)) for i in range(1000)))
    assert "does not answer: 5 requests in a row" in str(error)
    assert "base_url" not in str(error)
    assert sum(isinstance(answer, Reply) for _, answer in answers) == 50
    assert len(server.times) < 500


def test_questions_answered_without_a_choice_do_not_stop_the_others(server: ChatServer) -> None:
    """Asked again, such questions alone remain, so a run that stopped for them could never end."""
    server.behave = lambda request, body: web.json_response({"choices": []}) if "odd" in str(body) else None
    requests = [question(f"{'odd' if i % 2 else 'even'} {i}") for i in range(40)]
    nothing = Failure("after 2 attempts: the answer has no choice")
    first = dict(OpenAIChat(OpenAIParams(model="tiny", base_url=server.url, retries=1), backoff=0.01).ask(requests))
    assert [first[i] for i in range(1, 40, 2)] == [nothing] * 20
    assert all(isinstance(first[i], Reply) for i in range(0, 40, 2))
    again = OpenAIChat(OpenAIParams(model="tiny", base_url=server.url, retries=1), takes_them=True, backoff=0.01)
    assert [answer for _, answer in again.ask(requests[1::2])] == [nothing] * 20


@pytest.mark.parametrize("again", [False, True])
def test_questions_that_always_fail_do_not_stop_the_others(server: ChatServer, again: bool) -> None:
    """Asked again, they alone remain: a server that answers a short question is not down."""
    server.behave = lambda request, body: problem(500, "broken") if "odd" in str(body) else None
    requests = [question(f"{'odd' if again or i >= 12 else 'even'} {i}") for i in range(24)]
    one_by_one = OpenAIParams(model="tiny", base_url=server.url, retries=1, max_in_flight=1)  # the failures in a row
    model = OpenAIChat(one_by_one, takes_them=again, backoff=0.01)
    answers = dict(model.ask(requests))
    failures = [answer for answer in answers.values() if isinstance(answer, Failure)]
    assert {answer.reason for answer in failures} == {"after 2 attempts: status 500: broken"}
    assert len(failures) == (24 if again else 12)
    assert len(answers) == 24
    probes = [body for body in server.bodies if body["max_tokens"] == 1]
    assert len(probes) >= len(failures) // 5
    assert sum((answer.lost for answer in failures), Tokens()) == Tokens(5 * len(probes), len(probes))


def test_the_tokens_of_attempts_without_a_choice_are_billed_like_those_of_answers(server: ChatServer) -> None:
    empty = {**completion(), "choices": []}
    tries = Counter[str]()

    def behave(request: web.Request, body: dict[str, Any]) -> web.Response | None:
        text = body["messages"][-1]["content"]
        tries[text] += 1
        return web.json_response(empty) if text == "never" or tries[text] == 1 else None

    server.behave = behave
    answers = dict(chat(server, retries=2).ask([question("never"), question("later")]))
    assert answers[0] == Failure("after 3 attempts: the answer has no choice", Tokens(15, 3))
    assert isinstance(answers[1], Reply)
    assert (answers[1].input_tokens, answers[1].output_tokens, answers[1].lost) == (5, 1, Tokens(5, 1))


def test_a_server_that_never_offers_a_choice_stops_the_run(server: ChatServer) -> None:
    server.behave = lambda request, body: web.json_response({"choices": []})
    _, error = until_stopped(chat(server, retries=1).ask(question(str(i)) for i in range(1000)))
    assert "rejects all requests: after 2 attempts: the answer has no choice." in str(error)
    assert len(server.times) < 500


def test_a_missing_key_is_reported_before_the_first_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(RefusedError, match="set the environment variable MY_KEY"):
        OpenAIChat(OpenAIParams(model="m", api_key_env="MY_KEY"))


# ---- what servers differ in ----


def test_a_server_without_schemas_is_asked_without_after_one_warning(
    server: ChatServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.behave = lambda request, body: (
        problem(400, "response_format is not supported") if "response_format" in body else None
    )
    requests = (question(str(i), schema='{"type": "object"}') for i in range(60))
    answers = list(chat(server).ask(requests))
    assert len(answers) == 60
    assert all(isinstance(answer, Reply) for _, answer in answers)
    assert sum("response_format" in record.message for record in caplog.records) == 1
    assert sum("response_format" in body for body in server.bodies) <= 8


@pytest.mark.parametrize("taken", ["max_tokens", "max_completion_tokens"])
def test_either_name_of_the_length_of_an_answer_is_found(server: ChatServer, taken: str) -> None:
    other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}[taken]
    server.behave = lambda request, body: (
        problem(400, f"Unsupported parameter: '{other}'.", param=other) if other in body else None
    )
    reply(chat(server).ask([question("q", sampling=Sampling(max_tokens=9))]))
    assert server.bodies[-1][taken] == 9


def test_a_request_longer_than_the_context_does_not_change_how_the_others_are_asked(server: ChatServer) -> None:
    server.behave = lambda request, body: (
        problem(400, "'max_tokens' or 'max_completion_tokens' is too large; the model supports 8.", param="max_tokens")
        if body["messages"][0]["content"] == "long"
        else None
    )
    answers = dict(chat(server).ask([question("long"), question("b")]))
    assert isinstance(answers[0], Failure)
    assert isinstance(answers[1], Reply)
    assert all("max_tokens" in body for body in server.bodies)


def test_choices_are_scored_by_their_tokens(server: ChatServer) -> None:
    told = top_logprobs(**{"A": math.log(0.3), " a": math.log(0.1), "B": math.log(0.1), "The": math.log(0.4)})
    server.behave = lambda request, body: web.json_response(completion("A", told))
    answer = reply(chat(server).ask([question("q", choices=("A", "B"))]))
    assert answer.logprobs is not None
    assert {choice: math.exp(value) for choice, value in answer.logprobs.items()} == pytest.approx({"A": 0.8, "B": 0.2})
    assert server.bodies[0]["logprobs"] is True
    assert server.bodies[0]["top_logprobs"] == 20
    assert server.bodies[0]["max_tokens"] <= 4


def test_a_choice_of_several_tokens_is_known_by_its_first(server: ChatServer) -> None:
    told = top_logprobs(**{" fir": math.log(0.6), "second": math.log(0.2), "s": math.log(0.1), "sa": math.log(0.1)})
    server.behave = lambda request, body: web.json_response(completion("first", told))
    answer = reply(chat(server).ask([question("q", choices=("first", "second", "same"))]))
    assert answer.logprobs is not None
    probabilities = {choice: math.exp(value) for choice, value in answer.logprobs.items()}
    assert probabilities == pytest.approx({"first": 6 / 9, "second": 2 / 9, "same": 1 / 9})


def test_no_scores_are_made_up(server: ChatServer, caplog: pytest.LogCaptureFixture) -> None:
    told = {
        "none": None,
        "empty": {"content": []},
        "others": top_logprobs(**{"The": math.log(0.5), "I": math.log(0.5)}),
        "null": {"content": None},
    }
    server.behave = lambda request, body: web.json_response(completion("A", told[body["messages"][0]["content"]]))
    answers = list(chat(server).ask(question(name, choices=("A", "B")) for name in told))
    assert [answer.logprobs for _, answer in answers if isinstance(answer, Reply)] == [None] * 4
    server.behave = lambda request, body: problem(400, "logprobs unavailable") if "logprobs" in body else None
    answer = reply(chat(server).ask([question("q", choices=("A", "B"))]))
    assert (answer.text, answer.logprobs) == ("answer q", None)
    assert sum("logprobs" in record.message for record in caplog.records) == 1
