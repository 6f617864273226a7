"""Read a params file's YAML, and explain in a sentence what is wrong with a key or value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError
from yaml.constructor import ConstructorError

from laurel.console import printable
from laurel.errors import ParamsError, closest
from laurel.textfile import UnfitFileError, read_text

MOST_BYTES = 200_000
"""Maximum size of a file; the repository's params.yaml has less than a tenth of it."""
MOST_CHARACTERS = 4_000_000
"""Maximum number of characters of a document, with aliases expanded."""
MOST_SENTENCES = 10

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""Names of arms and rewards, which are also names of folders."""

_ALLOWED = {
    "int_type": "a whole number",
    "float_type": "a number such as 0.1 or 3e-4",
    "bool_type": "true or false",
    "string_type": "text",
    "path_type": "a path",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "invalid-json-value": "made of null, true, false, numbers, text, lists and mappings",
    "recursion_loop": "free of self-references",
}
"""Pydantic's kinds of error -> what is allowed, in YAML's words."""


def read_mapping(path: Path, start: str = "laurel init creates a project with a params file.") -> dict[str, Any]:
    """Read the mapping that a YAML file holds.

    Args:
        start: for the error where the file does not exist: how to make one.

    Raises:
        ParamsError: the file is missing, not YAML, holds no mapping, or sets a key twice.
    """
    try:
        content = parse_yaml(read_text(path, MOST_BYTES))
    except FileNotFoundError:
        raise ParamsError(f"{path}: no such file. {start}") from None
    except UnfitFileError as error:
        raise ParamsError(f"{path}: {error}") from None
    except OSError as error:
        raise ParamsError(f"{path}: cannot be read ({error.strerror}).") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ParamsError(f"{path}: not valid YAML{place}: {error.problem or error.context}.") from None
    except yaml.YAMLError as error:
        raise ParamsError(f"{path}: not valid YAML: {' '.join(str(error).split())}.") from None
    except RecursionError:
        raise ParamsError(f"{path}: not valid YAML: it is nested too deeply.") from None
    if content is None:
        raise ParamsError(f"{path}: it is empty. {start}")
    if not isinstance(content, dict):
        raise ParamsError(f"{path}: expected keys with values, found {shown(content)}. {start}")
    return content


def parse_yaml(text: str) -> Any:
    """Return the content of a text's single document.

    Raises:
        yaml.YAMLError: it is not plain YAML, or grows to more than MOST_CHARACTERS through aliases.
        RecursionError: it is nested too deeply.
    """
    return yaml.load(text, _Loader)  # noqa: S506 - it is a SafeLoader


def parse_documents(text: str) -> list[Any]:
    """Return the content of each document of a text; errors as in `parse_yaml`."""
    return list(yaml.load_all(text, _Loader))


def read_value(text: str, source: str) -> Any:
    """Read a value as written in a params file.

    Raises:
        ParamsError: it is not YAML.
    """
    try:
        return parse_yaml(text)
    except (yaml.YAMLError, RecursionError):
        raise ParamsError(f"{source}: {shown(text)} is not valid YAML.") from None


def sentences(source: str, model: type[BaseModel], error: ValidationError, prefix: tuple[str, ...] = ()) -> str:
    """Turn pydantic's errors into lines, the first few of many.

    Args:
        source: the file, or what to name instead.
        model: the model that was validated.
        error: raised by the validation.
        prefix: put before each location.
    """
    items = error.errors(include_url=False)
    lines = [sentence(source, model, {**item, "loc": (*prefix, *item["loc"])}) for item in items[:MOST_SENTENCES]]
    n_left = len(items) - len(lines)
    return "\n".join([*lines, *([f"{source}: and {n_left:,} more errors."] if n_left else [])])


def sentence(source: str, model: type[BaseModel], item: Any) -> str:
    """Turn one of pydantic's errors into a sentence: file, key, value, what is allowed.

    Args:
        source: the file, or what to name instead.
        model: the model that was validated.
        item: one of `ValidationError.errors()`. A validator's own message follows the key, with its full stop.
    """
    loc, value = item["loc"], item["input"]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")
    if item["type"] == "invalid_key" or loc[-1:] == ("[key]",):
        section = ".".join(map(str, loc[: -2 if loc[-1] == "[key]" else -1]))
        place = f" in {section}" if section else ""
        return printable(f"{source}: key {shown(value)}{place} must be text; write it in quotes.")
    return printable(f"{source}: {key or 'it'} {_problem(model, item)}")


def refusal(loc: tuple[str | int, ...], says: str, value: Any) -> ValidationError:
    """Return an error for a validator to raise, about a location below the validator's field."""
    problem = PydanticCustomError("value_error", "{error}", {"error": says})
    return ValidationError.from_exception_data("params", [InitErrorDetails(type=problem, loc=loc, input=value)])


def refusals(model: type[BaseModel], error: ValidationError, loc: tuple[str | int, ...]) -> ValidationError:
    """Return the errors of a model that a validator selected, relocated below the validator's field."""
    return ValidationError.from_exception_data(
        "params",
        [
            InitErrorDetails(
                type=PydanticCustomError("value_error", "{error}", {"error": _problem(model, item)}),
                loc=(*loc, *item["loc"]),
                input=item["input"],
            )
            for item in error.errors(include_url=False)
        ],
    )


def _problem(model: type[BaseModel], item: Any) -> str:
    """Return the part of the message after the key."""
    loc, value = item["loc"], item["input"]
    match item["type"]:
        case "extra_forbidden":
            siblings = _fields_at(model, loc[:-1])
            return f"is unknown.{closest(str(loc[-1]), siblings)} Allowed here: {', '.join(siblings)}."
        case "missing":
            return "is missing; it has no default."
        case "value_error":
            return str(item["ctx"]["error"])
        case "literal_error":
            allowed = item["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            hint = closest(value, allowed) if isinstance(value, str) else ""
            return f"is {shown(value)}, but must be one of {', '.join(allowed)}.{hint}"
        case "model_type":
            return f"is {shown(value)}, but must be a mapping with keys {', '.join(_fields_at(model, loc))}."
        case "int_type" if isinstance(value, float) and value.is_integer():
            return f"is {shown(value)}, but must be a whole number: write {value:.0f}."
        case kind:
            return f"is {shown(value)}, but must be {_ALLOWED.get(kind, item['msg'].removeprefix('Input should be '))}."


class _Loader(yaml.SafeLoader):
    """Plain YAML that refuses duplicate keys and reads 3e-4 as a number, like YAML 1.2."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise ConstructorError(problem=f"{shown(key.value)} is set twice", problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node

    def compose_document(self) -> yaml.Node | None:
        node = super().compose_document()
        if node is not None:
            _weigh(node, {})
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError):  # PyYAML's own, for 2024-13-01, !!bool x and !!timestamp x
            problem = f"{shown(node.value)} cannot be read as {node.tag.rpartition(':')[2]}"
            raise ConstructorError(problem=problem, problem_mark=node.start_mark) from None


def _weigh(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of characters of a node with its aliases expanded.

    Raises:
        ConstructorError: too many, or one of them is a NUL, which no path and no name may hold, or half a character.
    """
    if id(node) not in known:
        known[id(node)] = 1  # a self-reference, which validation refuses
        if isinstance(node, yaml.ScalarNode):
            if "\0" in node.value:
                raise ConstructorError(problem="a text holds a NUL", problem_mark=node.start_mark)
            if not node.value.isascii():
                node.value = _joined(node)
            known[id(node)] = 1 + len(node.value)
        else:
            parts = (part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,)))
            known[id(node)] = 1 + sum(_weigh(part, known) for part in parts)
    if known[id(node)] > MOST_CHARACTERS:
        raise ConstructorError(
            problem=f"its aliases repeat more than {MOST_CHARACTERS:,} characters", problem_mark=node.start_mark
        )
    return known[id(node)]


def _joined(node: yaml.ScalarNode) -> str:
    r"""Return a text with the pairs of escapes joined as which JSON writes an emoji, such as "\ud83d\ude00"."""
    try:
        return str(node.value).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        problem = "a text holds half of a surrogate pair, which is no character"
        raise ConstructorError(problem=problem, problem_mark=node.start_mark) from None


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def _fields_at(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    """Return the field names of the section at a location below a model."""
    for part in path:
        if isinstance(part, str) and part not in model.model_fields:
            continue  # a key of a mapping with values of this model
        annotation = model.model_fields[part].annotation if isinstance(part, str) else model
        args = [arg for arg in (annotation, *get_args(annotation)) if isinstance(arg, type)]
        model = next((arg for arg in args if issubclass(arg, BaseModel)), model)
    return list(model.model_fields)


def shown(value: Any) -> str:
    """Write a value as YAML, shortened if it is long."""
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case str():
            text = f'"{value}"'
        case list() | dict():
            text = f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
        case int() if value.bit_length() > 1000:
            text = "a number of hundreds of digits"
        case _:
            text = str(value)
    return printable(text if len(text) <= 80 else f"{text[:77]}...")
