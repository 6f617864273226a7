"""The commit that tags and reports name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from laurel.tracking.revision import commit, git_sha


def git(*arguments: str) -> None:
    command = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def test_git_sha(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("LAUREL_REVISION", "unknown")
    assert git_sha() is None, "outside git"
    git("init")
    assert git_sha() is None, "nothing was committed"
    (tmp_path / "file").write_text("one")
    git("add", ".")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-01-02T23:00:00+0200")
    git("commit", "-m", "first")
    git("tag", "-a", "v1", "-m", "a tag is not a commit")
    head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert git_sha() == head[:12]
    (tmp_path / "file").write_text("two")
    assert git_sha() == f"{head[:12]}+"
    assert commit() == f"commit {head[:12]}+ of 2026-01-02"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_sha() is None, "without git"
    assert commit() is None
    monkeypatch.setenv("LAUREL_REVISION", f"{head.strip()}-dirty")
    assert git_sha() == f"{head[:12]}+", "in an image"
    assert commit() == f"commit {head[:12]}+", "whose date only git knows"
