"""Keys reach their server alone: no answer, message, log or file has them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chat_asking import KEY, chat, question, reply, until_stopped
from chat_server import ChatServer, chat_server, completion, problem

from laurel.llm.batch_wire import read_line
from laurel.llm.chat import RefusedError, Reply
from laurel.llm.openai_chat import read_key
from laurel.llm.retries import one_line
from laurel.params.judges import OpenAIParams


def test_the_key_is_nowhere(server: ChatServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server.behave = lambda request, body: problem(400, f"you sent {request.headers['Authorization']}")
    model = chat(server)
    answers, error = until_stopped(model.ask(question(str(i)) for i in range(9)))
    assert len(answers) >= 4
    said = [repr(model), repr(model.identity), repr(error), caplog.text, repr(answers)]
    assert all("4711" not in text for text in said)


@pytest.mark.parametrize("message", ["content", "refusal"])
def test_a_key_that_the_server_echoes_in_an_answer_is_not_kept(server: ChatServer, message: str) -> None:
    def echo(request: Any, _: dict[str, Any]) -> web.Response:
        answer = completion("")
        answer["choices"][0]["message"] = {"content": None, message: f"you sent {request.headers['Authorization']}"}
        return web.json_response(answer)

    server.behave = echo
    assert reply(chat(server).ask([question("q")])).text.endswith("you sent Bearer ***")


def test_a_placeholder_for_a_key_is_no_secret() -> None:
    """Servers on this machine often take any key; text of answers must not be replaced by accident."""
    assert Reply("1 or EMPTY").without_secrets(["1", "EMPTY"]).text == "1 or EMPTY"
    assert Reply("8 signs: a-secret").without_secrets(["a-secret"]).text == "8 signs: ***"


def test_keys_that_are_not_known_are_no_part_of_a_message() -> None:
    """Such as that of a proxy before the server, which it names in its error."""
    assert one_line("sk-of-another is invalid, as is Bearer abc.def", ()) == "sk-*** is invalid, as is Bearer ***"
    body = completion(f"{KEY} and 1")
    line = json.dumps({"custom_id": "k", "response": {"status_code": 200, "body": body}})
    assert read_line(line, {"k": question("q")}, [KEY, "1"]) == ("k", Reply("*** and 1", None, 5, 1))


@pytest.mark.parametrize("url", ["http://u:p4ss@h/v1", "http://h/v1?key=p4ss", "ftp://h/p4ss", "http://h/v1#p4ss"])
def test_an_address_with_a_secret_is_refused_without_showing_it(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        OpenAIParams(model="m", base_url=url)
    assert all("p4ss" not in str(error.get("ctx", "")) for error in caught.value.errors())  # type: ignore[attr-defined]


def test_openais_own_key_is_not_sent_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("VLLM_KEY", "k")
    at = {"model": "m", "base_url": "http://models.example:8000/v1"}
    assert read_key(OpenAIParams(**at)) == ""
    with pytest.raises(RefusedError, match="anyone on the way could read it"):
        read_key(OpenAIParams(**at, api_key_env="VLLM_KEY"))
    here = OpenAIParams(model="m", base_url="http://localhost:8000/v1")
    assert read_key(here) == ""
    monkeypatch.setenv("LAUREL_ALLOW_KEYS", "OPENAI_API_KEY@localhost:8000")
    assert read_key(here) == KEY


def test_a_local_server_that_requires_a_key_gets_a_hint(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAUREL_ALLOW_KEYS")
    server.behave = lambda *_: problem(401, "no key")
    with pytest.raises(
        RefusedError, match=r"requires a key \(status 401\), and none was sent.*--allow-key '?OPENAI_API_KEY@127"
    ):
        list(chat(server).ask([question("q")]))
    assert KEY not in str(server.headers)


def test_no_proxy_gets_the_key_of_a_server_on_this_machine(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with chat_server() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        answer = reply(chat(server).ask([question("q")]))
        assert (answer.text, proxy.bodies) == ("answer q", [])
    assert len(server.bodies) == 1
