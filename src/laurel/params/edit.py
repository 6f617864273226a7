"""Change values in the text of a params file, keeping comments, order and layout."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import yaml
from pydantic import JsonValue

from laurel.errors import ParamsError


def edited(text: str, changes: Mapping[str, JsonValue]) -> str:
    """Return the text of a params file with some values changed.

    Args:
        text: of the file; a mapping of mappings.
        changes: dotted name -> value. Keys that the file lacks are added to their section.

    Raises:
        ParamsError: the text is not a mapping of mappings, or part of a name is not a section.
    """
    for name, value in changes.items():
        text = _changed(text, name.split("."), value)
    return text


def _changed(text: str, path: Sequence[str], value: JsonValue) -> str:
    place: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    for depth, part in enumerate(path):
        if not isinstance(place, yaml.MappingNode):
            raise ParamsError(f"params: {'.'.join(path[:depth])} is not a section, so {'.'.join(path)} cannot be set.")
        entry = next(((key, node) for key, node in place.value if key.value == part), None)
        if entry is None:
            return _added(text, place, path[depth:], value)
        key, place = entry
    assert place is not None
    end = _end(place)
    if _is_block(place) or place.start_mark.index == end:  # it begins on its own line, or is still empty
        return f"{text[: key.end_mark.index]}: {_written(value)}{text[max(end, key.end_mark.index + 1) :]}"
    return text[: place.start_mark.index] + _in_place(text[place.start_mark.index : end], _written(value), text[end:])


def _in_place(old: str, new: str, rest: str) -> str:
    """Replace one value by another; a comment after it keeps its column if there is room."""
    gap = re.match(r" +(?=#)", rest)
    if gap is None:
        return new + rest
    return new + " " * max(2, len(old) + gap.end() - len(new)) + rest[gap.end() :]


def _added(text: str, section: yaml.MappingNode, path: Sequence[str], value: JsonValue) -> str:
    """Add a key, and the sections around it, as the first entry of a section."""
    written = _written(value)
    for part in reversed(path[1:]):
        written = f"{{{part}: {written}}}"
    entry = f"{path[0]}: {written}"
    start = section.start_mark.index
    if section.flow_style:
        rest = "" if not section.value else ", "
        return f"{text[: start + 1]}{entry}{rest}{text[start + 1 :]}"
    return f"{text[:start]}{entry}\n{' ' * section.start_mark.column}{text[start:]}"


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and not node.flow_style


def _end(node: yaml.Node) -> int:
    """Return where a value ends; PyYAML has a block end after the comments and blank lines that follow it."""
    if _is_block(node):
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return node.end_mark.index


def _written(value: JsonValue) -> str:
    """Write a value as YAML in one line."""
    return yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=math.inf).strip()[1:-1]
