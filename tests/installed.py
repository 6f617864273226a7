"""What an installed package leaves on the path: its modules, and the entry points in its metadata."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from tiny_project import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


def install(site: Path, name: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Write the metadata of a package with entry points: group -> name -> module, or module:object."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [line for group, entries in groups.items() for line in (f"[{group}]", *_lines(entries))]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))


def install_examples(site: Path) -> None:
    """Install the folder examples/ as its pyproject.toml says."""
    project = tomllib.loads((EXAMPLES / "pyproject.toml").read_text())
    install(site, "laurel_examples", project["project"]["entry-points"])
    (site / "laurel_examples").symlink_to(EXAMPLES)


def _lines(entries: Mapping[str, str]) -> list[str]:
    return [f"{name} = {value}" for name, value in entries.items()]
