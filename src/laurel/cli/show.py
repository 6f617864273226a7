"""`laurel show`: print the content of a stage's output."""

from __future__ import annotations

import argparse
from pathlib import Path

from laurel.cli.command import Commands, add_command
from laurel.console import say


def add(commands: Commands) -> None:
    """Add the command."""
    show = add_command(commands, "show", "Print the content of a stage's output.", "laurel show data/captions")
    show.add_argument("directory", type=Path, metavar="DIR", help="a stage's output")
    show.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from laurel.data.show import describe_directory

    return say(f"{describe_directory(options.directory)}\n")
