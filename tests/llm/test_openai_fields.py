"""What params add to a request: effort, further fields, and headers whose values stand in the environment."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

import pytest
from chat_asking import chat, only, question, reply
from chat_server import ChatServer, problem

from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.chat_annotator import ChatAnnotator
from laurel.llm.chat import ChatRequest, Failure, Identity, Message, RefusedError, Sampling
from laurel.llm.chat_wire import Dialect
from laurel.params.annotation import AnnotateParams
from laurel.params.judges import OpenAIParams


def sampling(**openai: Any) -> Sampling:
    sampled = kind_of(AnnotateParams(annotator="openai", openai=OpenAIParams(model="m", **openai)))
    assert isinstance(sampled, ChatAnnotator)
    return sampled.sampling


def test_effort_and_further_fields_are_sent_and_make_another_question() -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    asked = ChatRequest((Message("user", "q"),), sampling(reasoning_effort="low", extra_body=extra))
    body = Dialect("m").body(asked)
    assert body["reasoning_effort"] == "low"
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["model"] == "m"
    plain = ChatRequest((Message("user", "q"),), sampling())
    assert not {"reasoning_effort", "chat_template_kwargs"} & Dialect("m").body(plain).keys()
    assert asked.digest(Identity("m")) != plain.digest(Identity("m"))


def test_answers_stored_before_such_fields_existed_keep_their_keys() -> None:
    told = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 512, "seed": None}
    assert sampling().recorded() == told == {k: v for k, v in asdict(Sampling()).items() if k in told}
    assert question("q").digest(Identity("m")) == "af7df9eea81368cc4522d47c48b349958e637e13ff40b4125a31821eac92aea0"


def test_a_choice_of_a_model_that_reasons_first_has_room_for_it() -> None:
    choose = ChatRequest((Message("user", "q"),), sampling(reasoning_effort="high"), ("1", "2"))
    assert Dialect("m").body(choose)["max_tokens"] == 512
    assert Dialect("m").body(ChatRequest(choose.messages, sampling(), ("1", "2")))["max_tokens"] == 4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"extra_body": {"stream": True}}, "stream"),
        ({"extra_body": {"max_tokens": 5}}, "annotate.openai.max_tokens"),
        ({"extra_body": {"provider": [{"api_key": "x"}]}}, "secret"),
        ({"headers": {"Authorization": "KEY"}}, "api_key_env"),
        ({"headers": {"X-Key": "sk-4711"}}, "environment variable"),
        ({"headers": {"X Key": "KEY"}}, "headers"),
        ({"reasoning_effort": "a lot"}, "minimal"),
    ],
)
def test_fields_that_cannot_be_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        OpenAIParams(model="m", **fields)


def test_headers_come_from_the_environment_and_are_not_shown(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("GATEWAY_KEY", "planted-8128")
    monkeypatch.setenv("LAUREL_ALLOW_KEYS", f"GATEWAY_KEY@{urlsplit(server.url).netloc}")
    model = chat(server, headers={"X-Gateway": "GATEWAY_KEY"})
    reply(model.ask([question("q")]))
    assert {name.lower(): value for name, value in server.headers[0].items()}["x-gateway"] == "planted-8128"
    server.behave = lambda request, body: problem(400, f"you sent {request.headers['X-Gateway']}")
    refused = only(model.ask([question("q")]))
    assert isinstance(refused, Failure)
    said = [refused.reason, repr(model), repr(OpenAIParams(model="m", headers={"X": "GATEWAY_KEY"})), caplog.text]
    assert all("8128" not in text for text in said)


def test_a_header_without_a_value_is_reported_before_the_first_question(server: ChatServer) -> None:
    with pytest.raises(RefusedError, match=r"annotate\.openai\.headers\.X-Gateway: .*NO_SUCH_KEY"):
        chat(server, headers={"X-Gateway": "NO_SUCH_KEY"})
    assert not server.times
