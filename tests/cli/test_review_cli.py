from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from laurel.cli.app import main
from laurel.data.gold import GoldFile
from laurel.envs import adapter_for
from laurel.feedback.references import task_of
from tiny_project import Project

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def project(rewarded: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = rewarded.copy(tmp_path / "p")
    monkeypatch.chdir(project.path)
    return project


def answer(monkeypatch: pytest.MonkeyPatch, keys: str, *arguments: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{key}\n" for key in keys)))
    return main(["annotate", "review", *arguments])


def gold(project: Project) -> GoldFile:
    params = project.params
    return GoldFile(project.path / "gold.jsonl", task_of(params.annotate, adapter_for(params.env)))


def test_a_session(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    project.change({"annotate.gold": "gold.jsonl"})
    assert answer(monkeypatch, "12=s1q") == 0
    out = capsys.readouterr().out
    assert "Goal: " in out
    assert "pair 1 of " in out
    assert "The annotator: " in out
    assert "4 pairs labelled, 4 in gold.jsonl" in out
    assert re.search(r"agreement with a person: [0-9.]+% \([0-9.]+% to [0-9.]+%, of 3\)", out), (
        "a tie has no preference"
    )
    assert re.search(r"Brier score against a person: [0-9.]+ \(of 3\)", out)
    assert [label.answer for label in gold(project).labels.values()] == ["first", "second", "tie", "first"]
    first = list(gold(project).labels)
    assert answer(monkeypatch, "11", "-n", "2", "--labels", "never") == 0
    assert "The annotator" not in capsys.readouterr().out
    assert len(gold(project).labels) == 6
    assert list(gold(project).labels)[:4] == first


def test_the_same_pairs_each_time(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    shown = []
    for name in ("a.jsonl", "b.jsonl"):
        assert answer(monkeypatch, "1s2q", "--gold", name) == 0
        shown.append(capsys.readouterr().out.replace(name, ""))
    assert shown[0] == shown[1]


def test_pairs_in_doubt(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert answer(monkeypatch, "11", "--gold", "gold.jsonl", "--sample", "uncertain", "-n", "2") == 0
    assert {label.chosen for label in gold(project).labels.values()} == {"uncertain"}
    assert "agreement with a person:" not in capsys.readouterr().out


def test_before_anything_was_labelled(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    arguments = ("--gold", "gold.jsonl", "--preferences", "none")
    assert answer(monkeypatch, "1q", *arguments) == 0
    out = capsys.readouterr().out
    assert "1 pair labelled, 1 in gold.jsonl" in out
    assert "The annotator" not in out
    assert answer(monkeypatch, "1q", *arguments, "--sample", "uncertain") == 2
    assert "no such directory, so there are no uncertain labels yet" in capsys.readouterr().err


def test_nowhere_to_keep_labels(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert answer(monkeypatch, "1q") == 2
    assert "Set the file for your labels: annotate.gold" in capsys.readouterr().err


def test_other_captions(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    project.change({"env.id": "CliffWalking-v1"})
    assert answer(monkeypatch, "1q", "--gold", "gold.jsonl") == 2
    assert "was made with env.id" in capsys.readouterr().err


def test_single_keys_on_a_terminal(project: Project) -> None:
    """No Enter is needed, and the terminal is left as it was."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "laurel", "annotate", "review", "--gold", "gold.jsonl"]
    with subprocess.Popen(command, cwd=project.path, stdin=slave, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        shown = b""
        for key in (b"1", b"2", b"q"):
            while not shown.endswith(b"\n> "):
                shown += process.stdout.read(1) or pytest.fail(f"it ended with {shown!r}")
            os.write(master, key)
            shown = b""
        out = process.stdout.read().decode()
    os.close(slave)
    os.close(master)
    assert process.returncode == 0
    assert "2 pairs labelled" in out
    assert len(gold(project).labels) == 2
