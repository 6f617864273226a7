"""What a language model takes to be trained as an actor, from its config alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from laurel.llm.actor_size import described, gigabytes_of, operations_of, size_of
from laurel.params import parse_params
from laurel.params.language_actor import LanguageActorParams
from laurel.pipelines.estimate import estimate
from laurel.stages.proposal_rounds import branches_beside
from minimal_params import MINIMAL
from tiny_project import REPOSITORY

MISTRAL = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
}


def test_a_config_alone_says_what_training_takes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MISTRAL))
    size = size_of(str(tmp_path), 16)
    assert (size.weights, size.trained) == (7_241_732_096, 41_943_040)
    settings = {"model": str(tmp_path), "dtype": "bfloat16", "batch_size": 4}
    lora = LanguageActorParams.model_validate(settings)
    assert 14.5 < gigabytes_of(size, lora) < 30
    whole = LanguageActorParams.model_validate({**settings, "lora_rank": 0})
    assert gigabytes_of(size_of(str(tmp_path), 0), whole) > 7.24 * 8
    assert "are trained (all of them)" in described("lm", whole, 1000)

    arms = {
        name: {"reward": None, "agent": {"algorithm": algorithm, algorithm: settings}}
        for name, algorithm in (("lm", "language_model"), ("lik", "glam"))
    }
    content = {**MINIMAL, "env": {"id": "FrozenLake-v1"}, "arms": arms, "agent": {"steps": 10**6, "seeds": [0]}}
    params = parse_params(content, "params.yaml")
    spec = yaml.safe_load((REPOSITORY / "pipelines/pipeline.yaml").read_text())
    shown = estimate(spec, params, branches_beside(params, "", 0), region=None)
    for name in arms:
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{name}: ")]
        for part in ("7.24 billion", "42 million", "LoRA of rank 16", "a GPU such as", "hours per agent: "):
            assert part in line


def test_losses_of_groups_keep_the_model_that_sampled(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MISTRAL))
    size = size_of(str(tmp_path), 0)
    copy = size.trained * 2 / 1e9

    def gigabytes(**changed: object) -> float:
        settings = {"model": str(tmp_path), "dtype": "bfloat16", "batch_size": 8, "lora_rank": 0, **changed}
        return gigabytes_of(size, LanguageActorParams.model_validate(settings))

    assert gigabytes(loss="rloo") == gigabytes(loss="grpo")
    assert gigabytes(loss="grpo", beta=0.1) == pytest.approx(gigabytes(loss="grpo") + copy)
    assert gigabytes(loss="grpo", batch_size=16) == pytest.approx(gigabytes(loss="simpo") + copy), "half the answers"


def test_hours_are_by_the_speed_of_each_gpu(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MISTRAL))
    settings = LanguageActorParams.model_validate({"model": str(tmp_path), "dtype": "bfloat16", "batch_size": 4})
    steps = 10**6
    line = described("lm", settings, steps)
    assert "at most" not in line
    operations = operations_of(size_of(str(tmp_path), 16), settings, steps)
    for kind, peak in (("A100", 312e12), ("H100", 989e12)):
        assert f"{kind} {operations / (0.3 * peak) / 3600:,.1f} at {0.3 * peak / 1e12:.0f} TFLOP/s" in line
    slow = described("lm", settings.model_copy(update={"dtype": "float32"}), steps)
    assert "L4" not in slow, "32 bits do not fit"
    assert "A100_80GB" in slow
    assert "at 6 TFLOP/s" in slow


def test_a_config_with_a_wrong_type_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**MISTRAL, "hidden_size": "wide"}))
    assert "is unknown here (Validation error" in described("lm", LanguageActorParams(model=str(tmp_path)), 1000)


@pytest.mark.parametrize("model", ["owner/nowhere", "tiny"])
def test_models_without_a_local_config_are_reported(model: str) -> None:
    line = described("lm", LanguageActorParams(model=model), 1000)
    assert ("is unknown here" in line) == (model != "tiny")
