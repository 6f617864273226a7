"""`laurel params`: every parameter with its allowed values, its default and a sentence."""

from __future__ import annotations

import argparse

from laurel.cli.command import Commands, add_command
from laurel.console import say


def add(commands: Commands) -> None:
    """Add the command."""
    params = add_command(
        commands,
        "params",
        "List the parameters: allowed values, default, what each does.",
        "laurel params agent.ppo",
    )
    params.add_argument("section", nargs="?", default="", metavar="SECTION", help="e.g. agent.ppo; default: all")
    params.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from laurel.params.listing import listed

    return say("".join(f"{parameter}\n" for parameter in listed(options.section)))
