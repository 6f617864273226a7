"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_project import UNTRACKED, Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.create(tmp_path / "p", {**UNTRACKED, "env.backend": "gymnasium", "collect.steps": 60})
