"""The adapter that comes along: whole, small, for a known base and prompt, and tested on what it did not learn from."""

from __future__ import annotations

import json

from laurel.data.manifest import checked_manifest
from laurel.feedback.questions.pair import load_prompt
from laurel.llm import smollm2
from laurel.llm.local_model import ADAPTER, ADAPTERS, QUALITY, adapter_place
from laurel.stages.tune_judge import failed_to_learn


def test_it_is_what_was_tuned() -> None:
    place = ADAPTERS / "laurel"
    checked_manifest(place, "tune-judge")
    assert adapter_place("laurel") == str(place)
    assert adapter_place("./laurel") == "./laurel", "a directory of the user's"
    assert (place / ADAPTER).stat().st_size < 5e6
    quality = json.loads((place / QUALITY).read_text())
    config = json.loads((place / "adapter_config.json").read_text())
    assert quality["base"]["model"] == config["base_model_name_or_path"] == smollm2.NAME
    assert quality["prompt"]["digest"] == load_prompt(quality["prompt"]["name"]).digest, "run `make judge` again"
    assert not quality["learned"].keys() & quality["held_out"].keys()
    assert not failed_to_learn(quality["loss"])
    assert quality["mean_accuracy"] > 0.9
