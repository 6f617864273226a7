"""Labels of pairs that are judged in shares, as by several machines, and joined."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from laurel.stages import annotate, merge_preferences
from laurel.stages.pipeline import STAGE
from tiny_project import Project


def annotate_in_shares(project: Project, folder: Path, of: int = 2) -> list[Path]:
    """Judge each share of a project's pairs; return their outputs, below `folder`."""
    shares = [folder / f"share-{number}" for number in range(of)]
    given, captions = STAGE["annotate"].given(project.params), project.output("caption")
    for number, share in enumerate(shares):
        annotate.run(**given, captions=captions, output=share, shard=(number, of))
    return shares


def merge_shares(project: Project, shares: Sequence[Path], output: Path) -> Path:
    """Join shares; return the output."""
    given, captions = STAGE["annotate"].given(project.params), project.output("caption")
    merge_preferences.run(**given, captions=captions, shards=shares, output=output)
    return output
