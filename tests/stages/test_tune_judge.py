"""laurel annotate tune: an adapter with its quality and card, from environments that are not those of the test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient
from tiny_llama import make_tiny_llama

from laurel.cli.app import main
from laurel.data.gold import GoldFile, Task
from laurel.data.own_preferences import import_rows
from laurel.data.preference_rows import PreferenceRows
from laurel.data.preferences import Preferences
from laurel.envs import adapter_for
from laurel.feedback.annotator import Judgement
from laurel.feedback.known_answers import Subject
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.feedback.ranked_texts import OWN
from laurel.llm.judge_tuning import Labels
from laurel.llm.local_chat import load_local
from laurel.params import EnvParams, Params, load_params
from laurel.params.edit import edited
from laurel.params.judges import HuggingFaceParams
from laurel.stages import tune_judge
from minimal_params import MINIMAL


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A params file that names a tiny model, in the current folder."""
    make_tiny_llama(tmp_path / "tiny", max_position_embeddings=4096)
    huggingface = {"model": str(tmp_path / "tiny"), "device": "cpu"}
    annotate = {"annotator": "huggingface", "huggingface": huggingface, "language_model": {"prompt": "concise"}}
    params = {**MINIMAL, "annotate": annotate, "tracking": {"enabled": True}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_judge_is_tuned_tested_and_registered(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gold = GoldFile(project / "gold.jsonl", Task("CartPole-v1", adapter_for(EnvParams(id="CartPole-v1")).goal or ""))
    gold.add("The pole leans far to the left.", "The pole stands upright.", "second", "uniform")
    short = ["--pairs", "4", "--test-pairs", "5", "--passes", "1", "--rank", "2"]
    command = [
        "annotate",
        "tune",
        "--env",
        "FrozenLake-v1",
        "CartPole-v1",
        "--held-out",
        "MiniGrid-DoorKey-5x5-v0",
        *short,
    ]
    assert main([*command, "--gold", str(gold.path)]) == 0
    card = capfd.readouterr().out
    judge = project / "judges/tuned"
    assert card == (judge / "README.md").read_text()
    quality = json.loads((judge / "quality.json").read_text())
    assert quality["learned"] == {"FrozenLake-v1": 4, "CartPole-v1": 4 + 1}
    assert "Learned from 9 pairs" in card
    found = quality["held_out"]["MiniGrid-DoorKey-5x5-v0"]
    assert found["accuracy"]["of"] == 5
    assert found["position_bias"]["of"] == 10, "questions: both orders of five pairs"
    assert quality["mean_accuracy"] == found["accuracy"]["value"]
    files = {file.name for file in judge.iterdir() if file.name not in ("manifest.json", ".run.json")}
    assert files == {"README.md", "adapter_config.json", "adapter_model.safetensors", "quality.json"}
    weights = (judge / "adapter_model.safetensors").read_bytes()
    model = str(project / "tiny")
    load_local(HuggingFaceParams(model=model, adapter=str(judge), device="cpu"))
    (version,) = MlflowClient(f"sqlite:///{project / 'mlflow.db'}").search_model_versions("name = 'judge'")
    assert version.tags["labels"] == "environments' hand-written progress and a person's labels"
    assert "Rank 2, 1 pass, learning rate" in card
    run = MlflowClient(f"sqlite:///{project / 'mlflow.db'}").get_run(version.run_id).data
    assert run.params["model"] == model
    assert (run.params["tuning.rank"], run.params["environments"], run.params["pairs"]) == (
        "2",
        "['FrozenLake-v1', 'CartPole-v1']",
        "4",
    )
    assert not {name for name in run.params if name.startswith("annotate.")}, "no annotator is asked"
    assert "annotator" not in run.tags
    assert [run.metrics["loss"]] == pytest.approx(quality["loss"])
    assert main([*command, "--gold", str(gold.path)]) == 0
    assert (judge / "adapter_model.safetensors").read_bytes() == weights, "same seed, same bytes"


def _subjects(params: Params, labels: Labels) -> tuple[list[Subject], list[Subject]]:
    adapter = adapter_for(params.env)
    return tune_judge._subjects(params, labels, adapter, tune_judge._goal(params, labels, adapter))


def _asked(subject: Subject) -> str:
    """Return the words of a subject's first question."""
    question = PairQuestion(load_prompt("concise"), subject.adapter, subject.goal)
    return question.messages(subject.questions[0], 0)[-1].content


def test_labels_that_are_not_used_are_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = GoldFile(project / "gold.jsonl", Task("CartPole-v1", adapter_for(EnvParams(id="CartPole-v1")).goal or ""))
    for number in range(3):
        gold.add(f"The pole leans {number} degrees.", "The pole stands upright.", "second", "uniform")
    params = load_params(project / "params.yaml")
    for pairs, told in ((2, "CartPole-v1: learns from 2 of 3 labels; --pairs 3 takes all.\n"), (3, "")):
        labels = Labels((), (), pairs=pairs, gold=gold.path)
        (subject,), _ = _subjects(params, labels)
        assert len(subject.pairs) == pairs
        assert capsys.readouterr().err == told


def test_labels_are_learned_with_the_goal_that_they_were_given_for(project: Path) -> None:
    lean, plain = "The pole leans as far as it can.", project / "params.yaml"
    (project / "lean.yaml").write_text(edited(plain.read_text(), {"annotate.language_model.goal": lean}))
    leaning, upright = load_params(project / "lean.yaml"), load_params(plain)
    gold = GoldFile(project / "gold.jsonl", Task("CartPole-v1", lean))
    gold.add("The pole leans far to the left.", "The pole stands upright.", "first", "uniform")
    (subject,), _ = _subjects(leaning, Labels((), (), gold=gold.path))
    assert f"Goal: {lean}" in _asked(subject)
    rows = PreferenceRows([""], ["The pole leans."], ["It stands."], Preferences.of([Judgement("ok", 0.8)], "x"))
    import_rows(rows, project / "data")
    imported = Labels((), (), preferences=project / "data/preferences", captions=project / "data/captions")
    for params, goal in ((leaning, lean), (upright, adapter_for(upright.env).goal)):
        (subject,), _ = _subjects(params, imported)
        assert f"Goal: {goal}" in _asked(subject)
    manifest = project / "data/preferences/manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "params": leaning.dump("annotate")}))
    (subject,), _ = _subjects(upright, imported)
    assert f"Goal: {lean}" in _asked(subject), "another judge's own, whatever the params say now"


def test_another_environments_labels_are_not_learned(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = PreferenceRows([""], ["You are close."], ["You fall."], Preferences.of([Judgement("ok", 0.8)], "x"))
    import_rows(rows, project / "data")
    manifest = project / "data/captions/manifest.json"
    lake = {"env": EnvParams(id="FrozenLake-v1").model_dump(mode="json")}
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "params": lake}))
    assert main(["annotate", "tune", "--preferences", "data/preferences"]) == 2
    said = capsys.readouterr().err
    assert 'data/captions: was made with env.id "FrozenLake-v1", but it is "CartPole-v1"' in said


