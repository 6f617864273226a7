from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from threadpoolctl import threadpool_info, threadpool_limits

from laurel.classics import deep, lessons
from laurel.classics.deep import GRID, TASKS, Task, _figures, _learn, show_deep
from laurel.classics.lessons import TESTBEDS, WORLDS
from laurel.cli.app import main
from laurel.params.algorithms import ReinforceParams


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
    monkeypatch.setattr("laurel.classics.deep.TASKS", tuple(replace(task, steps=1000) for task in TASKS))
    printed = []
    places = ["once"] if kind == "deep" else ["once", "again"]  # test_algorithms.py has deep agents train twice
    for place in places:
        output = tmp_path / place
        assert main(["classics", kind, "--runs", "2", "--output", str(output)]) == 0
        printed.append(capsys.readouterr().out.replace(str(output), ""))
        with Image.open(output / f"{kind}.png") as image:
            assert image.width > 1000
    assert len(set(printed)) == 1
    files = sorted(file.name for file in (tmp_path / "once").iterdir())
    assert files == ([f"{kind}.json"] if kind == "deep" else []) + [f"{kind}.png"]
    for name in files:
        assert len({(tmp_path / place / name).read_bytes() for place in places}) == 1
    for name in names:
        assert f"| {name} | " in printed[0]
    assert ("too few episodes" if kind == "deep" else "±") in printed[0]


def test_a_curve_of_deep_agents_begins_when_its_mean_is_over_fifty_episodes() -> None:
    """Means of fewer episodes, or of those that ended first, would prefer short ones."""
    task = replace(TASKS[0], steps=5000)
    first, again = (_learn(task, ReinforceParams(), 0) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    known = np.isfinite(first)
    assert known[-1]
    assert not known[0]
    shown = _figures(np.array([first, first + 2]), task)
    assert shown["return"]["mean"] == pytest.approx(first[-1] + 1)
    assert shown["steps_to_goal"] == {"median": None, "runs": 0, "of": 2}
    learned = np.where(known, 500, np.nan)
    assert _figures(np.array([learned]), task)["steps_to_goal"]["median"] == (known.argmax() + 1) * GRID


@pytest.mark.parametrize("runs", ["1", "many"])
def test_runs_without_output(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["classics", "bandits", "--runs", runs])
    assert "--runs" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["bandits", "tabular", "deep"])
def test_a_place_that_cannot_be_written_is_refused_before_the_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (lessons, deep):
        monkeypatch.setattr(module, f"show_{kind}", lambda *_, **__: pytest.fail("it ran"), raising=False)
    (tmp_path / "file").touch()
    assert main(["classics", kind, "--output", str(tmp_path / "file")]) == 2
    assert f"{kind}.png: cannot be written (File exists)." in capsys.readouterr().err


def test_deep_agents_become_the_same_on_any_number_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def learn(task: Task, *_: object) -> np.ndarray:
        threads.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return np.full(task.steps // GRID, task.goal)

    monkeypatch.setattr("laurel.classics.deep._learn", learn)
    with threadpool_limits(2, user_api="blas"):
        show_deep(tmp_path, n_runs=2, seed=0)
    assert set(threads) == {1}


def test_a_figure_is_written_whole_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laurel.classics.lessons.WORLDS", tuple(replace(world, episodes=2) for world in WORLDS))
    place = tmp_path / "tabular.png"
    place.write_bytes(b"an earlier figure")

    def full(self: Figure, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Figure, "savefig", full)
    assert main(["classics", "tabular", "--runs", "2", "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"laurel: {place}: cannot be written (No space left")
    assert place.read_bytes() == b"an earlier figure"
    assert [file.name for file in tmp_path.iterdir()] == ["tabular.png"]
