"""Where files lie that outlive a run, such as a model's answers and what MLflow keeps.

DVC runs a queued experiment in a copy of the project, and throws the copy away with all that git ignores.
"""

from __future__ import annotations

import os
from pathlib import Path

COPIES = Path(".dvc", "tmp", "exps")
"""Where, below a project, DVC has its copies of it."""


def lasting(path: Path) -> Path:
    """Return a path, or in a copy of a project that DVC made the same place in the project itself."""
    if not (project := os.environ.get("DVC_ROOT")):  # which DVC sets for what it runs
        return path
    copies = Path(project).resolve() / COPIES
    place = path.resolve()
    if not place.is_relative_to(copies):
        return path
    _, *below = place.relative_to(copies).parts
    return Path(project).resolve().joinpath(*below)


def cache_directory() -> Path:
    """Return where models and vectors are kept for all projects of the user: LAUREL_CACHE, or the user's cache."""
    cache = os.environ.get("LAUREL_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(cache) if cache else Path(shared, "laurel")).expanduser()
