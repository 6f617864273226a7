"""The `laurel` command: parses the arguments and runs a stage. Imports nothing heavy before a stage runs."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from laurel import __version__
from laurel.cli import (
    check,
    classics,
    compare,
    export,
    init,
    judges,
    language_model,
    params,
    pipeline,
    play,
    prompt,
    reward,
    run,
    show,
    stages,
    table,
    tune,
    ui,
)
from laurel.cli.parser import Parser
from laurel.console import REASON_FILE, USAGE_ERROR, printable, say, tell
from laurel.errors import LaurelError
from laurel.extras import missing
from laurel.interrupt import stop_with_parent, terminated_like_ctrl_c
from laurel.permissions import take_permissions
from laurel.plugins import blame

COMMANDS = (
    init,
    run,
    stages,
    judges,
    check,
    params,
    show,
    table,
    compare,
    pipeline,
    prompt,
    classics,
    play,
    tune,
    ui,
    export,
    reward,
    language_model,
)
"""Modules of commands, in the order of the help."""
INTERRUPTED = 130
OF_A_PATH = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP)
"""Operating-system errors caused by a path that the user gave."""
AGAIN = "Run the same command again to resume."
"""What to do after Ctrl-C, unless a command says otherwise."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code: 0, 2 for errors that the user can fix, 130 for Ctrl-C."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as end:
        raise SystemExit(say("") or end.code) from None  # argparse has printed, but not yet written
    except BrokenPipeError:  # or it has written, and the reader closed the pipe: PYTHONUNBUFFERED is set
        raise SystemExit(say("\n")) from None
    take_permissions(options)
    try:
        with terminated_like_ctrl_c():
            stop_with_parent()
            return int(_run(options))
    except LaurelError as error:
        if options.debug:
            raise
        return _failed(str(error))
    except ModuleNotFoundError as error:
        if options.debug or (lacking := missing(error)) is None:
            raise
        return _failed(str(lacking))
    except OSError as error:
        if options.debug or error.errno not in OF_A_PATH or not error.filename:
            raise
        name = str(error.filename)
        shown = name if len(name) <= 200 else f"{name[:200]}..."
        return _failed(f"{shown}: cannot be used ({error.strerror}). --debug shows where.")
    except KeyboardInterrupt:
        if REASON_FILE not in os.environ:  # otherwise the command that started this stage says so
            tell(f"laurel: stopped. {getattr(options, 'again', AGAIN)}")
        return INTERRUPTED
    except Exception as error:  # any exception is raised again
        # its text may be anything and stays on the terminal, since pages show reasons
        _write_reason(f"an unexpected {type(error).__name__}, whose traceback was printed")
        raise


def _failed(message: str) -> int:
    """Report why a command failed, to the user and to the process that started it; return the exit code."""
    tell(f"laurel: {message}")
    _write_reason(message)
    return USAGE_ERROR


def _write_reason(message: str) -> None:
    """Write why this command fails to the file of REASON_FILE, if any."""
    if place := os.environ.get(REASON_FILE):
        with suppress(OSError):
            Path(place).write_text("\n".join(map(printable, message.split("\n"))), encoding="utf-8")


def _run(options: argparse.Namespace) -> Any:
    try:
        return options.run(options)
    except LaurelError:
        raise
    except (Exception, SystemExit) as error:  # a plug-in of another package may raise anything, or call sys.exit()
        if (blamed := blame(error)) is not None:
            raise blamed from error
        loop = error.__context__  # of Path.resolve before Python 3.13
        if isinstance(error, RuntimeError) and isinstance(loop, OSError) and loop.errno == errno.ELOOP:
            raise loop from error
        raise


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="laurel",
        description="Language-model feedback as reward for reinforcement learning. Each stage is a command.",
        epilog="The whole pipeline: laurel run (or `dvc repro`). A stage by itself: laurel collect --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"laurel {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser
