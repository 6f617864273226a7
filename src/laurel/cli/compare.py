"""`laurel compare`: two reports side by side."""

from __future__ import annotations

import argparse
from pathlib import Path

from laurel.cli.command import Commands, add_command
from laurel.console import say


def add(commands: Commands) -> None:
    """Add the command."""
    compare = add_command(
        commands,
        "compare",
        "Compare two reports: parameters that differ, arms, and exact tests between arms of the same name.",
        "laurel compare runs/a runs/b",
    )
    for stem in ("A", "B"):
        compare.add_argument(stem.lower(), type=Path, metavar=stem, help="a project's folder, or its reports")
    compare.add_argument(
        "-o", "--output", type=Path, default=Path("compare.html"), metavar="FILE", help="default: compare.html"
    )
    compare.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from laurel.data.written import written_whole
    from laurel.stages.compare_reports import compare

    comparison = compare(options.a, options.b)
    with written_whole(options.output, parents=False) as partial:
        partial.write_text(comparison.page(), encoding="utf-8")
    return say(f"{comparison.text()}\npage: {options.output.resolve().as_uri()}\n")
