"""What commands are made of: their parsers, and the options that several share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

from laurel.permissions import add_permissions
from laurel.stages.pipeline import PLACES

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What commands are added to."""


def add_command(commands: Commands, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """Add a command, with a summary and an example in its help."""
    command = _parser(commands, name, summary, f"example:\n  {example}")
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return command


def add_group(commands: Commands, name: str, summary: str, what: str = "action", example: str = "") -> Commands:
    """Add a command that has commands of its own, such as `laurel prompt list`; return where to add these."""
    group = _parser(commands, name, summary, f"example:\n  {example}" if example else "")
    return group.add_subparsers(dest=what, metavar=what.upper(), required=True)


def _parser(commands: Commands, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    return commands.add_parser(name, help=summary, description=summary, epilog=epilog, formatter_class=formatter)


def add_params(command: argparse.ArgumentParser, *, of_parent: bool = False) -> None:
    """Let a command be told where the parameters are; `of_parent` leaves the default to the command above it."""
    default = argparse.SUPPRESS if of_parent else Path("params.yaml")
    command.add_argument("--params", type=Path, default=default, metavar="FILE", help="the parameters")


def add_input(command: argparse.ArgumentParser, name: str, *, of_parent: bool = False) -> None:
    """Let a command be told where one of PLACES is; `of_parent` as in `add_params`."""
    default = argparse.SUPPRESS if of_parent else Path(PLACES[name])
    command.add_argument(f"--{name}", type=Path, default=default, metavar="DIR", help=f"default: {PLACES[name]}")


def add_output(command: argparse.ArgumentParser, default: str | Path) -> None:
    """Let a command be told where to write."""
    command.add_argument("--output", type=Path, default=Path(default), metavar="DIR", help=f"default: {default}")


def add_dry_run(action: argparse.ArgumentParser) -> None:
    """Let an action of a command be tried, whether it or the command was told so."""
    add_permissions(action)
    action.add_argument(
        "--dry-run",
        action="store_true",
        default=argparse.SUPPRESS,
        help="say what would be asked and what that would cost, and ask nothing",
    )


def log_warnings() -> None:
    """Write what libraries warn of to standard error, a line each."""
    import logging
    import sys

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
