"""Several judges, and several label sets of each, in one run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from laurel.data.preferences import labels_of, read_pairs
from laurel.errors import ParamsError
from laurel.params import parse_params
from laurel.params.annotation import MAIN
from laurel.rewards.model import RewardModel
from laurel.rewards.stored import StoredRewards
from laurel.stages.evaluate import _side_by_side
from minimal_params import MINIMAL
from tiny_project import Project, lasting_content, read_json

JUDGED = {
    "annotate.n_pairs": 60,
    "annotate.feedback_seeds": 2,
    "annotate.judges": {"teacher": {"annotator": "scripted"}},
    "rewards.taught": {"kind": "preference", "judge": "teacher", "ensemble": 2, "hidden": [4], "max_epochs": 2},
    "rewards.preference.max_epochs": 2,
    "arms": {"preference": None, "taught": {"reward": "taught"}, "shuffled_labels": None},
}


def test_judges_and_label_sets_side_by_side(rewarded: Project, tmp_path: Path) -> None:
    project = rewarded.copy(tmp_path / "p", JUDGED)
    project.run("annotate", "train-reward")
    labels = project.output("annotate")
    judge = {name: read_json(labels_of(labels, name, 0) / "quality.json")["annotator"] for name in (MAIN, "teacher")}
    assert judge[MAIN] != judge["teacher"], "each judge judges by its own settings"
    drawn = {number: read_pairs(labels_of(labels, MAIN, number)) for number in (0, 1)}
    assert not np.array_equal(drawn[0].first, drawn[1].first), "each set has pairs of its own"
    assert [one["annotator"].split(":")[0] for one in _side_by_side(labels)["label_sets_by"]] == [
        "teacher",
        "teacher, label set 1",
        "main",
        "main, label set 1",
    ]
    assert StoredRewards.read(project.output("train-reward")).sets == {
        "preference": 2,
        "shuffled_labels": 1,
        "taught": 2,
    }
    of = {
        (name, number): RewardModel.load(project.output("train-reward") / name / place).rewards
        for name in ("preference", "taught")
        for number, place in enumerate((".", "set-1"))
    }
    assert len({rewards.tobytes() for rewards in of.values()}) == 4, "a model a judge and a label set"


def test_one_label_set_is_what_it_was(rewarded: Project, tmp_path: Path) -> None:
    project = rewarded.copy(tmp_path / "p", {"annotate.feedback_seeds": 2})
    project.run("annotate")
    once, twice = (lasting_content(one.output("annotate")) for one in (rewarded, project))
    assert {name: content for name, content in twice.items() if name in once and name != "manifest.json"} == {
        name: content for name, content in once.items() if name != "manifest.json"
    }


@pytest.mark.parametrize(
    ("annotate", "rewards", "why"),
    [
        ({}, {"preference": {"judge": "teacher"}}, r"rewards\.preference\.judge teacher, which is not a judge"),
        ({"judges": {"main": {}}}, {}, "has a judge .main., but names are"),
        ({"judges": {"a": {"budget": {"max_calls": 1}}}}, {}, r"judges\.a\.budget, which all judges share"),
        ({"judges": {"a": {"annotator": "openai"}}}, {}, "has a judge that cannot be: .*needs `openai.model`"),
    ],
)
def test_what_cannot_be_judged_is_refused(annotate: object, rewards: object, why: str) -> None:
    with pytest.raises(ParamsError, match=why):
        parse_params({**MINIMAL, "annotate": annotate, "rewards": rewards}, "params.yaml")
