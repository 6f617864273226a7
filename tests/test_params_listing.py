"""`laurel params`: every parameter with what is allowed, its default and a sentence."""

from __future__ import annotations

import pytest

from laurel.cli.app import main
from laurel.errors import ParamsError
from laurel.params import parse_params
from laurel.params.listing import listed
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
        ("agent.ppo.hidden", "list of whole number from 1, default [64, 64]"),
        ("shaping.quantile", "number from 0, below 1, default 0.5"),
        ("env.kwargs", "mapping, default {}"),
        ("env.backend", "auto | envpool | gymnasium, default auto"),
        ("env.max_episode_steps", "whole number from 1 or null, default null"),
        ("collect.policies[].path", "path or null, default null"),
        ("annotate.openai.model", "text, required"),
        ("pipeline.resources.NAME.memory", "text or null, default null"),
    ],
)
def test_types_ranges_and_defaults(name: str, line: str) -> None:
    (parameter,) = listed(name)
    assert str(parameter).splitlines()[0] == f"{name}: {line}"


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
