"""Errors of writing to a disk, in words."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3

FULL = "the disk is full. Free some space and run again; existing files are kept."


def number_of(error: OSError) -> int | None:
    """Return the errno, also of errors that lack it: those of copying directories, and NumPy's short writes."""
    if isinstance(error, shutil.Error) and (match := re.search(r"\[Errno (\d+)\]", str(error))):
        return int(match[1])
    if error.errno is None and re.fullmatch(r"\d+ requested and \d+ written", str(error)):
        return errno.ENOSPC
    return error.errno


def is_full(error: OSError | sqlite3.Error) -> bool:
    """Whether there is no space left, on the disk or for the user."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
    return number_of(error) in (errno.ENOSPC, errno.EDQUOT)


def reason_of(error: OSError) -> str:
    """Return what is wrong, without a path.

    >>> reason_of(OSError("512 requested and 100 written"))
    'No space left on device'
    """
    number = number_of(error)
    return error.strerror or (os.strerror(number) if number is not None else str(error))
