"""The arguments of `laurel reward`."""

from __future__ import annotations

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
    assert f"{option} is of --train all. Add that, or leave {option} out." in capsys.readouterr().err


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
