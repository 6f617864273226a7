"""The adapter that comes along: whole, small, for a known base and prompt, and tested on what it did not learn from."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from laurel.cli.app import main
from laurel.data.manifest import checked_manifest
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.prompt import FOLDER
from laurel.feedback.questions.pair import load_prompt
from laurel.llm import smollm2
from laurel.llm.adapter import PACKAGED, QUALITY, WEIGHTS, adapter_place
from laurel.llm.judge_tuning import Labels, Tuning
from laurel.llm.local_tuning import settings_of
from laurel.params.annotation import AnnotateParams, LanguageModelParams
from laurel.params.judges import HuggingFaceParams
from laurel.stages import tune_judge
from laurel.stages.tune_judge import failed_to_learn

REPOSITORY = Path(__file__).resolve().parents[2]


def test_it_is_what_was_tuned() -> None:
    place = PACKAGED / "laurel"
    checked_manifest(place, "tune-judge")
    assert adapter_place("laurel") == str(place)
    assert adapter_place("./laurel") == "./laurel", "a directory of the user's"
    assert (place / WEIGHTS).stat().st_size < 5e6
    quality = json.loads((place / QUALITY).read_text())
    config = json.loads((place / "adapter_config.json").read_text())
    assert quality["base"]["model"] == config["base_model_name_or_path"] == smollm2.NAME
    assert quality["prompt"]["digest"] == load_prompt(quality["prompt"]["name"]).digest, "run `make judge` again"
    assert not quality["learned"].keys() & quality["held_out"].keys()
    assert not failed_to_learn(quality["loss"])
    assert quality["mean_accuracy"] > 0.9


def test_asking_it_with_another_prompt_is_noted(tmp_path: Path) -> None:
    def notes(prompt: str | Path, adapter: str | None = "laurel") -> Sequence[str]:
        named = HuggingFaceParams(model=smollm2.NAME, adapter=adapter)
        language_model = LanguageModelParams(prompt=str(prompt))
        return kind_of(
            AnnotateParams(annotator="huggingface", huggingface=named, language_model=language_model)
        ).notes()

    assert not notes("concise")
    assert not notes("answer_only", adapter=None)
    (note,) = notes("answer_only")
    assert note.startswith('The adapter "laurel" was tuned with the prompt concise, but is asked with answer_only, so ')
    file = tmp_path / "concise.jinja"
    packaged = FOLDER / "pair" / "concise.jinja"
    file.write_text(packaged.read_text())
    assert not notes(file), "the same prompt"
    file.write_text(packaged.read_text().replace("better", "nicer"))
    (note,) = notes(file)
    assert "is asked with another version of it" in note


def test_it_is_what_make_judge_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Labels, Path, Tuning]] = []

    def run(params: Any, labels: Labels, output: Path, *, tuning: Tuning, **_: Any) -> str:
        made.append((labels, output, tuning))
        return ""

    monkeypatch.setattr(tune_judge, "run", run)
    monkeypatch.chdir(REPOSITORY)
    dry = ["make", "--no-print-directory", "--dry-run", "judge"]  # a make inside `make test` names its directories
    recipe = subprocess.run(dry, capture_output=True, text=True, check=True).stdout
    _, _, command = recipe.replace("\\\n", " ").rpartition("laurel annotate tune")
    main(["annotate", "tune", *shlex.split(command)])
    ((labels, output, tuning),) = made
    assert output.resolve() == (PACKAGED / "laurel").resolve()
    recorded = json.loads((PACKAGED / "laurel" / "manifest.json").read_text())
    assert recorded["params"]["tuning"] == settings_of(tuning), "run `make judge` again"
    for name in ("environments", "held_out"):
        assert recorded["params"][name] == list(getattr(labels, name))
    for name in ("pairs", "ranked_pairs", "test_pairs"):
        assert recorded["params"][name] == getattr(labels, name)
    assert "ranked_texts" in recorded["inputs"]
    assert labels.ranked is not None
