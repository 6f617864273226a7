from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from laurel.classics.deep import TASKS
from laurel.classics.lessons import TESTBEDS, WORLDS
from laurel.cli.app import main


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "bandits",
            [
                "cheater",
                "Thompson",
                "UCB",
                "gradient",
                "optimistic",
                "ε-greedy, constant step",
                "ε-greedy",
                "greedy",
                "random",
            ],
        ),
        (
            "deep",
            ["PPO", "A2C", "REINFORCE", "DQN", "recurrent PPO", "plain PPO", "Gaussian PPO", "PPO with filters"],
        ),
        ("tabular", ["expected SARSA", "Q-learning", "4-step tree backup", "Monte Carlo", "off-policy Monte Carlo"]),
    ],
)
def test_figure_and_table_are_the_same_each_time(
    kind: str, names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laurel.classics.lessons.TESTBEDS", tuple(replace(bed, steps=200) for bed in TESTBEDS))
    monkeypatch.setattr("laurel.classics.lessons.WORLDS", tuple(replace(world, episodes=10) for world in WORLDS))
    monkeypatch.setattr("laurel.classics.deep.TASKS", tuple(replace(task, steps=4000) for task in TASKS))
    printed = []
    for place in ("once", "again"):
        output = tmp_path / place
        assert main(["classics", kind, "--runs", "3", "--output", str(output)]) == 0
        printed.append(capsys.readouterr().out.replace(str(output), ""))
        with Image.open(output / f"{kind}.png") as image:
            assert image.width > 1000
    assert printed[0] == printed[1]
    files = sorted(file.name for file in (tmp_path / "once").iterdir())
    assert files == ([f"{kind}.json"] if kind == "deep" else []) + [f"{kind}.png"]
    for name in files:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    for name in names:
        assert f"| {name} | " in printed[0]
    assert "±" in printed[0]


@pytest.mark.parametrize("runs", ["1", "many"])
def test_runs_that_say_nothing(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["classics", "bandits", "--runs", runs])
    assert "--runs" in capsys.readouterr().err
