"""Rewards beyond the learned one: arms as data, methods of other packages, sums, and runs that ask no annotator."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laurel.errors import ParamsError
from laurel.params import parse_params
from laurel.params.rewards import METHODS
from minimal_params import MINIMAL
from tiny_project import UNTRACKED, Project, read_json

ELSEWHERE = '''
import numpy as np
from laurel.params.rewards import RewardParams
from laurel.rewards.base import UNPAID
from laurel.rewards.method import Method


class Settings(RewardParams):
    bonus: float = 1.0


class Paid:
    threshold, unseen = 0.0, 0

    def __init__(self, bonus):
        self.bonus, self.returns = bonus, None

    def begin(self, n_envs):
        self.returns = np.zeros(n_envs)


class PerStep(Paid):
    """Pays the action 2: forward."""

    def pay(self, steps):
        action = steps.transitions.action.reshape(steps.valid.shape)
        return np.where(steps.valid & (action == 2), self.bonus, UNPAID).astype(np.float32)


class PerEpisode(Paid):
    """Pays the last step of an episode by whether the task's own rules ended it, or its being cut."""

    def pay(self, steps):
        paid = np.where(steps.terminated, self.bonus, np.where(steps.truncated, -self.bonus, UNPAID))
        return np.where(steps.valid, paid, UNPAID).astype(np.float32)


class Forward(Method):
    kind = "forward"
    summary = "a bonus for each step ahead"
    Settings = Settings

    def load(self, settings, place, adapter, quantile):
        return PerStep(settings.bonus)


class Arrived(Method):
    kind = "arrived"
    summary = "a bonus at the end of an episode"
    Settings = Settings

    def load(self, settings, place, adapter, quantile):
        return PerEpisode(settings.bonus)
'''


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with two methods, for the processes that are started, too."""
    site = tmp_path / "site"
    (site / "elsewhere-1.0.dist-info").mkdir(parents=True)
    (site / "elsewhere_rewards.py").write_text(ELSEWHERE)
    (site / "elsewhere-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    entries = "[laurel.rewards]\nforward = elsewhere_rewards:Forward\narrived = elsewhere_rewards:Arrived\n"
    (site / "elsewhere-1.0.dist-info" / "entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    yield
    sys.modules.pop("elsewhere_rewards", None)


def rewards_paid(project: Project, arm: str) -> list[float | None]:
    import pyarrow.parquet as pq

    curve = pq.read_table(project.output("train-agents") / arm / "seed-0" / "curve.parquet").to_pylist()
    return [row["share_paid"] for row in curve]


def test_methods_of_another_package_are_trained_on_and_evaluated(elsewhere: None, tmp_path: Path) -> None:
    """One pays per step, one at the end of episodes; neither asks an annotator nor fits anything."""
    assert {"forward", "arrived"} <= {*METHODS.kinds()}
    arms = {
        "extrinsic": None,
        "forward": {"reward": "forward"},
        "arrived": {"reward": "twice"},
        "both": {"reward": {"forward": 0.5, "twice": 1.0}, "shaping": {"beta": 0}},
    }
    project = Project.create(
        tmp_path / "p",
        {
            **UNTRACKED,
            "arms": arms,
            "rewards": {"twice": {"kind": "arrived", "bonus": 2.0}},
            "agent.seeds": [0],
            "agent.steps": 512,
        },
    )
    project.run()
    assert read_json(project.output("annotate") / "manifest.json")["counts"] == {"pairs": 0}
    assert {*read_json(project.output("train-reward") / "rewards.json")} == {"forward", "twice"}
    forward, arrived, both = (rewards_paid(project, arm) for arm in ("forward", "arrived", "both"))
    assert all(share and 0.1 < share < 0.6 for share in forward)
    assert max(share or 0 for share in arrived) < 0.1
    assert all(share and share >= 0.1 for share in both)
    metrics = read_json(project.output("evaluate") / "metrics.json")
    assert [metrics["arms"][arm]["role"] for arm in arms] == ["baseline", "method", "method", "method"]
    assert metrics["arms"]["forward"]["label"] == "a bonus for each step ahead"
    assert (project.output("evaluate") / "report.html").exists()


def test_arms_of_one_reward_with_other_shaping_and_other_algorithms(finished: Project, tmp_path: Path) -> None:
    arms = {
        "preference": None,
        "no_counts": {"reward": "preference", "shaping": {"beta": 0.0}},
        "dqn": {"reward": "preference", "agent": {"algorithm": "dqn", "dqn": {"hidden": [8], "learning_starts": 64}}},
    }
    changes = {**UNTRACKED, "arms": arms, "agent.seeds": [0], "agent.steps": 512}
    project = finished.copy(tmp_path / "p", changes, without=["train-agents", "evaluate"])
    project.run("train-agents", "evaluate")
    places = {arm: project.output("train-agents") / arm / "seed-0" for arm in arms}
    weights = {arm: (place / "model.safetensors").read_bytes() for arm, place in places.items()}
    assert len({*weights.values()}) == 3
    metrics = read_json(project.output("evaluate") / "metrics.json")
    assert metrics["algorithm"] == "ppo, dqn"
    assert metrics["arms"]["no_counts"]["label"] == "the learned reward; shaping.beta 0.0"
    alone = finished.copy(tmp_path / "q", changes, without=["train-agents", "evaluate"])
    alone.change({"arms": ["preference"]})
    alone.run("train-agents")
    assert (alone.output("train-agents") / "preference/seed-0/model.safetensors").read_bytes() == weights["preference"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            {"agent": {**MINIMAL["agent"], "arms": "full"}},
            "agent.arms is now arms, at the top level",
        ),
        ({"reward": {"ensemble": 3}}, "reward is now rewards.preference: move it there."),
        ({"arms": {"x": {"shaping": {}}}}, "arms.x.reward is missing; it has no default."),
        ({"arms": {"x": {"reward": "preference", "shaping": {"bta": 1}}}}, "arms[0].shaping.bta is unknown."),
        (
            {"arms": {"x": {"reward": None, "agent": {"steps": 3}}}},
            'names "steps", but an arm may have of its own:',
        ),
        ({"arms": {"a/b": {"reward": None}}}, 'is "a/b", but must be made of letters, digits, _ and -.'),
        (
            {"rewards": {"preference": {"ensembel": 3}}},
            'preference.ensembel is unknown. Did you mean "ensemble"?',
        ),
        ({"rewards": {"mine": {}}}, 'rewards.mine.kind: there is no reward method "mine".'),
    ],
)
def test_what_is_wrong_with_an_arm_or_reward_is_said(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParamsError) as refused:
        parse_params({**MINIMAL, **content}, "params.yaml")
    assert sentence in str(refused.value)
