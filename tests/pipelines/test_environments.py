"""The whole chain on other environments by their id alone, and under the params that change its course."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from laurel.data.captions import read_segments, read_vocabulary
from laurel.data.trajectories import read_metadata
from laurel.evaluation.plots import svg
from laurel.rewards.model import RewardModel
from tiny_project import UNTRACKED, Project, read_json

SMALL: dict[str, Any] = {
    **UNTRACKED,
    "collect.steps": 240,
    "annotate.n_pairs": 60,
    "collect.n_envs": 4,
    "rewards.preference.max_epochs": 3,
    "rewards.preference.ensemble": 2,
    "arms": ["preference", "random_policy"],
    "agent.seeds": [0],
    "agent.steps": 128,
    "agent.ppo.n_envs": 2,
    "evaluate.episodes": 2,
    "evaluate.n_envs": 2,
    "evaluate.bootstrap": 20,
    "evaluate.animation_steps": 2,
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn for the report alone."""
    monkeypatch.setattr("laurel.evaluation.plots.save", lambda figure, *_: svg(figure))


def report(project: Project) -> tuple[dict[str, Any], str]:
    """Return metrics and report of a finished project, after checks that hold for every one."""
    text = (project.path / "reports/metrics.json").read_text()
    metrics = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in metrics.json"))
    assert metrics["env"] == project.params.env.id
    for entry in metrics["arms"].values():
        assert math.isfinite(entry["return"]["iqm"])
    page = (project.path / "reports/report.html").read_text()
    assert ">nan<" not in page.lower()
    return metrics, page


@pytest.mark.parametrize(
    ("env_id", "has_success"),
    [
        pytest.param("Blackjack-v1", True, marks=pytest.mark.slow),
        ("CartPole-v1", True),
        pytest.param("CliffWalking-v1", True, marks=pytest.mark.slow),
        pytest.param("LunarLander-v3", True, marks=pytest.mark.slow),
        ("Pendulum-v1", False),
        pytest.param("Taxi-v3", True, marks=pytest.mark.slow),
    ],
)
def test_an_environment_by_its_id_alone(tmp_path: Path, env_id: str, has_success: bool) -> None:
    """One of each kind of observation and engine; all adapters have tests of their own."""
    changes = {"annotate.embedding.goal": "Number 1 is very high."} if env_id == "Pendulum-v1" else {}
    project = Project.create(tmp_path / "p", {**SMALL, "env.id": env_id, **changes})
    project.run()
    metrics, page = report(project)
    for entry in metrics["arms"].values():
        assert (entry["success"] is not None) == has_success
    notes = read_json(project.path / "reports/manifest.json")["notes"]
    generic = [note for note in notes if "has no adapter, so" in note]
    assert bool(generic) == (env_id == "Pendulum-v1")
    assert all(note.replace("'", "&#39;") in page for note in generic)


def test_doorkey_by_gymnasium_with_all_arms_and_a_scripted_teacher(tmp_path: Path) -> None:
    changes = {
        "env.id": "MiniGrid-DoorKey-5x5-v0",
        "env.backend": "gymnasium",
        "arms": "full",
        "annotate.annotator": "scripted",
        "caption.with_action": True,
    }
    project = Project.create(tmp_path / "p", {**SMALL, **changes})
    project.run()
    metrics, page = report(project)
    assert set(metrics["arms"]) == {
        "extrinsic", "preference", "intrinsic_only", "random_reward",
        "shuffled_labels", "similarity", "oracle", "random_policy",
    }  # fmt: skip
    assert metrics["annotator"] == "scripted"
    assert "simulated teacher" in page
    assert "The labels are simulated, not a language model" in page
    assert read_metadata(project.output("collect"))["backend"] == "gymnasium"
    said = [text for text in read_vocabulary(project.output("caption")).texts if text.startswith("You try to")]
    assert said


def test_segments_of_three_steps(tmp_path: Path) -> None:
    changes = {"env.id": "FrozenLake-v1", "caption.segment_length": 3, "caption.with_action": True}
    project = Project.create(tmp_path / "p", {**SMALL, **changes})
    project.run()
    metrics, _ = report(project)
    segments = read_segments(project.output("caption"))
    assert segments.members.shape[1] == 3
    assert metrics["annotation"]["distinct_segments"] == len(segments)
    vocabulary = read_vocabulary(project.output("caption"))
    assert RewardModel.load(project.output("train-reward") / "preference").texts == tuple(vocabulary.texts), (
        "captions are paid, not segments"
    )


def test_a_reward_of_observations_from_a_mixture_of_policies(tmp_path: Path, finished: Project) -> None:
    agent = str(finished.output("train-agents") / "preference" / "seed-0")
    policies = [
        {"kind": "random"},
        {"kind": "checkpoint", "path": agent, "share": 2.0},
        {"kind": "epsilon_random", "path": agent, "epsilon": 0.3},
    ]
    project = Project.create(
        tmp_path / "p", {**SMALL, "collect.policies": policies, "rewards.preference.input": "observation"}
    )
    project.run()
    report(project)
    assert RewardModel.load(project.output("train-reward") / "preference").input == "observation"
    recorded = read_metadata(project.output("collect"))["policies"]
    assert [policy["n_envs"] for policy in recorded] == [1, 2, 1]
    assert [bool(policy["digest"]) for policy in recorded] == [False, True, True]
