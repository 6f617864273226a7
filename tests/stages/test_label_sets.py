"""Several judges, and several label sets of each, in one run."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import laurel
from laurel.data.manifest import checked_manifest
from laurel.data.own_preferences import read_own
from laurel.data.preferences import labels_of, read_pairs
from laurel.errors import DataError, ParamsError
from laurel.params import parse_params
from laurel.params.annotation import MAIN, AnnotateParams
from laurel.rewards.model import RewardModel
from laurel.rewards.stored import StoredRewards
from laurel.stages.hub import ROWS, export_hub
from laurel.stages.label_sets import LabelSet, label_sets, titled
from minimal_params import MINIMAL
from tiny_project import Project, lasting_content, read_json

TINY_MODEL = {"kind": "preference", "ensemble": 2, "hidden": [4], "max_epochs": 2}
JUDGED = {
    "annotate.n_pairs": 60,
    "annotate.feedback_seeds": 2,
    "annotate.judges": {"teacher": {"annotator": "scripted"}, "wrong": {"scripted": {"error_rate": 0.3}}},
    "annotate.annotator": "scripted",
    "rewards": {
        "taught": {**TINY_MODEL, "judge": "teacher"},
        "misled": {**TINY_MODEL, "judge": "wrong"},
        "shuffled_labels": {"of": "taught"},
    },
    "arms": {"taught": {"reward": "taught"}, "misled": {"reward": "misled"}, "shuffled_labels": None},
    "agent.seeds": [1],
    "agent.steps": 128,
    "agent.workers": 1,
    "evaluate.animation_steps": 0,
    "evaluate.episodes": 1,
    "evaluate.bootstrap": 10,
}


def test_judges_and_label_sets_from_pairs_to_the_report(rewarded: Project, tmp_path: Path) -> None:
    project = rewarded.copy(tmp_path / "p", {**JUDGED, "agent.seeds": [1, 2]})
    project.run("annotate", "train-reward", "train-agents", "evaluate")
    labels, rewards = project.output("annotate"), project.output("train-reward")
    sets = [(judge, number) for judge in ("teacher", "wrong") for number in (0, 1)]
    names: dict[str, str] = {
        judge: read_json(labels_of(labels, judge, 0) / "quality.json")["annotator"] for judge, _ in sets
    }
    assert names["teacher"] != names["wrong"], "each judge judges by its own settings"
    drawn = [read_pairs(labels_of(labels, "teacher", number)).first.tolist() for number in (0, 1)]
    assert drawn[0] != drawn[1], "each set has pairs of its own"
    for judge, number in sets:
        assert set(laurel.read(labels_of(labels, judge, number))["annotator"]) == {names[judge]}
    assert StoredRewards.read(rewards).sets == {"misled": 2, "shuffled_labels": 1, "taught": 2}
    models = [RewardModel.load(rewards / name / place) for name in ("misled", "taught") for place in (".", "set-1")]
    assert len({model.rewards.tobytes() for model in models}) == 4, "a model a judge and a label set"

    metrics = read_json(project.output("evaluate") / "metrics.json")
    assert metrics["annotation"]["pairs"] > 0, "of the first judge that was asked; the main judge was not"
    assert [(entry["judge"], entry["label_set"]) for entry in metrics["annotation"]["label_sets_by"]] == sets
    by_reward = metrics["reward"]["by"]
    assert [(entry["judge"], entry["label_set"]) for entry in by_reward] == [*sets[2:], *sets[:2]]
    assert metrics["reward"]["of"] == "taught", "of the first method of the arms"
    assert metrics["reward"]["heldout_loss"] == by_reward[3]["heldout_loss"] != by_reward[2]["heldout_loss"], "seed 1"
    report = (project.output("evaluate") / "report.html").read_text()
    for text in (
        "the learned reward (judge teacher)",
        "Learned rewards, over all of their label sets",
        "<p>The reward of label set 1: ",
        "All are scored by the reward of label set 1, also those of agents that were paid another one.",
        "These are figures of the reward of label set 1, unless they name another.",
    ):
        assert text in report
    assert report.count("Judge teacher: The labels are simulated") == 1, "not once for each label set"

    places = {"preferences": labels, "captions": project.output("caption"), "reports": project.output("evaluate")}
    for exported, (name, judge, number) in {".": ("misled", "wrong", 0), "set-1": ("taught", "teacher", 1)}.items():
        hub = tmp_path / "hub" / name
        export_hub(rewards / name / exported, **places, output=hub)
        rows, reward_labels = (
            pq.read_table(hub / "dataset" / ROWS),
            read_own(labels_of(labels, judge, number), places["captions"]),
        )
        assert len(rows) == len(reward_labels.decided()), "the pairs that this reward learned from"
        card = (hub / "model" / "README.md").read_text()
        assert names[judge] in card
        assert (
            f"agents with seed s were paid that of label set s modulo 2; this is the one of label set {number}." in card
        )
        assert not list((hub / "model").glob("set-*")), "rewards of other label sets are not its own"

    (labels_of(labels, "wrong", 1) / "quality.json").write_text("{}")
    for place in (labels, labels_of(labels, "wrong", 1)):
        with pytest.raises(DataError, match=r"is not what|holds other files"):
            checked_manifest(place)
    checked_manifest(labels_of(labels, "wrong", 0))


def test_the_best_agents_reward_in_the_registry_is_that_of_its_label_set(
    rewarded: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"annotate.feedback_seeds": 2, "arms": ["preference"], "rewards": {"preference": TINY_MODEL}}
    project = rewarded.copy(tmp_path / "p", {**JUDGED, **changes, "annotate.judges": {}, "tracking.enabled": True})
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    project.run("annotate", "train-reward", "train-agents", "evaluate")
    texts = ["You fall.", "You reach the goal.", "You bump into a wall."]
    first, second = (
        laurel.load_reward(project.output("train-reward") / "preference" / place).score(texts).tolist()
        for place in (".", "set-1")
    )
    assert first != second
    assert laurel.load_reward("models:/reward.FrozenLake-v1@best").score(texts).tolist() == second, "of seed 1"
    assert laurel.load_reward("models:/reward.FrozenLake-v1@preference").score(texts).tolist() == first


def test_label_sets_begin_with_the_main_judge_and_notes_are_not_repeated() -> None:
    annotate = AnnotateParams(feedback_seeds=2)
    sets = label_sets(annotate, ("another", MAIN))
    assert sets == [LabelSet(MAIN, 0), LabelSet(MAIN, 1), LabelSet("another", 0), LabelSet("another", 1)]
    notes = dict(zip(sets, (["alike"], ["alike"], ["alike"], ["alike", "odd"]), strict=True))
    assert list(titled(notes, annotate)) == ["Judge another: alike", "Judge another, label set 1: odd"]


def test_a_single_label_set_gives_the_same_output_as_before(rewarded: Project, tmp_path: Path) -> None:
    project = rewarded.copy(tmp_path / "p", {"annotate.feedback_seeds": 2})
    project.run("annotate")
    once, twice = (lasting_content(run.output("annotate")) for run in (rewarded, project))
    assert {name: content for name, content in twice.items() if name in once and name != "manifest.json"} == {
        name: content for name, content in once.items() if name != "manifest.json"
    }


@pytest.mark.parametrize(
    ("annotate", "rewards", "why"),
    [
        ({}, {"preference": {"judge": "teacher"}}, r"rewards\.preference\.judge teacher, which is not a judge"),
        ({"judges": {"main": {}}}, {}, "has a judge .main., but names are"),
        ({"judges": {"a": {"budget": {"max_calls": 1}}}}, {}, r"judges\.a\.budget, which all judges share"),
        ({"judges": {"a": {"annotator": "openai"}}}, {}, "has an invalid judge: .*needs `openai.model`"),
    ],
)
def test_what_cannot_be_judged_is_refused(annotate: object, rewards: object, why: str) -> None:
    with pytest.raises(ParamsError, match=why):
        parse_params({**MINIMAL, "annotate": annotate, "rewards": rewards}, "params.yaml")
