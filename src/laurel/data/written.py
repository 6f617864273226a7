"""Write a user's file or directory whole or not at all, and never into a stage's output; before long work, check that
it can be.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laurel.data.disk import reason_of
from laurel.data.ownership import check_outside_outputs
from laurel.data.replacing import replace_directory
from laurel.errors import DataError


def prepare(folder: Path, path: Path) -> None:
    """Make the folder of what is written to a path, before long work begins.

    Raises:
        DataError: it cannot be made or written, or the path lies in a stage's output.
    """
    check_outside_outputs(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({reason_of(error)}). Choose another place.") from None


@contextmanager
def written_whole(path: Path, advice: str = "", *, parents: bool = True) -> Iterator[Path]:
    """Yield a temporary path for a file or directory; it is moved to `path` if the block succeeds, and removed
    otherwise.

    Args:
        advice: what to do if it cannot be written, for the error.
        parents: create missing parent directories.

    Raises:
        DataError: the path cannot be written, or lies in a stage's output; the block's errors about other files and
            connections are not converted.
    """
    check_outside_outputs(path)
    folder = path.with_name(f".{path.name}.partial")
    partial = folder / path.name  # the temporary name keeps the suffix, from which some writers infer the format
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
        raise DataError(f"{path}: cannot be written ({reason_of(error)}).{advice}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
