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
    """Add the option --params; `of_parent` leaves the default to the command above it."""
    default = argparse.SUPPRESS if of_parent else Path("params.yaml")
    command.add_argument("--params", type=Path, default=default, metavar="FILE", help="the parameters")


def add_input(command: argparse.ArgumentParser, name: str, *, of_parent: bool = False) -> None:
    """Add the option that names one of PLACES; `of_parent` as in `add_params`."""
    default = argparse.SUPPRESS if of_parent else Path(PLACES[name])
    command.add_argument(f"--{name}", type=Path, default=default, metavar="DIR", help=f"default: {PLACES[name]}")


def add_output(command: argparse.ArgumentParser, default: str | Path) -> None:
    """Add the option --output."""
    command.add_argument("--output", type=Path, default=Path(default), metavar="DIR", help=f"default: {default}")


def add_dry_run(action: argparse.ArgumentParser) -> None:
    """Add --dry-run to an action; it may also stand before the action."""
    add_permissions(action)
    action.add_argument(
        "--dry-run",
        action="store_true",
        default=argparse.SUPPRESS,
        help="say what would be asked and what that would cost, and ask nothing",
    )


def log_warnings() -> None:
    """Log the warnings of libraries to standard error, a line each."""
    import logging
    import sys

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