def test_an_environment_in_the_words_of_a_known_one_is_not_held_out(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Maps of FrozenLake, and rooms of DoorKey, differ in size alone: the questions of one are those of the other."""
    command = ["annotate", "tune", "--passes", "1", "--rank", "2", "--pairs", "4", "--test-pairs", "4"]
    assert main([*command, "--env", "MiniGrid-DoorKey-5x5-v0", "--held-out", "MiniGrid-DoorKey-8x8-v0"]) == 2
    said = capsys.readouterr().err
    assert "MiniGrid-DoorKey-8x8-v0 is held out, but asks the questions of MiniGrid-DoorKey-5x5-v0" in said
    assert not (project / "judges/tuned").exists()


def test_a_judge_learns_from_ranked_texts(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts = {
        "description": "A kite.",
        "goal": "It climbs.",
        "worst_to_best": ["It lies.", "It is {low|down}.", "It is up."],
    }
    (project / "ranked.yaml").write_text(yaml.safe_dump({"tasks": [texts, {**texts, "description": "A balloon."}]}))
    short = ["--ranked-pairs", "2", "--passes", "1", "--rank", "2"]
    assert main(["annotate", "tune", "--ranked-texts", "ranked.yaml", *short]) == 0
    card = capfd.readouterr().out
    assert "Learned from 4 pairs, by texts ranked by hand: 2 tasks in words (4)." in card
    quality = json.loads((project / "judges/tuned/quality.json").read_text())
    assert quality["ranked_texts"] == {"tasks": 2, "pairs": 4}
    (project / "ranked.yaml").write_text("tasks: []")
    assert main(["annotate", "tune", "--ranked-texts", "ranked.yaml", *short]) == 2
    assert "ranked.yaml: tasks" in capfd.readouterr().err


def test_ranked_texts_without_a_file_are_laurels_own(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Labels] = []
    monkeypatch.setattr(tune_judge, "run", lambda _, labels, *__, **___: asked.append(labels) or "")
    assert main(["annotate", "tune", "--ranked-texts", "--ranked-pairs", "2"]) == 0
    assert [(labels.ranked, labels.ranked_pairs) for labels in asked] == [(OWN, 2)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "There is no training data: name environments (--env)"),
        (["--env", "Taxi-v3", "CartPole-v1", "Taxi-v3"], "--env: names Taxi-v3 twice; name each environment once."),
        (["--gold", "mine.jsonl"], "mine.jsonl: no such file. Label some pairs with `laurel annotate review`"),
        (["--ranked-texts", "mine.yaml"], "mine.yaml: no such file. Write one with `tasks`."),
        (["--env", "Taxi-v3", "--held-out", "Taxi-v3"], "Taxi-v3 is both trained on and held out"),
        (
            ["--env", "Taxi-v3", "--prompt", "motif"],
            "prompt motif: it asks for free text, but tuning needs fixed choices.",
        ),
    ],
)
def test_models_that_cannot_be_tuned(
    project: Path, arguments: list[str], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["annotate", "tune", *arguments]) == 2
    assert sentence in capfd.readouterr().err


def test_a_judge_that_learned_nothing_is_reported(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["annotate", "tune", "--env", "FrozenLake-v1", "--pairs", "6", "--rank", "2"]
    assert main([*command, "--learning-rate", "0.000001", "--output", "idle"]) == 0
    card = capfd.readouterr().out
    assert "**It learned nothing**" in card
    assert "Set a lower --learning-rate, or" in card
    assert main([*command, "--learning-rate", "0.02", "--passes", "12", "--output", "able"]) == 0
    card = capfd.readouterr().out
    assert "It learned nothing" not in card
    assert "guessing has 0.69" in card
