"""Every parameter with its type, range, default and description, from the models: the output of `laurel params`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from laurel.errors import ParamsError, closest
from laurel.params import Params
from laurel.params.annotation import AnnotateParams
from laurel.params.fields import as_text
from laurel.params.rewards import METHODS
from laurel.params.training import AgentParams

WIDTH = 100
MEANING: Mapping[str, str] = {
    "n_envs": "Parallel environments.",
    "batch_size": "Minibatch size.",
    "learning_rate": "Learning rate of the optimiser (Adam).",
    "weight_decay": "Weight decay of the optimiser.",
    "max_epochs": "Maximum number of epochs.",
    "n_epochs": "Epochs over each rollout.",
    "gamma": "Discount factor of future rewards.",
    "gae_lambda": "Lambda of generalised advantage estimation: 0 is one-step TD, 1 Monte Carlo.",
    "clip_range": "Epsilon of the clipped objective: the probability ratio is clipped to 1 - epsilon and 1 + epsilon.",
    "entropy_coef": "Weight of the entropy bonus in the loss.",
    "value_coef": "Weight of the value loss.",
    "max_grad_norm": "Norm to which gradients are clipped.",
    "hidden": "Widths of the hidden layers.",
    "temperature": "Sampling temperature; 0: greedy decoding.",
    **dict.fromkeys(
        ("embedding", "scripted", "language_model", "openai", "huggingface"),
        "As in the section of annotate with this name.",
    ),
    "top_p": "Top-p of nucleus sampling.",
}
"""Default description of a name, for sections that do not describe it."""


@dataclass(frozen=True)
class Parameter:
    """A parameter as the user sees it."""

    name: str
    """Dotted; entries of a list are written `[]`, those of a mapping `NAME`."""
    allowed: str
    default: str
    """As in the file; "required" if there is none."""
    sentence: str

    def __str__(self) -> str:
        indent = " " * 4
        lines = textwrap.wrap(self.sentence, WIDTH, initial_indent=indent, subsequent_indent=indent)
        return "\n".join([f"{self.name}: {self.allowed}, {self.default}", *lines])


def listed(section: str = "") -> list[Parameter]:
    """List the parameters of a section such as `agent.ppo`; of all sections where none is named.

    Raises:
        ParamsError: there is no such section or parameter.
    """
    schema = Params.model_json_schema()
    fields = list(_below(schema, schema["$defs"], ""))
    for kind in METHODS.kinds():  # each has its own settings, under the names of its rewards
        section_schema = METHODS.load(kind, "rewards").Settings.model_json_schema()
        fields += _below(section_schema, section_schema.get("$defs", {}), f"rewards.{kind}.")
    for place in (AnnotateParams, AgentParams):
        for kind in place.plugins.kinds():
            if kind not in place.model_fields:
                section_schema = place.section_class(kind).model_json_schema()
                fields += _below(section_schema, section_schema.get("$defs", {}), f"{place.key}.{kind}.")
    if not section:
        return fields
    chosen = [
        field for field in fields if field.name == section or field.name.startswith((f"{section}.", f"{section}["))
    ]
    if not chosen:
        names = {field.name for field in fields} | {field.name.rpartition(".")[0] for field in fields}
        raise ParamsError(f"There is no section or parameter {section}.{closest(section, sorted(names - {''}))}")
    return chosen


def _below(model: Mapping[str, Any], models: Mapping[str, Any], prefix: str) -> Iterator[Parameter]:
    for name, field in model["properties"].items():
        if (section := _model(field, models)) is not None:
            yield from _below(section, models, f"{prefix}{name}.")
            continue
        default = f"default {as_text(field['default'])}" if "default" in field else "required"
        if name not in model.get("required", ()) and "default" not in field:
            default = "default {}"  # a mapping that is empty by default
        if name == "kind" and prefix.startswith("rewards.") and default == "required":
            default = f"default {prefix[:-1].rpartition('.')[2]}"  # the reward's name
        sentence = field.get("description") or MEANING.get(name, "")
        yield Parameter(f"{prefix}{name}", _allowed(field, models), default, " ".join(sentence.split()))
        for part in (field, *field.get("anyOf", ())):
            for key, mark in (("items", "[]."), ("additionalProperties", ".NAME.")):
                entry = part.get(key)
                if isinstance(entry, dict) and (inner := _model(entry, models)) is not None:
                    yield from _below(inner, models, f"{prefix}{name}{mark}")
            if part is not field and (inner := _model(part, models)) is not None:
                yield from _below(inner, models, f"{prefix}{name}.")


def _model(field: Mapping[str, Any], models: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the section of a field; None for a plain value."""
    definition = models.get(str(field.get("$ref", "")).rpartition("/")[2], {})
    return definition if "properties" in definition else None


def _allowed(field: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    """Describe the allowed values."""
    if "anyOf" in field:
        return " or ".join(_allowed(part, models) for part in field["anyOf"])
    if _model(field, models) is not None:
        return "a section"
    if "enum" in field:
        return " | ".join(map(str, field["enum"]))
    match field.get("type"):
        case "integer":
            return f"whole number{_range(field)}"
        case "number":
            return f"number{_range(field)}"
        case "boolean":
            return "true or false"
        case "array":
            item = _allowed(field.get("items", {}), models).replace("a section", "sections")
            return f"list of {item.replace('number', 'numbers').replace('text', 'texts')}"
        case "object":
            return "mapping"
        case "null":
            return "null"
        case _:
            return "path" if field.get("format") == "path" else str(field.get("const", "text"))


def _range(field: Mapping[str, Any]) -> str:
    low, above = field.get("minimum"), field.get("exclusiveMinimum")
    high, below = field.get("maximum"), field.get("exclusiveMaximum")
    limits = f" from {low:g}" if low is not None else f" above {above:g}" if above is not None else ""
    if high is not None:
        return f"{limits} to {high:g}"
    return f"{limits}, below {below:g}" if below is not None and below < 2**31 else limits
