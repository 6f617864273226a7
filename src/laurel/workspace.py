"""Locations of files that outlive a run, such as a model's answers and MLflow's data.

DVC runs a queued experiment in a copy of the project, and then deletes the copy with all files that git ignores.
"""

from __future__ import annotations

import os
from pathlib import Path

COPIES = Path(".dvc", "tmp", "exps")
"""Folder of a project in which DVC puts its copies."""


def outside_dvc_copy(path: Path) -> Path:
    """Return a path; within DVC's copy of a project, the same path in the project itself."""
    if not (project := os.environ.get("DVC_ROOT")):  # DVC sets this variable for the commands that it runs
        return path
    copies = Path(project).resolve() / COPIES
    place = path.resolve()
    if not place.is_relative_to(copies):
        return path
    _, *parts = place.relative_to(copies).parts
    return Path(project).resolve().joinpath(*parts)


def cache_directory() -> Path:
    """Return where models and vectors are kept for all projects of the user: LAUREL_CACHE, or the user's cache."""
    cache = os.environ.get("LAUREL_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(cache) if cache else Path(shared, "laurel")).expanduser()
