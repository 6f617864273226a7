"""Checkpoints of a step that survive the loss of its machine, so that the next attempt resumes from them.

A stage keeps its checkpoints in a hidden folder beside its output, on a disk that is discarded with the container. That
folder is packed into one file at intervals, where the next attempt finds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.data.manifest import read_manifest

if TYPE_CHECKING:
    from kfp import dsl

FOLDER = "LAUREL_CHECKPOINTS"
"""Folder that persists beyond a step, such as one in a bucket; by default the folder of the step's output."""
SECONDS = 60.0
"""Seconds between two copies: at most this much is lost with a machine, plus the work since the last checkpoint."""


@contextmanager
def kept(
    artifact: dsl.Artifact, name: str, sections: Mapping[str, Any], inputs: Sequence[Path], seconds: float = SECONDS
) -> Iterator[Callable[[Path], AbstractContextManager[None]]]:
    """Keep checkpoints of a step until its output is passed on, so it is entered before `written`.

    Yields a context for where the stage writes: it resumes from the checkpoint of an earlier attempt, and copies this
    one's, which are in hidden folders next to that place, `.NAME.*.partial`.

    Args:
        artifact: the artifact that the output becomes.
        name: of the step, with its branch.
        sections: parameters; together with the inputs' digests they identify the work.
        inputs: outputs of other stages.
        seconds: between two copies.
    """
    work = [name, {**sections, "tracking": None}, [read_manifest(path)["digest"] for path in inputs]]
    key = hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:16]
    file = Path(os.environ.get(FOLDER) or Path(artifact.path).parent) / f"{name.split()[0]}-{key}.zip"
    yield lambda output: _copied(output, file, name, seconds)
    file.unlink(missing_ok=True)


@contextmanager
def _copied(output: Path, file: Path, name: str, seconds: float) -> Iterator[None]:
    """Resume from a file's checkpoint, and store this attempt's there at intervals and when it fails."""
    _restore(file, output.parent, name)
    ended = threading.Event()

    def copy_periodically() -> None:
        while not ended.wait(seconds):
            _copy(output, file, name)

    copying = threading.Thread(target=copy_periodically, name="copy checkpoints", daemon=True)
    copying.start()
    try:
        yield
    except BaseException:  # also SIGTERM: the next attempt resumes from here
        ended.set()
        copying.join()
        _copy(output, file, name)
        raise
    ended.set()
    copying.join()


def _restore(file: Path, folder: Path, name: str) -> None:
    try:
        with zipfile.ZipFile(file) as packed:
            packed.extractall(folder)
    except FileNotFoundError:
        return
    except (OSError, zipfile.BadZipFile) as error:
        _say(name, f"starts over, because the checkpoint of an earlier attempt cannot be read: {error}")
    else:
        _say(name, "resumes from the checkpoint of an earlier attempt")


def _copy(output: Path, file: Path, name: str) -> None:
    """Pack the current checkpoints; if that fails, print a line and continue."""
    folder = output.parent
    packed = folder / f".{file.name}"
    try:
        with zipfile.ZipFile(packed, "w") as target:
            for place in sorted(folder.glob(f".{output.name}.*.partial/*/*")):
                if place.is_dir() and not place.name.startswith("."):
                    for path, content in _whole(place).items():
                        target.writestr(path.relative_to(folder).as_posix(), content)
            if not target.namelist():
                return
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f".{file.name}.partial")
        shutil.copyfile(packed, partial)
        partial.replace(file)
    except OSError as error:
        _say(name, f"no checkpoint could be written to {file}: {error}")


def _whole(place: Path) -> dict[Path, bytes]:
    """Read the files of a folder that is replaced atomically, so that all belong to one checkpoint."""
    while True:
        try:
            inode = place.stat().st_ino
            found = {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}
            if place.stat().st_ino == inode:
                return found
        except FileNotFoundError:  # replaced meanwhile
            if not place.exists():
                return {}


def _say(name: str, event: str) -> None:
    sys.stderr.write(f"laurel step {name}: checkpoint ({event})\n")
    sys.stderr.flush()
