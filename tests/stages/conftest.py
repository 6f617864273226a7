"""What the tests of what asking costs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_server import ChatServer, chat_server

from priced_project import PAIRS, teacher
from tiny_project import UNTRACKED, Project


@pytest.fixture(scope="module")
def captioned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    changes = {**UNTRACKED, "env.id": "FrozenLake-v1", "collect.steps": 600, "annotate.n_pairs": PAIRS}
    project = Project.create(tmp_path_factory.mktemp("captioned") / "p", changes)
    project.run("collect", "caption")
    return project


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        running.behave = teacher
        yield running


@pytest.fixture
def project(captioned: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    copy = captioned.copy(tmp_path / "p")
    monkeypatch.chdir(copy.path)
    return copy
