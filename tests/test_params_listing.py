"""`laurel params`: every parameter with what is allowed, its default and a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from laurel.cli.app import main
from laurel.errors import ParamsError
from laurel.params import parse_params
from laurel.params.listing import listed
from laurel.params.rewards import METHODS, settings_of
from laurel.tracking.tracker import flatten
from minimal_params import MINIMAL, keys_of


def test_every_parameter_is_listed_with_a_sentence() -> None:
    found = {parameter.name: parameter for parameter in listed()}
    sections = {name.rpartition(".")[0] for name in found}
    known = keys_of(parse_params(MINIMAL, "test"))
    assert [key for key in known if key not in found and key not in sections] == []
    assert [name for name, parameter in found.items() if not parameter.sentence or '" "' in parameter.sentence] == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("agent.ppo.gamma", "number from 0 to 1, default 0.99"),
        ("agent.steps", "whole number from 1, required"),
        ("agent.ppo.hidden", "list of whole numbers from 1, default [64, 64]"),
        ("shaping.quantile", "number from 0, below 1, default 0.5"),
        ("env.kwargs", "mapping, default {}"),
        ("env.backend", "auto | envpool | gymnasium, default auto"),
        ("env.max_episode_steps", "whole number from 1 or null, default null"),
        ("collect.policies[].path", "path or null, default null"),
        ("annotate.openai.model", "text, required"),
        ("pipeline.resources.NAME.memory", "text or null, default null"),
        ("agent.grpo.stop", r'text, default "\"\n"'),
        ("rewards.outcome.examples[].why", 'text, default ""'),
    ],
)
def test_types_ranges_and_defaults(name: str, line: str) -> None:
    (parameter,) = listed(name)
    assert str(parameter).splitlines()[0] == f"{name}: {line}"


def test_a_reward_has_the_defaults_that_are_listed() -> None:
    """Those of trials of functions were listed as of the section shaping, whose values they never had."""
    listed_as = {parameter.name: parameter.default for parameter in listed("rewards")}
    for kind in METHODS.builtin():
        given = {"path": "other/data/reward"} if kind == "stored" else {}
        for name, value in flatten(settings_of(kind, given).model_dump(mode="json"), f"rewards.{kind}.").items():
            if name.rpartition(".")[2] not in (*given, "kind"):
                assert listed_as[name] == f"default {value if isinstance(value, str) else json.dumps(value)}", name


def test_a_trial_keeps_its_defaults_where_only_some_are_set() -> None:
    """One key of its shaping gave all others the defaults of the section shaping: a tenth of the weight, and counts."""
    settings: Any = settings_of("code", {"trial": {"shaping": {"form": "potential"}}})
    trial = settings.trial
    assert (trial.shaping.quantile, trial.shaping.beta, trial.shaping.intrinsic) == (0.0, 0.0, 1.0)


def test_the_command_lists_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["params", "shaping"]) == 0
    said = capsys.readouterr().out
    assert [line.partition(":")[0] for line in said.splitlines() if not line.startswith(" ")] == [
        "shaping.quantile",
        "shaping.beta",
        "shaping.intrinsic",
        "shaping.extrinsic",
        "shaping.form",
        "shaping.gamma",
    ]
    with pytest.raises(ParamsError, match=r'no section or parameter shapng\. Did you mean "shaping"\?'):
        listed("shapng")
