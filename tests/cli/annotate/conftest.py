"""A small project whose annotator can be a server on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_server import ChatServer, chat_server

from judged_project import SMALL, judge
from tiny_project import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = Project.create(tmp_path / "p", SMALL)
    monkeypatch.chdir(project.path)
    return project


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as server:
        server.behave = judge
        yield server
