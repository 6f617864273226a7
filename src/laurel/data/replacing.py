"""Replace a directory by its finished successor such that a killed writer loses neither."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK_SECONDS = 10.0
"""How long a reader waits for a writer that is between its two renames, which take almost no time."""


def replace_directory(finished: Path, place: Path) -> None:
    """Move a finished directory into place; its predecessor is removed only once it is complete and on disk."""
    for path in (finished, *finished.rglob("*")):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        else:
            sync_directory(path)
    previous = previous_of(place)
    _remove(previous)
    if place.exists():
        place.rename(previous)
    finished.rename(place)
    sync_directory(place.parent)
    _remove(previous)


def sync_directory(path: Path) -> None:
    """Sync a directory where possible, so that created, renamed and removed names survive a power failure."""
    if os.name != "posix":  # on other systems directories cannot be opened
        return
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a mounted bucket has nothing to sync
            raise
    finally:
        os.close(opened)


def recover(place: Path) -> None:
    """Restore the directory that `replace_directory` had moved aside when it was killed between its two renames.

    For the writer; a reader, which may run beside a live writer, calls `recover_killed`.
    """
    if previous_of(place).exists() and not place.exists():
        previous_of(place).rename(place)


def recover_killed(path: Path) -> None:
    """Restore the directory that a killed writer had moved aside, for a path or one of its parents; for readers.

    A live writer holds its lock until both renames are done; this waits for it. Nothing is restored if the reader has
    no write permission.
    """
    path = followed(path)
    for place in (*reversed(path.parents), path):
        if not place.exists() and previous_of(place).exists():
            with suppress(OSError, Timeout), FileLock(lock_of(place), timeout=LOCK_SECONDS):
                recover(place)


def followed(path: Path) -> Path:
    """Return a path, or where it leads if it is a symbolic link.

    Raises:
        OSError: the link leads to itself.
    """
    if not path.is_symlink():
        return path
    try:
        target = path.resolve()
    except RuntimeError as error:  # before Python 3.13, where such a link resolves to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


def previous_of(place: Path) -> Path:
    """Return the path to which a directory is moved until its successor is in place."""
    return place.parent / f".{place.name}.previous"


def lock_of(place: Path) -> Path:
    """Return the lock file that the writer of a directory holds."""
    return place.parent / f".{place.name}.lock"


def _remove(previous: Path) -> None:
    """Remove the old output that was moved aside, which may be a symbolic link."""
    if previous.is_symlink():
        previous.unlink()
    else:
        shutil.rmtree(previous, ignore_errors=True)
