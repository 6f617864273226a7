"""Encodes sections of params as KFP parameters, and decodes them: KFP's structs drop null and turn integers into
floats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

NULL = "null"
"""Encodes null. A text with this value, or one that already starts with ~, gets a leading ~."""


def encoded(value: Any) -> Any:
    """Return JSON values that survive KFP unchanged."""
    match value:
        case None:
            return NULL
        case str() if re.fullmatch(f"~*{NULL}", value):
            return f"~{value}"
        case Mapping():
            return {key: encoded(item) for key, item in value.items()}
        case list() | tuple():
            return [encoded(item) for item in value]
        case _:
            return value


def decoded(value: Any) -> Any:
    """Return what was encoded, with 5 for 5.0: a float parameter takes either."""
    match value:
        case str() if re.fullmatch(f"~*{NULL}", value):
            return None if value == NULL else value[1:]
        case float() if value.is_integer():
            return int(value)
        case Mapping():
            return {key: decoded(item) for key, item in value.items()}
        case list() | tuple():
            return [decoded(item) for item in value]
        case _:
            return value
