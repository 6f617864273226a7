"""SHA-256 of files and directories; a process does not read an unchanged file again.

A file counts as unchanged while its size, inode, mtime and ctime are the same.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

Stamp = tuple[int, int, int, int]
"""Size, inode, and mtime and ctime in nanoseconds."""
COMPILED = "__pycache__"

_known: dict[str, tuple[Stamp, str]] = {}


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal."""
    place, stamp = os.path.abspath(path), _stamp(path)  # noqa: PTH100  resolving links would cost as much as all the rest
    if (known := _known.get(place)) and known[0] == stamp:
        return known[1]
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if _stamp(path) == stamp:  # otherwise it is still being written, and is read again next time
        _known[place] = stamp, digest
    return digest


def digest_directory(path: Path, excluded: Collection[str], folders: Collection[Path] = ()) -> str:
    """Return the SHA-256 of all files below a directory, by name and content.

    Excludes files with the names `excluded`, those in `folders`, hidden files, which file managers and network drives
    create, and compiled ones, which Python writes when it imports a module.
    """
    digest = hashlib.sha256()
    for file in _files(path, excluded):
        if any(file.is_relative_to(folder) for folder in folders):
            continue
        digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        digest.update(bytes.fromhex(digest_file(file)))
    return digest.hexdigest()


def stamp_directory(path: Path, excluded: Collection[str]) -> str:
    """Return a stamp of a directory that changes when any file below it does, without reading them; files as above."""
    stamps = {file.relative_to(path).as_posix(): _stamp(file) for file in _files(path, excluded)}
    return hashlib.sha256(repr(stamps).encode()).hexdigest()


def files_in(path: Path) -> list[Path]:
    """Return all files below a directory but hidden ones, such as locks, in order."""
    return sorted(file for file in path.rglob("[!.]*") if file.is_file())


def _files(path: Path, excluded: Collection[str]) -> list[Path]:
    return [file for file in files_in(path) if file.name not in excluded and file.parent.name != COMPILED]


def _stamp(path: Path) -> Stamp:
    stat = path.stat()
    return stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns
