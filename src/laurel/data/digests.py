"""Digests of files and directories; a file that has not changed since is not read again.

A file counts as unchanged while its size, inode and times of change are. What was found is remembered in this process,
and for large directories beside them, in FILE, so that the stages of a run read them once. Knows nothing about
manifests.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

FILE = ".digests.json"
"""Beside large directories: path below the folder -> stamp and digest. It may be deleted at any time."""
LARGE = 2**26
"""Bytes from which reading a file again takes longer than looking it up: about 50 ms."""

Stamp = tuple[int, int, int, int]
"""Size, inode, and the times of the last change of content and of anything, in nanoseconds."""

_known: dict[str, tuple[Stamp, str]] = {}


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal."""
    place, stamp = _place(path), _stamp(path)
    if (found := _known.get(place)) and found[0] == stamp:
        return found[1]
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if _stamp(path) == stamp:  # else it is being written: it is read again the next time
        _known[place] = stamp, digest
    return digest


def digest_directory(path: Path, without: Collection[str]) -> str:
    """Return the SHA-256 of all files below a directory, by name and content.

    Left out are those of some names, and hidden ones, which file managers and network disks make.
    """
    files = sorted(f for f in path.rglob("*") if f.is_file() and f.name not in without and not f.name.startswith("."))
    large = [file for file in files if file.stat().st_size >= LARGE]
    if large:
        _recall(path)
    before = len(_known)
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        digest.update(bytes.fromhex(digest_file(file)))
    if large and len(_known) > before:
        _remember(path, large)
    return digest.hexdigest()


def _place(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100  resolving links, as pathlib does, would cost as much as all the rest


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _recall(path: Path) -> None:
    """Take what an earlier process found; `digest_file` takes it only where the stamp is the file's."""
    for name, (stamp, digest) in _read(path.parent / FILE):
        _known.setdefault(_place(path.parent / name), (stamp, digest))


def _remember(path: Path, files: list[Path]) -> None:
    """Write what was found for later processes; where that cannot be written, they read the files again."""
    place = path.parent / FILE
    kept = {name: found for name, found in _read(place) if (path.parent / name).exists()}
    for file in files:
        if found := _known.get(_place(file)):
            kept[file.relative_to(path.parent).as_posix()] = found
    partial = place.with_name(f"{FILE}.{os.getpid()}.partial")
    with suppress(OSError):
        partial.write_text(json.dumps(kept, indent=1, sort_keys=True), encoding="utf-8")
        partial.replace(place)


def _read(file: Path) -> Iterator[tuple[str, tuple[Stamp, str]]]:
    with suppress(OSError, ValueError, TypeError, AttributeError):
        for name, (stamp, digest) in json.loads(file.read_text(encoding="utf-8")).items():
            size, inode, modified, changed = (int(number) for number in stamp)
            yield str(name), ((size, inode, modified, changed), str(digest))
