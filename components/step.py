"""Code shared by all components: check params, log start and end, report a failure in one line.

Runs inside the step's own process.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.components.encoding import decoded
from laurel.data.disk import reason_of
from laurel.data.manifest import MANIFEST, RUN
from laurel.errors import DataError, LaurelError, RefusedLabelsError
from laurel.interrupt import stop_with_parent, terminated_like_ctrl_c
from laurel.params import Params, parse_sections
from laurel.secrets import load_secrets
from laurel.tracking.tracker import OUTPUT_URI

if TYPE_CHECKING:
    from kfp import dsl

TRACKING_URI = "MLFLOW_TRACKING_URI"
RESPONSES = "LAUREL_RESPONSES"
"""Folder in which the answers of language models persist across steps."""
PACKED = "files.zip"
MOUNTED = "/gcs/"
"""Mount point of buckets in steps on Vertex AI."""
BEGUN, DONE, FAILED = "begun", "done", "failed"


@contextmanager
def step(name: str, **sections: Any) -> Iterator[dict[str, Any]]:
    """Yield the checked sections by name; for errors that the user can fix, end the process with code 2 and one line.

    Secrets that the environment refers to are fetched first. Without MLFLOW_TRACKING_URI, tracking is turned off: a
    database in a container's working directory would be deleted with the container.

    Args:
        name: of the step, as its lines show it, e.g. "caption" or "train-agents oracle".
        sections: of params.yaml, which the stage takes, tracking among them, as `encoded` and sent by KFP's backends.
    """
    _say(name, BEGUN)
    started = time.monotonic()
    try:
        load_secrets()
        checked = parse_sections(decoded(sections), "params")
        if checked["tracking"].enabled and not os.environ.get(TRACKING_URI):
            _say(name, "not tracked", f"{TRACKING_URI} is not set")
            checked["tracking"] = checked["tracking"].model_copy(update={"enabled": False})
        with terminated_like_ctrl_c():  # Kubernetes ends a step with SIGTERM
            stop_with_parent(through_shell=True)  # a pipeline on this machine, which may be killed
            yield checked
    except LaurelError as error:
        _say(name, FAILED, " ".join(str(error).split()))
        sys.exit(2)
    _say(name, DONE, f"{time.monotonic() - started:.1f} s")


def responses() -> Path | None:
    """Return the folder in which the answers of language models persist, or None."""
    kept = os.environ.get(RESPONSES)
    return Path(kept) if kept else None


def sections_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a component that are sections of params.yaml."""
    return {name: value for name, value in arguments.items() if name in Params.model_fields}


def whole(sections: Mapping[str, Any]) -> Params:
    """Return params for a stage that takes them whole: the sections of its step, and defaults.

    A section with neither is missing: a stage that reads a section that its step does not receive has a bug.
    """
    return Params.model_construct(**sections)


def places(**artifacts: dsl.Artifact) -> dict[str, Any]:
    """Return the local paths of artifacts by the stage's names for them."""
    return {name: Path(artifact.path) for name, artifact in artifacts.items()}


@contextmanager
def written(artifact: dsl.Artifact, *, packed: bool = False) -> Iterator[Path]:
    """Yield the folder for a stage's output, then pass it to KFP: the files, and the manifest's counts and digest.

    MLflow runs logged meanwhile record the output's location, by which `finish` finds them.

    The artifact's path may be a mounted bucket, without locks and without atomic renames. So the stage writes to this
    machine's disk; its files are then copied, the manifest last: without one, no stage reads them. Many small files are
    slow there: `packed` joins them into one archive, which `unpacked` reads.
    """
    place = Path(artifact.path)
    with tempfile.TemporaryDirectory(prefix="laurel-") as scratch:
        output = Path(scratch) / place.name
        os.environ[OUTPUT_URI] = artifact.uri
        try:
            yield output
        except RefusedLabelsError as error:
            kept = place.with_name(f"{place.name}-refused")
            raise RefusedLabelsError(error.reasons, _moved(error.kept, kept, artifact.uri)) from None
        finally:
            del os.environ[OUTPUT_URI]
        try:
            _pass_on(output, place, packed=packed)
        except OSError as error:
            raise DataError(f"{place}: cannot be written ({reason_of(error)}).") from None
    manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
    artifact.metadata.update(manifest["counts"])
    artifact.metadata["digest"] = manifest["digest"]


def _moved(left: Path | None, kept: Path, uri: str) -> Path | None:
    """Copy what a stage has left elsewhere than in its output, beside the artifact; return where it is, if anywhere.

    Only an artifact that is a file of this machine, or of a mounted bucket, lies where files beside it stay.
    """
    if left is None or ("://" in uri and not str(kept).startswith(MOUNTED)):
        return None
    try:
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(left, kept)
    except OSError as error:
        raise DataError(f"{kept}: cannot be written ({reason_of(error)}).") from None
    return kept


def _pass_on(output: Path, place: Path, *, packed: bool) -> None:
    """Copy a stage's output to its artifact's place, in place of what a failed attempt has left there."""
    if place.exists():
        shutil.rmtree(place)
    if packed:
        place.mkdir(parents=True)
        _pack(output, place / PACKED)
    else:
        shutil.copytree(output, place, ignore=lambda folder, _: [MANIFEST] if Path(folder) == output else [])
    for name in (RUN, MANIFEST):
        shutil.copyfile(output / name, place / name)


@contextmanager
def unpacked(artifacts: Sequence[dsl.Artifact]) -> Iterator[list[Path]]:
    """Yield folders of this machine with the files of artifacts that were `written` packed.

    Raises:
        DataError: one is missing or damaged.
    """
    with tempfile.TemporaryDirectory(prefix="laurel-") as scratch:
        places = []
        for number, artifact in enumerate(artifacts):
            source = Path(artifact.path)
            place = Path(scratch) / f"{number}-{source.name}"
            place.mkdir()  # an archive without files makes none
            try:
                with zipfile.ZipFile(source / PACKED) as files:
                    files.extractall(place)
                for name in (RUN, MANIFEST):
                    shutil.copyfile(source / name, place / name)
            except (OSError, zipfile.BadZipFile) as error:
                reason = str(error).splitlines()[0]
                raise DataError(f"{source}: cannot be read ({reason}). Run the step that writes it again.") from None
            places.append(place)
        yield places


def _pack(folder: Path, file: Path) -> None:
    """Write the files of a folder as one archive, without its manifest; the same files give the same bytes."""
    excluded = (folder / MANIFEST, folder / RUN)
    with zipfile.ZipFile(file, "w") as packed:
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path not in excluded):
            packed.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())


def _say(name: str, event: str, detail: str = "") -> None:
    sys.stderr.write(f"laurel step {name}: {event}{f' ({detail})' if detail else ''}\n")
    sys.stderr.flush()
