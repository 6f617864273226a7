"""A search space: which training parameters are varied, and over which values.

Parameters are named as in params.yaml, with dots: shaping.intrinsic, agent.ppo.learning_rate.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationError, model_validator

from laurel.errors import ParamsError
from laurel.params import Params, parse_params
from laurel.params.fields import Section, distinct
from laurel.params.file import read_mapping, read_value, sentences, shown
from laurel.params.plugged import PluggedSection
from laurel.params.training import AgentParams

OPTION = "--search"
SECTIONS = ("shaping", "agent")
"""The sections that the training of agents reads; other sections belong to earlier stages."""
FIXED = ("agent.seeds", "agent.steps", "agent.checkpoint_steps", "agent.workers", "agent.device")
"""Training budget and placement; not searchable."""
DEFAULT = ("shaping.intrinsic=log:0.01:1", "shaping.quantile=0:0.9", "shaping.beta=0:4")
OPEN = "agent.sb3.kwargs"
"""A free-form mapping: arguments of the algorithm's class, whose types are not known here."""
FORMS = "NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A,B,C"
_UNSET = object()
DIGITS = 4
"""Significant digits of the numbers that are tried."""
EDGE = 0.05
"""Share of a range that counts as near its end."""


class Searched(Section):
    """The values of one parameter: a range, or a list of choices."""

    low: float | None = None
    high: float | None = None
    log: bool = False
    """Sample log-uniformly."""
    choices: Annotated[tuple[JsonValue, ...], Field(strict=False), AfterValidator(distinct)] | None = None

    @model_validator(mode="after")
    def _range_or_choices(self) -> Searched:
        if self.choices is not None:
            if self.low is not None or self.high is not None or self.log:
                raise ValueError("has choices and a range: leave out one of them.")
            return self
        if self.low is None or self.high is None:
            raise ValueError("needs low and high, or choices.")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"is a range from {self.low:g} to {self.high:g}, but low must be less than high.")
        if self.log and self.low <= 0:
            raise ValueError(f"is a range from {self.low:g} with log, but a logarithm needs low above 0.")
        return self

    @property
    def text(self) -> str:
        """As it is written after NAME=."""
        if self.choices is not None:
            return ",".join(map(json.dumps, self.choices))
        return f"{'log:' if self.log else ''}{self.low}:{self.high}"

    def rounded(self, value: JsonValue) -> JsonValue:
        """Round a value of a range to few digits, keeping it inside the range."""
        if isinstance(value, bool) or not isinstance(value, float) or self.low is None or self.high is None:
            return value
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def holds(self, value: JsonValue) -> bool:
        """Whether a value is in the range or among the choices."""
        if self.choices is not None:
            return value in self.choices
        assert self.low is not None
        assert self.high is not None
        return isinstance(value, int | float) and self.low <= value <= self.high

    def near_end(self, value: JsonValue) -> bool:
        """Whether a value lies within EDGE of an end of the range, on its scale; False for choices."""
        if not isinstance(value, int | float) or self.low is None or self.high is None:
            return False
        low, high, position = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return not EDGE < (position - low) / (high - low) < 1 - EDGE


Space = Mapping[str, Searched]
"""Name of a parameter -> its values, in the order of sampling."""


@dataclass(frozen=True)
class Sweep:
    """A sweep's search space, seeds and steps."""

    arm: str
    seeds: tuple[int, ...]
    steps: int
    """Environment steps of a training run, at least."""
    space: Space

    @staticmethod
    def read(content: Mapping[str, Any]) -> Sweep:
        """Parse the output of `write`."""
        space = {name: Searched.model_validate(values) for name, values in content["space"].items()}
        return Sweep(content["arm"], tuple(content["seeds"]), content["steps"], space)

    def write(self) -> dict[str, Any]:
        """Return it as JSON values."""
        space = {name: searched.model_dump(mode="json") for name, searched in self.space.items()}
        return {"arm": self.arm, "seeds": list(self.seeds), "steps": self.steps, "space": space}


def read_space(entries: Sequence[str], params: Params, arm: str) -> dict[str, Searched]:
    """Read a search space and check that all its values are allowed.

    Args:
        entries: NAME=VALUES in one of FORMS, or the name of a YAML file (name: {low, high, log} or {choices}).
            Without entries, the default space is used.
        arm: the arm that is trained; parameters that do not affect it are refused.

    Raises:
        ParamsError: a parameter is unknown or not one of the agents' training, or a value is not allowed.
    """
    space: dict[str, Searched] = {}
    for entry in entries or _default(params, arm):
        name, sign, values = entry.partition("=")
        ranges = {name: _read_entry(name, values)} if sign else _read_file(Path(entry))
        for key, searched in ranges.items():
            if key in space:
                raise ParamsError(f"{OPTION}: {key} is given twice; leave out one of them.")
            space[key] = searched
    for name, searched in space.items():
        _check(name, searched, params, arm)
    return space


def with_values(params: Params, values: Mapping[str, JsonValue]) -> Params:
    """Return the parameters with some values changed.

    Raises:
        ParamsError: a name or value is not allowed.
    """
    content = params.dump()
    for name, value in values.items():
        *sections, last = name.split(".")
        place: Any = content
        for depth, section in enumerate(sections):
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ParamsError(
                    f"{OPTION}: {'.'.join(sections[: depth + 1])} is not a section, so {name} is unknown."
                )
        place[last] = value
    return parse_params(content, OPTION)


