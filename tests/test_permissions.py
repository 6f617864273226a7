"""A params file alone neither sends a key anywhere nor writes outside of the working directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laurel.errors import ParamsError
from laurel.llm.chat import RefusedError
from laurel.llm.openai_chat import read_key
from laurel.params import load_params
from laurel.params.edit import edited
from laurel.params.judges import OpenAIParams
from laurel.permissions import (
    KEYS,
    RESPONSES,
    is_loopback,
    take_permissions,
    why_key_is_withheld,
    why_responses_are_refused,
)

EVIL = "https://models.example/v1"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS, "")
    monkeypatch.setenv(RESPONSES, "")
    for name in ("OPENAI_API_KEY", "VLLM_KEY"):
        monkeypatch.setenv(name, "sk-secret")


def key(url: str | None, name: str = "OPENAI_API_KEY") -> str:
    return read_key(OpenAIParams(model="m", base_url=url, api_key_env=name))


@pytest.mark.parametrize("name", ["HOME", "PATH", "USER", "DATABASE_URL", "MONKEY", "AWS_SECRET_ACCESS"])
def test_a_variable_that_does_not_look_like_a_key_is_refused_wherever_it_would_go(name: str) -> None:
    with pytest.raises(ValueError, match="holds a key"):
        OpenAIParams(model="m", base_url="http://localhost:8000/v1", api_key_env=name)
    assert why_key_is_withheld(name, "http://localhost:8000/v1") is not None


def test_a_key_is_sent_only_where_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert key(None) == key("https://api.openai.com/v1") == "sk-secret"
    for here in ("http://localhost:8000/v1", "http://127.0.0.1:1/v1", "https://127.8.9.1/v1", "http://[::1]:8/v1"):
        with pytest.raises(RefusedError, match=r"--allow-key '?VLLM_KEY@"):
            key(here, "VLLM_KEY")
    monkeypatch.setenv(KEYS, "VLLM_KEY@localhost:8000 VLLM_KEY@::1:8")
    assert key("http://localhost:8000/v1", "VLLM_KEY") == key("http://[::1]:8/v1", "VLLM_KEY") == "sk-secret"
    others = (
        EVIL,
        "https://api.openai.com.example/v1",
        "https://api.openai.com:8443/v1",
        "https://127.0.0.1.example/v1",
    )
    for url in others:
        with pytest.raises(RefusedError) as caught:
            key(url)
        assert "sk-secret" not in str(caught.value)
    with pytest.raises(RefusedError, match=r"VLLM_KEY@api\.openai\.com"):
        key("https://api.openai.com/v1", "VLLM_KEY")


def test_the_user_allows_one_key_for_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError) as caught:
        key(f"{EVIL}")
    assert str(caught.value).endswith(f'type: export {KEYS}="${KEYS} "OPENAI_API_KEY@models.example')
    monkeypatch.setenv(KEYS, "VLLM_KEY@other.example,OPENAI_API_KEY@models.example")
    assert key(EVIL) == key("https://MODELS.example:443/v1") == "sk-secret"
    for url, name in ((EVIL, "VLLM_KEY"), ("https://models.example:8443/v1", "OPENAI_API_KEY")):
        with pytest.raises(RefusedError):
            key(url, name)
    monkeypatch.setenv(KEYS, "models.example")
    with pytest.raises(RefusedError, match="NAME@HOST"):
        key(EVIL)


def test_no_key_travels_unencrypted_even_where_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS, "VLLM_KEY@models.example OPENAI_API_KEY@models.example")
    assert key("http://models.example/v1") == "", "which most servers on a network of one's own do not ask for"
    with pytest.raises(RefusedError, match="https"):
        key("http://models.example/v1", "VLLM_KEY")
    assert [is_loopback(host) for host in ("127.1.2.3", "::1", "127.evil.example", "", None)] == [True] * 2 + [
        False
    ] * 3


@pytest.mark.parametrize("host", ["$(touch x)", "a;b", "a b", "a'b"])
def test_no_sentence_that_is_to_be_typed_holds_a_command(host: str) -> None:
    with pytest.raises(ValueError, match="address"):
        OpenAIParams(model="m", base_url=f"https://{host}/v1")


def test_the_command_line_allows_too() -> None:
    for grant in ("VLLM_KEY@a.example", "VLLM_KEY@b.example"):
        take_permissions(SimpleNamespace(allow_key=[grant], responses="/elsewhere/r.db"))  # type: ignore[arg-type]
    assert key("https://a.example/v1", "VLLM_KEY") == key("https://b.example/v1", "VLLM_KEY") == "sk-secret"
    assert why_responses_are_refused(Path("/elsewhere/r.db"), Path()) is None


def test_answers_stay_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    shutil.copy(Path(__file__).parent.parent / "params.yaml", "params.yaml")

    def written(place: str) -> Any:
        text = Path("params.yaml").read_text()
        changes = {"annotate.annotator": "huggingface", "annotate.language_model.responses": place}
        Path("mine.yaml").write_text(edited(text, changes))
        return load_params(Path("mine.yaml"))

    for inside in ("responses/responses.db", "r.db", str(tmp_path / "project" / "deep" / "r.db")):
        assert str(written(inside).annotate.language_model.responses) == inside
    for outside in ("../r.db", "responses/../../r.db", str(tmp_path / "r.db"), str(tmp_path / "project2" / "r.db")):
        with pytest.raises(ParamsError, match=f"export {RESPONSES}="):
            written(outside)
    monkeypatch.setenv(RESPONSES, str(tmp_path / "r.db"))
    assert written(str(tmp_path / "r.db"))
    with pytest.raises(ParamsError):
        written("../other.db")
