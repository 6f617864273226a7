"""The arguments of `laurel reward`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from laurel.cli.app import main
from laurel.cli.reward import OF_TUNING
from laurel.rewards.text_tuning import Tuning


@pytest.mark.parametrize("option", [name for name, *_ in OF_TUNING])
def test_an_option_of_tuning_is_not_ignored_where_only_a_head_is_trained(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reward", "fit", str(tmp_path / "rows.jsonl"), option, "1", "--output", str(tmp_path / "reward")]) == 2
    assert f"{option} only applies to --train all. Add --train all, or leave {option} out." in capsys.readouterr().err


def test_options_of_tuning_that_are_left_out_have_their_defaults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []

    def run(*_: Path, tuning: Tuning, **__: object) -> str:
        seen.append(tuning)
        return ""

    monkeypatch.setattr("laurel.stages.fit_text.run", run)
    rows = str(tmp_path / "rows.jsonl")
    assert main(["reward", "fit", rows, "--train", "all", "--epochs", "3", "--output", str(tmp_path / "reward")]) == 0
    assert seen == [Tuning(epochs=3)]


class Length:
    """A reward model whose score is the length of a text."""

    @classmethod
    def load(cls, place: Path) -> Length:
        return cls()

    def score(self, texts: list[str]) -> list[float]:
        return [float(len(text.encode())) for text in texts]


def test_texts_of_a_file_and_of_standard_input_are_read_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the locale, which made the bytes of standard input no text, and left its carriage returns."""
    monkeypatch.setattr("laurel.rewards.text.TextReward", Length)
    content = "\ufeffone\r\n\r\ndréi ☁\r\n".encode()
    (tmp_path / "texts.txt").write_bytes(content)
    assert main(["reward", "score", "reward", "--file", str(tmp_path / "texts.txt")]) == 0
    of_file = capsys.readouterr().out
    assert of_file == "+3.0000  one\n+9.0000  dréi ☁\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), "ascii", errors="surrogateescape"))
    assert main(["reward", "score", "reward", "--file", "-"]) == 0
    assert capsys.readouterr().out == of_file


def test_what_is_no_text_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("laurel.rewards.text.TextReward", Length)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), "utf-8", errors="surrogateescape"))
    assert main(["reward", "score", "reward", "--file", "-"]) == 2
    assert "laurel: -: not text in UTF-8 (from byte 3 on)." in capsys.readouterr().err
    assert main(["reward", "score", "reward", "caf\udce9"]) == 2
    assert 'laurel: laurel reward score: "caf\\udce9" is not text in UTF-8.' in capsys.readouterr().err
