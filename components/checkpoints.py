"""Checkpoints of a step that outlive its machine, so that the next attempt at the step resumes from them.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.data.manifest import read_manifest

if TYPE_CHECKING:
    from kfp import dsl

FOLDER = "LAUREL_CHECKPOINTS"
"""Folder that outlives a step, such as one of a bucket; without it, the folder that the step's output goes to."""
SECONDS = 60.0
"""Time between two copies: the most that a lost machine takes with it, besides what no checkpoint holds yet."""


@contextmanager
def kept(
    output: Path,
    artifact: dsl.Artifact,
    name: str,
    sections: Mapping[str, Any],
    inputs: Sequence[Path],
    seconds: float = SECONDS,
) -> Iterator[None]:
    """Go on from what an earlier attempt has left, and leave what this one does until it has succeeded.

    Args:
        output: where the stage writes; what is kept is in hidden folders beside it, `.NAME.*.partial`.
        artifact: what the output becomes.
        name: of the step, with its branch.
        sections: parameters; with the inputs' digests they say whether it is the same work.
        inputs: outputs of other stages.
        seconds: between two copies.
    """
    work = [name, {**sections, "tracking": None}, [read_manifest(path)["digest"] for path in inputs]]
    key = hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:16]
    file = Path(os.environ.get(FOLDER) or Path(artifact.path).parent) / f"{name.split()[0]}-{key}.zip"
    _restore(file, output.parent, name)
    ended = threading.Event()

    def copy_now_and_then() -> None:
        while not ended.wait(seconds):
            _copy(output, file, name)

    copying = threading.Thread(target=copy_now_and_then, name="copy checkpoints", daemon=True)
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
    file.unlink(missing_ok=True)


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
    """Pack the checkpoints of now; one that cannot be written costs a line, not the step."""
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
    """Read the files of a folder that is replaced as a whole: all are of one checkpoint."""
    while True:
        try:
            before = place.stat().st_ino
            found = {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}
            if place.stat().st_ino == before:
                return found
        except FileNotFoundError:  # replaced meanwhile
            if not place.exists():
                return {}


def _say(name: str, what: str) -> None:
    sys.stderr.write(f"laurel step {name}: checkpoint ({what})\n")
    sys.stderr.flush()
