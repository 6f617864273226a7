"""JSON files: reading raises a DataError with one sentence, writing is atomic."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from laurel.errors import DataError


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: it is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Run the stage that writes it again.") from None
    except (ValueError, RecursionError, OSError) as error:
        raise DataError(f"{path}: cannot be read ({error}). Run the stage that writes it again.") from None


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, with sorted keys, so that the same content gives the same bytes."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def digest_json(content: Any) -> str:
    """Return the SHA-256 of JSON values, independent of the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