def value_of(params: Params, name: str) -> JsonValue:
    """Return a parameter by its name; None if a free-form mapping lacks it."""
    value: Any = params.dump()
    for part in name.split("."):
        if part not in value:
            return None
        value = value[part]
    return value


def is_whole(name: str, searched: Searched) -> bool:
    """Whether a parameter that is searched over a range is an integer.

    The type of another library's argument is unknown: it counts as an integer if both ends of the range are.
    """
    if name.startswith(f"{OPEN}."):
        return all(isinstance(end, float) and end.is_integer() for end in (searched.low, searched.high))
    return _annotation(name) is int


def _annotation(name: str) -> Any:
    """Return the type of a parameter; JsonValue for an entry of a free-form mapping such as agent.sb3.kwargs."""
    cls: Any = Params
    for part in name.split("."):
        if not _is_section(cls):
            return JsonValue
        if part not in cls.model_fields and issubclass(cls, PluggedSection) and part in cls.plugins.kinds():
            cls = cls.section_class(part)
        else:
            cls = cls.model_fields[part].annotation
    return cls


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _default(params: Params, arm: str) -> list[str]:
    agent = agent_of(params, arm)
    fields, searched = type(agent.settings).model_fields, agent.settings.searched
    entries = [f"agent.{agent.section}.{entry}" for entry in searched if re.split("[.=]", entry)[0] in fields]
    return [*(entry for entry in DEFAULT if _matters(entry, params, arm)), *entries]


def _matters(name: str, params: Params, arm: str) -> bool:
    """Whether a parameter affects an arm: not if the arm overrides it, or has no reward to shape."""
    (arm_params,) = params.narrowed(arm).arms
    if name == "shaping.extrinsic":
        return arm_params.extrinsic is None
    section, *path = name.split(".")
    held: Any = {"shaping": arm_params.shaping, "agent": arm_params.agent}.get(section, {})
    for part in path:
        held = held.get(part, _UNSET) if isinstance(held, Mapping) else _UNSET
    return held is _UNSET and (section != "shaping" or bool(arm_params.reward))


def agent_of(params: Params, arm: str) -> AgentParams:
    """Return the section `agent` with the settings of an arm."""
    return params.narrowed(arm).arms[0].agent_of(params.agent)


def _read_entry(name: str, text: str) -> Searched:
    source = f"{OPTION} {name}"
    if ":" in text:
        *log, low, high = text.split(":")
        try:
            ends = {"low": float(low), "high": float(high), "log": log == ["log"]}
        except ValueError:
            ends = {}
        if not ends or log not in ([], ["log"]):
            raise ParamsError(f"{source} is {shown(text)}, but must have one of the forms {FORMS}.")
        return _searched(ends, name, OPTION)
    choices = read_value(f"[{text}]", source)
    if not isinstance(choices, list) or any(isinstance(choice, dict) for choice in choices):
        raise ParamsError(f"{source} is {shown(text)}, but must have one of the forms {FORMS}.")
    return _searched({"choices": choices}, name, OPTION)


def _read_file(path: Path) -> dict[str, Searched]:
    start = f"A space is a YAML file, or has one of the forms {FORMS}."
    return {str(name): _searched(values, str(name), str(path)) for name, values in read_mapping(path, start).items()}


def _searched(values: Any, name: str, source: str) -> Searched:
    try:
        return Searched.model_validate(values)
    except ValidationError as error:
        raise ParamsError(sentences(source, Searched, error, prefix=(name,))) from None  # one key


def _check(name: str, searched: Searched, params: Params, arm: str) -> None:
    parts = name.split(".")
    if parts[0] in Params.model_fields and parts[0] not in SECTIONS:
        raise ParamsError(
            f"{OPTION}: {name} is not used in training agents and cannot be searched. Searchable parameters are those "
            f"of {' and '.join(SECTIONS)}. For others: dvc exp run --queue -S {name}=..."
        )
    if name in FIXED:
        raise ParamsError(f"{OPTION}: {name} sets the training budget or placement, and cannot be searched.")
    for value in examples(name, searched):
        with_values(params, {name: value})
    annotation = _annotation(name)
    if _is_section(annotation):
        raise ParamsError(f"{OPTION}: {name} is a section; name one of its parameters.")
    if searched.choices is None and annotation not in (int, float, JsonValue):
        raise ParamsError(f"{OPTION}: {name} is not a number, so it needs choices: {name}=A,B,C")
    agent = agent_of(params, arm)
    sb3 = agent.engine != "laurel"
    if parts[0] == "agent" and (parts[1] != agent.section if len(parts) > 2 else sb3 and parts[1] == "algorithm"):
        setting = f"agent.engine is {agent.engine}" if sb3 else f"agent.algorithm is {agent.algorithm}"
        raise ParamsError(f"{OPTION}: {setting}, which does not read {name}.")
    if not _matters(name, params, arm):
        raise ParamsError(f"{OPTION}: the arm {arm} does not depend on {name}.")


def examples(name: str, searched: Searched) -> list[JsonValue]:
    """Return the choices, or the ends of a range."""
    if searched.choices is not None:
        return list(searched.choices)
    try:
        is_integer = is_whole(name, searched)
    except KeyError:
        is_integer = False  # unknown: the check of the value reports it
    ends = [end for end in (searched.low, searched.high) if end is not None]
    return [int(end) if is_integer and end.is_integer() else end for end in ends]
