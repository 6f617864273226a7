"""Read a user's text file safely: it must be a regular file of bounded size, in UTF-8."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class UnfitFileError(Exception):
    """A file that cannot be used; the message says why, and is meant to follow the file's name and a colon."""


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file.

    Args:
        max_bytes: maximum size in bytes.

    Raises:
        OSError: it cannot be opened or read.
        UnfitFileError: it is not a regular file, or larger than that.
    """
    # a plain open() of a FIFO without a writer would block forever
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(None, "Is a directory")
        if not stat.S_ISREG(mode):
            raise UnfitFileError("it is not a regular file, but a pipe, socket or device. Write its content to a file.")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise UnfitFileError(f"it is larger than {max_bytes / 1000:,.0f} kB, the most that such a file may have.")
    return content


def read_text(path: Path, max_bytes: int) -> str:
    """Return the text of a regular file, with line breaks as Python has them; arguments and errors as in `read_bytes`.

    Raises:
        UnfitFileError: it is not text in UTF-8.
    """
    return decoded(read_bytes(path, max_bytes))


def decoded(content: bytes) -> str:
    """Return the text of a file's content, with line breaks as Python has them.

    Raises:
        UnfitFileError: it is not text in UTF-8.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnfitFileError(f"not text in UTF-8 (from byte {error.start} on).") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
