"""Scripts whose parts no other test runs, from start to end with small numbers: what they call changes under them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

SMALL: dict[str, dict[str, Any]] = {
    "annotate_cached --mlflow": {"JUDGEMENTS": 40},
    "kfp_overhead": {"REPEATS": 1, "_run_commands": lambda: None},  # the commands are tested elsewhere
    "seed_batch": {"SETTINGS": {"CartPole": ("CartPole-v1", {"n_envs": 4, "n_steps": 64}, 512)}, "ROUNDS": 1},
    "text_reward": {"ROWS": 400, "SAMPLE": 64, "ROUNDS": 1},
}
"""Command -> names of its script that are set for the test."""


@pytest.mark.slow
@pytest.mark.parametrize("command", SMALL)
def test_a_script_runs(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name, *arguments = command.split()
    script = importlib.import_module(name)
    written: dict[str, Any] = {}
    for changed, value in SMALL[command].items():
        monkeypatch.setattr(script, changed, value)
    monkeypatch.setattr(script, "write", lambda _, found, common: written.update(found, **common))
    monkeypatch.setattr(sys, "argv", [f"benchmarks/{name}.py", *arguments])
    monkeypatch.setenv("LAUREL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)  # a script may change to a folder of its own
    script.main()
    assert written["value"]
    assert written["machine"]
