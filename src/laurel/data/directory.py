"""Directories that stages write: whole or not at all, each with a `manifest.json` that says where it is from.

A stage writes into a hidden directory beside its output, which is renamed into place when all is there. A
killed stage leaves that hidden directory: a resumable stage goes on in it, any other begins anew. An output that is a
symbolic link stays one: what it leads to is replaced, where that is.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from laurel import __version__
from laurel.data import digests
from laurel.errors import DataError
from laurel.machine import machine

MANIFEST = "manifest.json"
RUN = ".run.json"
"""What is true of one run alone: how long it took, what it cost, its runs in MLflow. DVC ignores this file, so that two
runs with the same result have the same hashes; it lies in the output, so that it appears and moves with it."""
RUN_PAGE = "run.html"
"""The same for a person, beside the report; DVC ignores it, too."""
LIVE_PAGE = "live.html"
"""Learning curves while agents train, where the report will be; DVC ignores it, too."""
RUN_FACTS: Mapping[str, Any] = {
    "seconds": None,
    "usage": {},
    "mlflow_run_id": None,
    "mlflow_agent_runs": {},
    "run_notes": [],
}
"""Keys of RUN, which `read_manifest` adds to the manifest's -> what they are where RUN is missing."""
LOCK_SECONDS = 10.0
"""How long a reader waits for a writer between its two renames, which follow each other at once."""
SPENT = ".seconds.json"
"""Seconds that stopped runs worked on what is there; written when the next one begins, and gone in the end."""


@dataclass
class Output:
    """A directory being written. What is put into `counts` and `notes` goes into its manifest."""

    path: Path
    """Where to write; not the final place."""
    counts: dict[str, Any] = field(default_factory=dict)
    """Counts of rows, episodes, skips."""
    notes: list[str] = field(default_factory=list)
    """What was skipped, degraded or simulated, as sentences; the report shows them."""
    run_notes: list[str] = field(default_factory=list)
    """What went wrong in this run without any effect on the content, e.g. with MLflow."""
    usage: dict[str, Any] = field(default_factory=dict)
    """What it cost: calls of a model, tokens. The same result may cost nothing the next time."""
    mlflow_run_id: str | None = None
    agent_runs: dict[str, str] = field(default_factory=dict)
    """Agent -> its run in MLflow, where there are agents."""
    started: float = field(default_factory=time.monotonic)
    """When this run began; earlier by as long as stopped runs had worked on the same."""

    @property
    def seconds(self) -> float:
        """How long the work has taken so far, stopped runs included."""
        return round(time.monotonic() - self.started, 2)


@contextmanager
def output_directory(
    output: Path,
    *,
    stage: str,
    params: Mapping[str, Any],
    inputs: Mapping[str, Path] | None = None,
    resumable: bool = False,
) -> Iterator[Output]:
    """Yield a place to write; publish it as `output` with a manifest if the block succeeds.

    Args:
        output: the directory to make or replace.
        stage: name of the stage that writes, for the manifest.
        params: the parameters that the content depends on.
        inputs: name -> directory, or file of the user's own, that the content was made from.
        resumable: keep what was written if the block fails, for the next call with the same params and inputs.

    Raises:
        DataError: the place cannot be written (full, read-only), or another process is writing it; an input is not
            what its stage wrote, or was replaced while it was read.
    """
    started = time.monotonic()
    output = _followed(output)
    made_from = {name: _digest_input(path) for name, path in (inputs or {}).items()}
    key = digest_json({"stage": stage, "params": params, "inputs": made_from, "version": __version__})[:12]
    partial = output.parent / f".{output.name}.{key}.partial"
    with ExitStack() as held:
        with _explaining(output):
            output.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(FileLock(_lock(output), blocking=False))
            recover(output)
            _check_replaceable(output)
            _remove_partial(output, keep=partial if resumable else None)
            partial.mkdir(exist_ok=resumable)
            _remove_half_written(partial)
            earlier = _seconds_of_stopped_runs(partial) if resumable else 0.0
        out = Output(partial, started=started - earlier)
        try:
            yield out
        except BaseException as error:  # also Ctrl-C: what cannot go on must not lie around
            if not resumable:
                shutil.rmtree(partial, ignore_errors=True)
            if isinstance(error, OSError) and _is_of_writing(error, partial):
                raise _explained(output, error) from error
            raise
        for name, path in (inputs or {}).items():
            if _digest_input(path) != made_from[name]:
                raise DataError(f"{path}: was replaced while it was read. Run laurel {stage} again.")
        with _explaining(output):
            (partial / SPENT).unlink(missing_ok=True)
            manifest = {
                "stage": stage,
                "version": __version__,
                "params": params,
                "inputs": made_from,
                "digest": digest_directory(partial),
                "counts": out.counts,
                "notes": out.notes,
                "machine": machine(),
            }
            run = {
                "digest": manifest["digest"],
                "seconds": out.seconds,
                "usage": out.usage,
                "mlflow_run_id": out.mlflow_run_id,
                "mlflow_agent_runs": out.agent_runs,
                "run_notes": out.run_notes,
            }
            write_json(partial / RUN, run)
            write_json(partial / MANIFEST, manifest)
            replace_directory(partial, output)


def check_output(output: Path) -> None:
    """Refuse a place that `output_directory` would refuse, before long work whose result is to go there.

    Raises:
        DataError: the place cannot be written, or holds what no stage wrote.
    """
    output = _followed(output)
    with _explaining(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(output.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        recover(output)
        _check_replaceable(output)


def read_manifest(path: Path, stage: str | None = None) -> dict[str, Any]:
    """Read the manifest of a stage's output, whose files are as they are; `checked_manifest` looks at them.

    RUN_FACTS are added, from the run that wrote it; where that is not known, e.g. of data that DVC pulled, they are
    empty.

    Raises:
        DataError: it is missing, damaged or another stage's.
    """
    command = f"laurel {stage}" if stage else "the stage that makes it"
    recover_killed(path)
    if not path.is_dir():
        raise DataError(f"{path}: no such directory. Run laurel run or {command} first.")
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or "stage" not in manifest or "digest" not in manifest:
        raise DataError(f"{path / MANIFEST}: not a manifest of Laurel's. Run {command} again.")
    if stage is not None and manifest["stage"] != stage:
        raise DataError(f'{path}: holds the output of "{manifest["stage"]}", but that of "{stage}" is needed.')
    return manifest | _run_facts(path, manifest["digest"])


def _run_facts(path: Path, digest: str) -> dict[str, Any]:
    """Read RUN where it is of the content that is there: DVC replaces that, and leaves the file."""
    run = read_json(path / RUN) if (path / RUN).exists() else {}
    return {**RUN_FACTS, **({key: run[key] for key in RUN_FACTS} if run.get("digest") == digest else {})}


def checked_manifest(path: Path, stage: str | None = None) -> dict[str, Any]:
    """Read the manifest of a stage's output, and check that its files are those that the stage wrote.

    Raises:
        DataError: as `read_manifest`, or a file was changed, added or removed since.
    """
    manifest = read_manifest(path, stage)
    try:
        found = digest_directory(path)
    except OSError as error:
        raise DataError(f"{error.filename or path}: cannot be read ({error.strerror or error}).") from None
    if found != manifest["digest"]:
        stage = manifest["stage"]
        changed = _changed_since(path)
        what = f"{changed}: is not what" if changed else f"{path}: holds other files than"
        raise DataError(
            f"{what} laurel {stage} wrote. Put back what was there, or run laurel {stage} again (with DVC: "
            f"`dvc repro --force {stage}`)."
        )
    return manifest


def _changed_since(path: Path) -> Path | None:
    """Return the file that was written after the manifest, which a stage writes last; None where that is not one."""
    last = (path / MANIFEST).stat().st_mtime_ns
    later = [f for f in path.rglob("[!.]*") if f.is_file() and f.name != MANIFEST and f.stat().st_mtime_ns > last]
    return later[0] if len(later) == 1 else None


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: it is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Run the stage that writes it again.") from None
    except (ValueError, OSError) as error:
        raise DataError(f"{path}: cannot be read ({error}). Run the stage that writes it again.") from None


def write_json(path: Path, content: Any) -> None:
    """Write JSON with sorted keys, so that the same content gives the same bytes; whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def digest_directory(path: Path) -> str:
    """Return the SHA-256 of a directory's files, without MANIFEST, pages of one run and hidden ones."""
    return digests.digest_directory(path, without=(MANIFEST, RUN_PAGE, LIVE_PAGE))


def stamp_directory(path: Path) -> str:
    """Return what is the same for as long as no file that `digest_directory` reads is written, moved or removed."""
    return digests.stamp_directory(path, without=(MANIFEST, RUN_PAGE, LIVE_PAGE))


def _digest_input(path: Path) -> str:
    if path.is_file():
        return digests.digest_file(path)
    return str(checked_manifest(path)["digest"])


def digest_json(content: Any) -> str:
    """Return the SHA-256 of plain values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def replace_directory(finished: Path, place: Path) -> None:
    """Move a finished directory into place; what was there goes only when its successor is complete and on disk."""
    for path in (finished, *finished.rglob("*")):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        else:
            sync_directory(path)
    previous = _previous(place)
    _remove(previous)
    if place.exists():
        place.rename(previous)
    finished.rename(place)
    sync_directory(place.parent)
    _remove(previous)


def sync_directory(path: Path) -> None:
    """See to it that names made, changed and removed in a directory outlive a loss of power, where that can be done."""
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
    if _previous(place).exists() and not place.exists():
        _previous(place).rename(place)


def recover_killed(path: Path) -> None:
    """Put back what a killed writer had moved aside of a path, or of a directory above it; for readers.

    A writer that lives holds its lock until both renames are done: it is waited for. Where the reader may not write,
    nothing is put back.
    """
    path = path.resolve() if path.is_symlink() else path
    for place in (*reversed(path.parents), path):
        if not place.exists() and _previous(place).exists():
            with suppress(OSError, Timeout), FileLock(_lock(place), timeout=LOCK_SECONDS):
                recover(place)


def _previous(place: Path) -> Path:
    return place.parent / f".{place.name}.previous"


def _lock(place: Path) -> Path:
    return place.parent / f".{place.name}.lock"


def _remove(previous: Path) -> None:
    """Remove what was moved aside, which may be a symbolic link."""
    if previous.is_symlink():
        previous.unlink()
    else:
        shutil.rmtree(previous, ignore_errors=True)


def _followed(output: Path) -> Path:
    """Return where an output lies that may be a symbolic link, to a place that need not exist yet.

    Raises:
        DataError: the link leads to itself.
    """
    if not output.is_symlink():
        return output
    try:
        return output.resolve()
    except (OSError, RuntimeError):
        raise DataError(f"{output}: is a symbolic link that leads to itself. Choose another --output.") from None


def _remove_half_written(partial: Path) -> None:
    """Remove what a kill left of files that `write_json` was writing: it would be published with the rest."""
    for file in partial.rglob(".*.partial"):
        if file.is_file():
            file.unlink()


def _check_replaceable(output: Path) -> None:
    """Refuse to replace what no stage wrote: publishing deletes what was there."""
    if output.is_dir():
        if (output / MANIFEST).is_file() or all(file.name == LIVE_PAGE for file in output.iterdir()):
            return
        raise DataError(f"{output}: holds files that are not Laurel's. Choose another --output, or empty it first.")
    if output.exists():
        raise DataError(f"{output}: is a file, but a directory is needed. Choose another --output.")


def _remove_partial(output: Path, keep: Path | None) -> None:
    for stale in output.parent.glob(f".{glob.escape(output.name)}.*.partial"):
        if stale != keep:
            shutil.rmtree(stale, ignore_errors=True)


def _seconds_of_stopped_runs(partial: Path) -> float:
    """Return how long stopped runs worked on what is there, and note that another begins.

    A run that was killed could not say when. It counts until it last wrote something; what it did after that is lost.
    """
    note = partial / SPENT
    seconds = 0.0
    if note.exists():
        last_written = max(path.stat().st_mtime for path in partial.rglob("*"))
        seconds = float(read_json(note)) + last_written - note.stat().st_mtime
    write_json(note, seconds)
    return seconds


@contextmanager
def _explaining(output: Path) -> Iterator[None]:
    try:
        yield
    except Timeout:
        raise DataError(f"{output}: another process is writing it. Wait for it to end, then run again.") from None
    except OSError as error:
        raise _explained(output, error) from error


def _is_of_writing(error: OSError, partial: Path) -> bool:
    """Whether an error in a stage's work is about its output; others are not for this module to explain."""
    below = isinstance(error.filename, str) and Path(error.filename).is_relative_to(partial)
    return error.errno in (errno.ENOSPC, errno.EDQUOT) or below


def _explained(output: Path, error: OSError) -> DataError:
    place = error.filename or output
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return DataError(f"{place}: the disk is full. Free some space and run again; what was there is kept.")
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return DataError(
                f"{place}: not writable ({error.strerror}). Choose another --output or fix its permissions."
            )
        case _:
            return DataError(f"{place}: cannot be written ({error.strerror or error}).")
