"""Usage of language models, such as calls, tokens and money; that of stopped runs counts towards the one that ends the
work.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from laurel.data.json_file import read_json, write_json
from laurel.errors import DataError

SECONDS = 0.1
"""Minimum time between two notes: a killed run loses what it used since the last one."""

Usage = dict[str, float | None]
"""Resource -> amount used; None where that is unknown."""


def added(one: Usage, other: Usage) -> Usage:
    """Add two usages; a resource that is unknown in either is unknown in the sum."""
    total = dict(one)
    for key, amount in other.items():
        before = total.get(key, 0)
        total[key] = None if before is None or amount is None else before + amount
    return total


class Spent:
    """Seconds and usage of stopped runs of the same work, and of the current one until it ends.

    Args:
        file: where they are noted.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            noted: dict[str, Any] = read_json(file) if file.exists() else {}
            self.seconds, self.usage = float(noted.get("seconds", 0.0)), dict(noted.get("usage", {}))
        except (DataError, AttributeError, TypeError, ValueError):
            self.seconds, self.usage = 0.0, {}
        self._noted = 0.0

    @property
    def due(self) -> bool:
        """Whether the last note is SECONDS old."""
        return time.monotonic() - self._noted >= SECONDS

    def note(self, seconds: float, usage: Usage) -> None:
        """Record totals."""
        write_json(self.file, {"seconds": seconds, "usage": usage})
        self._noted = time.monotonic()

    def forget(self) -> None:
        """Remove the file: the work is done."""
        self.file.unlink(missing_ok=True)
