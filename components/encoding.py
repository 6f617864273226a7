"""Encodes sections of params as KFP parameters, and decodes them: KFP's structs drop null, turn integers into floats,
which rounds those beyond EXACT, and refuse infinite numbers and NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

NULL = "null"
"""Encodes null. A text with this value, or one that already starts with ~, gets a leading ~."""
NUMBERS = {".inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
"""Encode these numbers, as YAML writes them; texts with these values are as those of NULL."""
EXACT = 2**53
"""Up to here floats hold every integer. Larger ones are encoded as INTEGER and their digits."""
INTEGER = "integer "
FREE = ("kwargs", "options", "extra_body")
"""Keys of mappings without declared types, where nothing makes 5 a float again: 5.0 is encoded as FLOAT and digits."""
FLOAT = "float "
_CODE = re.compile(rf"~*({NULL}|-?\.inf|\.nan|{INTEGER}-?\d+|{FLOAT}-?[\d.e+]+)")


def encoded(value: Any, *, free: bool = False) -> Any:
    """Return JSON values that survive KFP unchanged.

    Args:
        free: whether the value is below one of FREE.
    """
    match value:
        case None:
            return NULL
        case str() if _CODE.fullmatch(value):
            return f"~{value}"
        case float() if not math.isfinite(value):
            return next(code for code, number in NUMBERS.items() if repr(number) == repr(value))
        case float() if free and value.is_integer():
            return f"{FLOAT}{value!r}"
        case int() if abs(value) > EXACT:
            return f"{INTEGER}{value}"
        case Mapping():
            return {key: encoded(item, free=free or key in FREE) for key, item in value.items()}
        case list() | tuple():
            return [encoded(item, free=free) for item in value]
        case _:
            return value


def decoded(value: Any) -> Any:
    """Return what was encoded, with 5 for 5.0 except below FREE: a float parameter takes either."""
    match value:
        case str() if _CODE.fullmatch(value):
            if value.startswith(INTEGER):
                return int(value.removeprefix(INTEGER))
            if value.startswith(FLOAT):
                return float(value.removeprefix(FLOAT))
            return None if value == NULL else NUMBERS.get(value, value[1:])
        case float() if value.is_integer() and abs(value) <= EXACT:
            return int(value)
        case Mapping():
            return {key: decoded(item) for key, item in value.items()}
        case list() | tuple():
            return [decoded(item) for item in value]
        case _:
            return value
