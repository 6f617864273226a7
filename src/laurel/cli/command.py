"""Building blocks of commands: parsers, shared options, number types, and modules of the extra cloud."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from laurel.extras import missing
from laurel.permissions import add_permissions
from laurel.stages.pipeline import PLACES

MOST = 2**31 - 1
LOGGED = "LAUREL_LOGGED"
"""Environment variable with the digests of the warnings logged so far; commands that this one starts read it."""

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""The parsers that commands are added to."""


def add_command(commands: Commands, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """Add a command, with a summary and an example in its help."""
    command = _parser(commands, name, summary, f"example:\n  {example}")
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return command


def add_group(commands: Commands, name: str, summary: str, dest: str = "action", example: str = "") -> Commands:
    """Add a command with subcommands, such as `laurel prompt list`; return the object to add them to."""
    group = _parser(commands, name, summary, f"example:\n  {example}" if example else "")
    return group.add_subparsers(dest=dest, metavar=dest.upper(), required=True)


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
        help="print the number of questions and their cost, and ask nothing",
    )


def log_warnings() -> None:
    """Log warnings to standard error, one line each; a warning that this command or its parent has logged before is
    skipped.
    """
    logged = os.environ.get(LOGGED, "").split()

    def is_new(record: logging.LogRecord) -> bool:
        digest = hashlib.sha256(record.getMessage().encode("utf-8", "replace")).hexdigest()[:16]
        if digest in logged:
            return False
        logged.append(digest)
        os.environ[LOGGED] = " ".join(logged)
        return True

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(is_new)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", handlers=[handler])


def whole(least: int = 1, limit: int = MOST) -> Callable[[str], int]:
    """Return a parser of whole numbers, for argparse's `type`.

    >>> whole(0)("12")
    12
    """
    allowed = f"from {least} on" if limit == MOST else f"from {least} to {limit}"

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= limit):
            raise argparse.ArgumentTypeError(f'"{text}" is not a whole number {allowed}')
        return int(text)

    return read


def number(least: float, limit: float) -> Callable[[str], float]:
    """Return a parser of numbers, for argparse's `type`.

    >>> number(0.05, 3600)("15")
    15.0
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = least - 1
        if not least <= value <= limit:
            raise argparse.ArgumentTypeError(f'"{text}" is not a number from {least:g} to {limit:g}')
        return value

    return read


def pipelines_module(module: str) -> Any:
    """Import a module of the pipeline.

    Raises:
        LaurelError: it needs a package of the extra `cloud`, which is not installed.
    """
    try:
        return importlib.import_module(f"laurel.pipelines.{module}")
    except ModuleNotFoundError as error:
        raise missing(error) or error from None
