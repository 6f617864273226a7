"""`laurel init`: a project of the user's own, to edit and run."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from laurel.cli.command import Commands, add_command
from laurel.console import say


def add(commands: Commands) -> None:
    """Add the command."""
    init = add_command(
        commands, "init", "Make a project of your own: a folder to edit and run.", "laurel init my-study && cd my-study"
    )
    init.add_argument("folder", type=Path, metavar="FOLDER", help="folder to create, or an empty one")
    init.set_defaults(run=_run, again="Nothing was made.")


def _run(options: argparse.Namespace) -> int:
    from laurel.stages.init import init

    init(options.folder)
    return say(f"{options.folder}: edit params.yaml, then: cd {shlex.quote(str(options.folder))} && laurel run\n")
