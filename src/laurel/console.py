"""Output of commands: results to standard output, messages to standard error, with control characters escaped."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

USAGE_ERROR = 2
REASON_FILE = "LAUREL_REASON_FILE"
"""Environment variable with the path of a file to which a failing command also writes its error message."""
NOT_READ = 141
"""Exit code of a command that was ended by SIGPIPE."""


def say(text: str) -> int:
    """Write a result to standard output; return the exit code."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try again when it exits
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe, e.g. `| head`
            return NOT_READ
        tell(f"laurel: standard output cannot be written ({error.strerror}).")
        return USAGE_ERROR
    return 0


def tell(text: str) -> None:
    """Write a message or an error to standard error.

    Control characters are escaped, since the text may quote a params file or a server. Nothing is written to a closed
    terminal.
    """
    lines = "\n".join(map(printable, text.split("\n")))
    with suppress(OSError):
        sys.stderr.write(f"{lines}\n")
        sys.stderr.flush()


def printable(text: str) -> str:
    """Escape line breaks, control characters and lone surrogates, so that text cannot send commands to the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with columns of equal width.

    >>> aligned([("step", "tasks"), ("annotate", "1")])
    ['step      tasks', 'annotate  1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
