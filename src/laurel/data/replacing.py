"""Replaces a directory by its finished successor; a writer that is killed loses neither."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from laurel.errors import DataError

LOCK_SECONDS = 10.0
"""How long a reader waits for a writer between its two renames, which follow each other at once."""


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


@contextmanager
def written_whole(path: Path, advice: str = "", *, parents: bool = True) -> Iterator[Path]:
    """Yield where to write a file or directory, which takes its place when the block succeeds, and leaves nothing else.

    Args:
        advice: what to do where it cannot be written, for the error.
        parents: make directories above it that are missing.

    Raises:
        DataError: the place cannot be written; errors of the block about other files and connections pass.
    """
    folder = path.with_name(f".{path.name}.partial")
    partial = folder / path.name  # its name has the suffix by which some writers choose the format
    try:
        folder.mkdir(parents=parents, exist_ok=True)
        yield partial
        if partial.is_dir():
            replace_directory(partial, path)
        else:
            partial.replace(path)
    except OSError as error:
        named = None if error.filename is None else Path(os.fsdecode(error.filename))
        ours = named is None or named.is_relative_to(folder) or named in (path, *path.parents)
        if isinstance(error, ConnectionError) or not ours:
            raise
        raise DataError(f"{path}: cannot be written ({error.strerror or error}).{advice}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sync_directory(path: Path) -> None:
    """Sync a directory where possible, so that names made, changed and removed in it outlive a loss of power."""
    if os.name != "posix":  # elsewhere directories cannot be opened
        return
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a bucket that is mounted as a folder has nothing to sync
            raise
    finally:
        os.close(opened)


def recover(place: Path) -> None:
    """Put back what `replace_directory` had moved aside when it was killed between its two renames.

    For its writer; a reader may meet a writer at work, and calls `recover_killed`.
    """
    if previous_of(place).exists() and not place.exists():
        previous_of(place).rename(place)


def recover_killed(path: Path) -> None:
    """Put back what a killed writer had moved aside of a path, or of a directory above it; for readers.

    A live writer holds its lock until both renames are done, and is waited for. Where the reader may not write,
    nothing is put back.
    """
    path = path.resolve() if path.is_symlink() else path
    for place in (*reversed(path.parents), path):
        if not place.exists() and previous_of(place).exists():
            with suppress(OSError, Timeout), FileLock(lock_of(place), timeout=LOCK_SECONDS):
                recover(place)


def previous_of(place: Path) -> Path:
    """Return where the predecessor of a directory waits until its successor is in place."""
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
