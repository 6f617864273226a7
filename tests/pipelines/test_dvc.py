"""The pipeline as `dvc repro` runs it."""

import csv
import json
import re
from pathlib import Path
from typing import Any

from tiny_project import UNTRACKED, Project, read_json

STAGES = ["collect", "caption", "annotate", "train-reward", "train-agents", "evaluate"]


def ran(log: str) -> list[str]:
    found = re.findall(r"^Running stage '([a-z-]+)'", log, flags=re.MULTILINE)
    return [name for name in found if name != "judges"]  # it says for DVC what the others know by themselves


def test_a_first_repro_runs_every_stage_once(finished: Project) -> None:
    log = (finished.path.parent / "finished.log").read_text()
    assert ran(log) == STAGES


def test_a_second_repro_runs_no_stage(finished: Project, tmp_path: Path) -> None:
    project = finished.copy(tmp_path / "p")  # DVC writes where it looks, and others copy `finished` meanwhile
    assert ran(project.dvc("repro")) == []
    assert "up to date" in project.dvc("status")


def test_a_change_reruns_only_the_affected_stages(finished: Project, tmp_path: Path) -> None:
    project = finished.copy(tmp_path / "p", UNTRACKED)
    assert would_run(project) == [], "where runs are logged changes no result"
    params = project.path / "params.yaml"
    before = params.read_text()
    for key, value, first in (
        ("seed", 1, "collect"),
        ("caption.segment_length", 2, "caption"),
        ("annotate.n_pairs", 100, "annotate"),
        ("arms", ["extrinsic", "preference", "oracle"], "train-reward"),
        ("rewards.preference.hidden", [8], "train-reward"),
        ("shaping.beta", 1.0, "train-agents"),
        ("evaluate.episodes", 5, "evaluate"),
    ):
        project.change({key: value})
        rerun = would_run(project)
        params.write_text(before)
        assert rerun[0] == first
        assert set(rerun) <= set(STAGES[STAGES.index(first) :])
        if key == "shaping.beta":
            assert rerun == ["train-agents", "evaluate"]

    project.change({"evaluate.episodes": 5, "evaluate.animation_steps": 0})
    assert ran(project.dvc("repro")) == ["evaluate"]
    assert {arm["episodes"] for arm in read_json(project.path / "reports/metrics.json")["arms"].values()} == {10}
    assert would_run(project) == []


def test_arms_of_other_kinds(finished: Project, tmp_path: Path) -> None:
    arms: dict[str, Any] = {
        "score": {"reward": "score"},
        "rnd": {"reward": "rnd", "shaping": {"beta": 0}},
        "sum": {"reward": {"score": 0.5, "length": 1.0}},
    }
    rewards = {"score": {"size": 3, "n_groups": 6}}
    small = {"agent.seeds": [0], "agent.steps": 256, "evaluate.animation_steps": 0}
    project = finished.copy(
        tmp_path / "p", {**UNTRACKED, **small, "annotate.annotator": "scripted", "arms": arms, "rewards": rewards}
    )
    assert ran(project.dvc("repro")) == STAGES[2:]
    assert set(read_json(project.path / "reports/metrics.json")["order"]) == set(arms)
    networks = {file.read_bytes() for file in project.path.glob("data/agents/*/seed-0/model.safetensors")}
    assert len(networks) == len(arms), "each was paid otherwise"
    rewards["score"]["size"] = 4
    project.change({"rewards": rewards})
    assert would_run(project) == STAGES[3:], "pairs are labelled alike"


def would_run(project: Project) -> list[str]:
    return ran(project.dvc("repro", "--dry"))


def test_metrics_and_plots(finished: Project, tmp_path: Path) -> None:
    project = finished.copy(tmp_path / "p")
    shown = project.dvc("metrics", "show", "--md")
    assert "arms.preference.return.iqm" in shown
    assert "reward.heldout_agreement" in shown
    project.dvc("plots", "show")
    page = (project.path / "dvc_plots/index.html").read_text()
    specs = [json.loads(spec) for spec in re.findall(r"var spec = (\{.*?\});\n", page)]
    assert [spec["title"]["text"] for spec in specs] == ["Return while training", "Success while training"]
    with (project.path / "reports/curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2048 // 128
    for spec in specs:
        plotted = [{key: row[key] for key in rows[0]} for row in spec["data"]["values"]]
        assert plotted == rows
        assert "DVC_METRIC" not in json.dumps(spec)
