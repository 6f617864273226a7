"""The fewest params that are right, and the keys that there are."""

from __future__ import annotations

import copy
from typing import Any

MINIMAL: dict[str, Any] = {
    "env": {"id": "CartPole-v1"},
    "collect": {"steps": 1000},
    "arms": ["extrinsic", "preference"],
    "agent": {"seeds": [0, 1], "steps": 2000},
}


def with_value(key: str, value: Any) -> dict[str, Any]:
    """Return the minimal params with the value at a dotted key."""
    content = copy.deepcopy(MINIMAL)
    section = content
    *parents, last = key.split(".")
    for parent in parents:
        section = section.setdefault(parent, {})
    section[last] = value
    return content


def keys_of(model: Any, prefix: str = "") -> list[str]:
    """List all dotted keys below a section, sections included."""
    found = []
    for name, value in model:
        found.append(prefix + name)
        if hasattr(type(value), "model_fields"):
            found += keys_of(value, f"{prefix}{name}.")
    return found
