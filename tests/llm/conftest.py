"""What tests of language models share."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from chat_asking import KEY
from chat_server import ChatServer, chat_server
from tiny_llama import make_tiny_llama

from laurel.permissions import KEYS

if TYPE_CHECKING:
    from laurel.llm.local_chat import LocalChat


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tiny model; only to be looked at."""
    return make_tiny_llama(tmp_path_factory.mktemp("tiny") / "llama")


@pytest.fixture(scope="module")
def chat(tiny_llama: Path) -> LocalChat:
    """The tiny model, loaded."""
    from laurel.llm.local_chat import load_local
    from laurel.params.judges import HuggingFaceParams

    return load_local(HuggingFaceParams(model=str(tiny_llama), device="cpu"))


@pytest.fixture
def fresh(chat: LocalChat) -> Callable[..., LocalChat]:
    """The same model with other settings."""
    from laurel.llm.local_chat import LocalChat

    def make(batch_tokens: int = 8192, **changes: Any) -> LocalChat:
        return LocalChat(replace(chat._local, **changes), batch_tokens)

    return make


@pytest.fixture
def copied(tiny_llama: Path, tmp_path: Path) -> Path:
    """A copy of its directory, to be changed."""
    return Path(shutil.copytree(tiny_llama, tmp_path / "llama"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with chat_server() as running:
        monkeypatch.setenv(KEYS, f"OPENAI_API_KEY@{urlsplit(running.url).netloc}")
        yield running
