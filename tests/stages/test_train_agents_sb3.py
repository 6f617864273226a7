"""The stages with agents of Stable-Baselines3: the same files, the same evaluation, a note on the engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

from laurel.agents.checkpoint import load_policy
from laurel.agents.sb3.policy import SB3Policy
from laurel.cli.app import main
from laurel.errors import ParamsError
from laurel.params import load_params
from laurel.stages import tune
from laurel.tuning.plan import Search
from laurel.tuning.trials import TRIALS, read_trials
from tiny_project import UNTRACKED, Project, read_json

SMALL = {"policy_kwargs": {"net_arch": [16]}, "learning_starts": 64, "batch_size": 16}
COMMON: dict[str, Any] = {
    **UNTRACKED,
    "agent.engine": "sb3",
    "agent.seeds": [0],
    "agent.steps": 256,
    "agent.checkpoint_steps": 128,
    "arms": ["extrinsic", "preference", "random_policy"],
    "rewards.preference.max_epochs": 5,
}


def manifest(project: Project, stage: str) -> dict[str, Any]:
    return read_json(project.output(stage) / "manifest.json")


@pytest.fixture
def lake(rewarded: Project, tmp_path: Path) -> Project:
    """A project with a reward model, on the frozen lake."""
    return rewarded.copy(tmp_path / "p", COMMON)


def test_discrete_agents_from_training_to_the_report(
    lake: Project, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    lake.change({"agent.sb3": {"algorithm": "QRDQN", "n_envs": 2, "kwargs": SMALL}})
    lake.run("train-agents", "evaluate")
    note = manifest(lake, "train-agents")["notes"][0]
    credit = r"The agents were trained by QRDQN of sb3_contrib 2\.9\.\d+, not by one of Laurel's own algorithms\."
    assert re.fullmatch(credit, note)
    assert note in manifest(lake, "evaluate")["notes"]
    assert note.replace("'", "&#39;") in (lake.output("evaluate") / "report.html").read_text()
    for arm in ("extrinsic", "preference"):
        place = lake.output("train-agents") / arm / "seed-0"
        files = [
            ".run.json",
            "config.json",
            "curve.parquet",
            "model.safetensors",
            "optimizer.safetensors",
            "state.json",
        ]
        assert sorted(path.name for path in place.iterdir()) == files
        assert isinstance(load_policy(place), SB3Policy)
    metrics = read_json(lake.output("evaluate") / "metrics.json")
    assert list(metrics["arms"]) == ["extrinsic", "preference", "random_policy"]
    assert metrics["algorithm"] == "QRDQN (sb3)"
    assert (lake.output("evaluate") / "episodes.webp").exists(), "before and after training"
    monkeypatch.chdir(lake.path)
    capsys.readouterr()
    assert main(["play", "--steps", "3"]) == 0
    assert capsys.readouterr().out.startswith("preference, seed 0, FrozenLake-v1\n")


def test_continuous_agents_from_training_to_the_report(tmp_path: Path) -> None:
    project = Project.create(
        tmp_path / "p",
        {
            **COMMON,
            "env": {"id": "Pendulum-v1", "max_episode_steps": 30},
            "annotate.embedding": {"goal": "Number 1 is very high.", "anti_goal": "Number 1 is very low."},
            "collect.steps": 600,
            "arms": ["preference", "random_policy"],
            "agent.sb3": {"algorithm": "SAC", "n_envs": 2, "kwargs": SMALL},
            "evaluate.animation_steps": 3,
        },
    )
    project.run()
    assert manifest(project, "train-agents")["counts"] == {"arms": 1, "seeds": 1, "steps_each": 256}
    assert list(read_json(project.output("evaluate") / "metrics.json")["arms"]) == ["preference", "random_policy"]
    collecting = {"kind": "checkpoint", "path": str(project.output("train-agents") / "preference/seed-0")}
    project.change({"collect.policies": [collecting, {"kind": "random"}]})
    project.run("collect")


def test_what_cannot_be_trained_is_reported_before_any_process_starts(
    lake: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laurel.pool.run_jobs", None)
    lake.change({"agent.sb3": {"algorithm": "SAC"}})
    with pytest.raises(ParamsError, match=r"SAC needs Box spaces, .*QRDQN, TRPO support it"):
        lake.run("train-agents")


def test_a_note_where_a_rollout_is_longer_than_the_training(lake: Project) -> None:
    sb3 = {"algorithm": "A2C", "n_envs": 4, "kwargs": {"n_steps": 100}}
    arms = {"extrinsic": {}, "theirs": {"reward": None, "agent": {"engine": "sb3", "sb3": sb3}}}
    lake.change({"agent.engine": "laurel", "arms": arms, "agent.steps": 256})
    lake.run("train-agents")
    notes = manifest(lake, "train-agents")["notes"]
    assert any(note.startswith("Agents of theirs took 400 environment steps each, not 256: A2C") for note in notes)
    assert notes[0].startswith("Agents of theirs were trained by A2C of stable_baselines3 ")
    lake.change({"agent.steps": 390})
    lake.run("train-agents")
    assert len(manifest(lake, "train-agents")["notes"]) == len(notes) - 1


def test_a_note_where_resuming_is_not_exact(lake: Project) -> None:
    kwargs = {"use_sde": False, "n_steps": 16, "policy_kwargs": {"net_arch": [8]}}
    lake.change({"agent.sb3": {"algorithm": "A2C", "n_envs": 2, "kwargs": kwargs}, "arms": ["extrinsic"]})
    lake.run("train-agents")
    assert len(manifest(lake, "train-agents")["notes"]) == 1
    lake.change({"agent.device": "auto"})
    lake.run("train-agents")
    assert "interrupted and resumed may differ" in manifest(lake, "train-agents")["notes"][1]


def test_its_arguments_are_searched(lake: Project) -> None:
    kwargs = {"n_steps": 16, "policy_kwargs": {"net_arch": [8]}}
    lake.change({"agent.sb3": {"algorithm": "A2C", "n_envs": 2, "kwargs": kwargs}})
    entries = ("agent.sb3.kwargs.learning_rate=0.001,0.01", "agent.sb3.algorithm=A2C,PPO")
    search = Search(storage=lake.path / "s.db", entries=entries, steps=256, prune=False, sampler="grid", trials=4)
    tune.run(lake.params, **lake.inputs("train-agents"), output=lake.path / "tune", search=search)
    trials = read_trials(lake.path / "tune" / TRIALS)
    assert [trial.state for trial in trials] == ["complete"] * 4
    best = load_params(lake.path / "tune" / "best.yaml").agent.sb3
    assert best.kwargs["learning_rate"] in (0.001, 0.01)
    assert best.kwargs["n_steps"] == 16


def test_algorithms_for_other_action_spaces_are_refused(lake: Project) -> None:
    search = Search(storage=lake.path / "s.db", entries=("agent.sb3.algorithm=A2C,SAC",), steps=256, trials=2)
    with pytest.raises(ParamsError, match="SAC needs Box spaces"):
        tune.run(lake.params, **lake.inputs("train-agents"), output=lake.path / "tune", search=search)
    assert not (lake.path / "tune").exists()
