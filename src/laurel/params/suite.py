"""A suite: the parameters of many runs, as the product of axes such as environments and judges.

    title: Which judges help
    params: {agent: {steps: 250000}}                  # shared by all runs; axes override them
    axes:
      environment:
        DoorKey-8x8: {env: {id: MiniGrid-DoorKey-8x8-v0}}
        UnlockPickup: {env: {id: MiniGrid-UnlockPickup-v0}, agent: {steps: 500000}}
      judge:
        MiniLM: {}
        progress: {annotate: {annotator: scripted}}

Runs nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, ValidationError

from laurel.errors import ParamsError
from laurel.params import Params, parse_params
from laurel.params.fields import Section, merged
from laurel.params.file import NAME, read_mapping, sentences

Sections = dict[str, JsonValue]


def _named(levels: dict[str, Any]) -> dict[str, Any]:
    if not levels:
        raise ValueError("is empty, but must have at least one entry.")
    unfit = next((name for name in levels if not NAME.fullmatch(name)), None)
    if unfit is not None:
        raise ValueError(
            f'has the name "{unfit}": a name consists of letters, digits, - and _, and is also used for a folder.'
        )
    return levels


class SuiteParams(Section):
    """The content of a suite's file."""

    title: str
    about: str = ""
    """The question that the suite answers; a paragraph of its page."""
    params: Sections = Field(default_factory=dict)
    """Parameters of every run, as in params.yaml."""
    axes: Annotated[dict[str, Annotated[dict[str, Sections], AfterValidator(_named)]], AfterValidator(_named)]
    """Axis -> level -> the parameters that differ at that level. Each combination of levels is a run; later axes
    override earlier ones."""


@dataclass(frozen=True)
class SuiteRun:
    """One run of a suite: a level of each axis, and the resulting parameters."""

    levels: Mapping[str, str]
    content: Mapping[str, Any]
    """As in params.yaml."""
    params: Params

    @property
    def name(self) -> str:
        return ".".join(self.levels.values())


@dataclass(frozen=True)
class Suite:
    name: str
    title: str
    about: str
    runs: tuple[SuiteRun, ...]


def load_suite(file: Path) -> Suite:
    """Read a suite and check the parameters of all its runs.

    Raises:
        ParamsError: the file is missing or no suite, or the parameters of a run are not allowed.
    """
    try:
        suite = SuiteParams.model_validate(read_mapping(file, "Start from one of benchmarks/suites in the repository."))
    except ValidationError as error:
        raise ParamsError(sentences(str(file), SuiteParams, error)) from None
    runs = []
    for combination in itertools.product(*(levels.items() for levels in suite.axes.values())):
        levels = dict(zip(suite.axes, (name for name, _ in combination), strict=True))
        content: Any = suite.params
        for _, changes in combination:
            content = merged(content, changes)
        runs.append(SuiteRun(levels, content, parse_params(content, f"{file}: {'.'.join(levels.values())}")))
    return Suite(file.stem, suite.title, suite.about, tuple(runs))
