"""User files that parameters name, and their digests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laurel.data.digests import digest_file
from laurel.data.manifest import stamp_directory


def named_files(content: Any) -> dict[str, str]:
    """Return file or directory -> digest, or stamp, for the files that parameters name: modules, prompts, labels,
    models.

    The response store is left out, since every run adds to it.
    """
    if isinstance(content, Mapping):
        content = [value for key, value in content.items() if key != "responses"]
    if isinstance(content, list):
        return {name: digest for value in content for name, digest in named_files(value).items()}
    if not isinstance(content, str) or not 0 < len(content) < 1000:
        return {}
    module = content.partition(":")[0].replace(".", "/")
    named = {Path(content), Path(f"{module}.py"), *([Path(module)] if ":" in content else [])} - {Path()}
    named = {path for path in named if exists(path)}
    files = {str(file): digest_file(file) for file in named if file.is_file()}
    return files | {str(place): stamp_directory(place) for place in named if place.is_dir()}


def exists(path: Path) -> bool:
    """Whether a file or folder of this name exists; any text is accepted."""
    try:
        return path.exists()
    except OSError:  # a sentence, such as a goal, may be longer than a file name can be
        return False
