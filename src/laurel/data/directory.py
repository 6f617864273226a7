"""Output directories of stages, written atomically, each with a `manifest.json` that records its origin.

A stage writes into a hidden directory beside its output, which is renamed into place when it is complete. A killed
stage leaves that hidden directory: a resumable stage continues in it, any other starts over. An output that is a
symbolic link stays one: the directory it points to is replaced.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from laurel import __version__
from laurel.data import digests
from laurel.data.asked import ASKED, Asked, joined
from laurel.data.disk import FULL, is_full, reason_of
from laurel.data.json_file import digest_json, read_json, write_json
from laurel.data.manifest import MANIFEST, RUN, checked_manifest, digest_directory, read_manifest
from laurel.data.own_files import contents_named
from laurel.data.ownership import check_replaceable
from laurel.data.replacing import followed, lock_of, recover, replace_directory
from laurel.data.usage import Spent, Usage, added, together
from laurel.errors import DataError
from laurel.machine import machine, today

SECONDS_SO_FAR, OWN_FILES = ".seconds.json", ".own_files.json"
"""Seconds that interrupted runs worked on the output, and the digests of the user's files that each of them had;
written when the next run begins, removed at the end."""

KEY_LENGTH = 12
"""Length of the key of a stage's work in the names of hidden files."""

LIMITS = ("budget", "gates", "max_failure_rate")
"""Keys of `annotate` that stop a run, and change nothing that is asked."""


@dataclass
class Output:
    """A directory being written; `counts` and `notes` go into its manifest."""

    path: Path
    """Temporary directory to write to."""
    counts: dict[str, Any] = field(default_factory=dict)
    """Counts of rows, episodes, skips."""
    notes: list[str] = field(default_factory=list)
    """Sentences about skipped, degraded or simulated work, for the report."""
    own_files: dict[str, str] = field(default_factory=dict)
    """User's file, such as an environment's module -> its digest, for readers to compare."""
    adapter: str | None = None
    """The adapter, with its version, that packed steps and wrote captions (`laurel.envs.words_of`)."""
    run_notes: list[str] = field(default_factory=list)
    """Problems of this run that do not affect the content, e.g. with MLflow."""
    asked: list[Asked] = field(default_factory=list)
    """Samples of chat models' questions and answers, for MLflow."""
    usage: Usage = field(default_factory=dict)
    """Cost: model calls, tokens. The same result may cost nothing the next time."""
    spent: Spent | None = None
    """Usage of stopped runs of the same work, or of one that was finished under other LIMITS."""
    mlflow_run_id: str | None = None
    mlflow_left: str | None = None
    """The run that was not filled, nor perhaps ended, because MLflow failed."""
    agent_runs: dict[str, str] = field(default_factory=dict)
    """Agent -> its MLflow run, if there are agents."""
    started: float = field(default_factory=time.monotonic)
    """Start time of this run, minus the time that interrupted runs had worked on the same output."""

    @property
    def seconds(self) -> float:
        """Seconds of work so far, including interrupted runs."""
        return round(time.monotonic() - self.started, 2)

    def join(self, part: Mapping[str, Any]) -> None:
        """Add the seconds and the usage of a part that was made elsewhere, by its manifest."""
        self.started -= part["seconds"] or 0.0
        self.usage = added(self.usage, part["usage"])

    def use(self, usage: Usage) -> None:
        """Set `usage` to what this run used so far and what stopped runs used, and note it for a next run."""
        self.usage = usage
        if self.spent is not None:
            self.usage = together(self.spent.usage, usage)
            self.spent.note(self.seconds, self.usage)

    def use_soon(self, usage: Usage) -> None:
        """Do the same for a growing amount, without a note for each answer."""
        self.usage = usage
        if self.spent is not None:
            self.usage = together(self.spent.usage, usage)
            self.spent.note_soon(self.seconds, self.usage)


@contextmanager
def output_directory(
    output: Path,
    *,
    stage: str,
    params: Mapping[str, Any],
    inputs: Mapping[str, Path] | None = None,
    resumable: bool = False,
    limits_matter: bool = False,
) -> Iterator[Output]:
    """Yield a directory to write to; publish it as `output` with a manifest if the block succeeds.

    Args:
        stage: name of the stage that writes, for the manifest.
        params: the parameters that the content depends on.
        inputs: name -> directory, or user's file, that the content was made from.
        resumable: if the block fails, keep partial output for the next call with the same params and inputs.
        limits_matter: whether the content depends on when LIMITS stop asking: agents whose judge is asked during
            training then continue with the labels so far.

    Raises:
        DataError: the output cannot be written (full, read-only), or another process is writing it; an input was
            modified since its stage wrote it, or was replaced while it was read.
    """
    started = time.monotonic()
    output = _followed(output)
    made_from = {name: _digest_input(path) for name, path in (inputs or {}).items()}
    key = _key(stage, params if limits_matter else without_limits(params), made_from)
    partial = output.parent / f".{output.name}.{key}.partial"
    with ExitStack() as held:
        with _explaining(output):
            output.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(FileLock(lock_of(output), blocking=False))
            recover(output)
            check_replaceable(output, stage)
            # what was paid for counts whatever the limits are now, since its answers are used
            spent = _spent(output, _key(stage, without_limits(params, on_limit=False), made_from))
            if not spent.file.exists():
                spent.usage = _used_under_other_limits(output, stage, params, made_from)
            _remove_stale(output, keep=[spent.file, *([partial] if resumable else [])])
        try:
            with _explaining(output):
                partial.mkdir(exist_ok=resumable)
                _remove_half_written(partial)
                earlier = _seconds_of_stopped_runs(partial) if resumable else spent.seconds
                changed = _changed_since_stopped_runs(partial, params) if resumable else []
            out = Output(partial, started=started - earlier, spent=spent)
            if changed:
                files = ", ".join(changed)
                out.notes.append(
                    f"{files} changed while {stage} was interrupted: the work finished before that was kept, and was "
                    "done with the earlier version."
                )
            yield out
        except BaseException as error:  # also Ctrl-C: output that cannot be resumed is removed
            if not resumable:
                shutil.rmtree(partial, ignore_errors=True)
            if isinstance(error, OSError) and _is_of_writing(error, partial):
                raise _explained(output, error) from error
            raise
        for name, path in (inputs or {}).items():
            if _digest_input(path) != made_from[name]:
                raise DataError(f"{path}: was replaced while it was read. Run laurel {stage} again.")
        with _explaining(output):
            for note in (SECONDS_SO_FAR, OWN_FILES):
                (partial / note).unlink(missing_ok=True)
            manifest = {
                "stage": stage,
                "version": __version__,
                "params": params,
                "inputs": made_from,
                "digest": digest_directory(partial),
                "counts": out.counts,
                "notes": out.notes,
                "machine": machine(),
                **({"own_files": out.own_files} if out.own_files else {}),
                **({"adapter": out.adapter} if out.adapter else {}),
            }
            run = {
                "digest": manifest["digest"],
                "seconds": out.seconds,
                "usage": out.usage,
                "usage_of_all": True,  # also of models that act or hint, which earlier versions left out
                "mlflow_run_id": out.mlflow_run_id,
                "mlflow_left": out.mlflow_left,
                "mlflow_agent_runs": out.agent_runs,
                "run_notes": out.run_notes,
                "ended": {"date": today().isoformat(), "cores": os.cpu_count()},
                **({ASKED: joined(out.asked)} if out.asked else {}),
            }
            write_json(partial / RUN, run)
            write_json(partial / MANIFEST, manifest)
            replace_directory(partial, output)
            spent.forget()


def check_output(output: Path, stage: str) -> None:
    """Make the checks of `output_directory` before long work begins.

    Raises:
        DataError: the output cannot be written, or contains files that this stage did not write.
    """
    output = _followed(output)
    with _explaining(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(output.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        recover(output)
        check_replaceable(output, stage)


def _digest_input(path: Path) -> str:
    if path.is_file():
        return digests.digest_file(path)
    return str(checked_manifest(path)["digest"])


def _followed(output: Path) -> Path:
    """Resolve an output that may be a symbolic link; raise DataError for a link to itself."""
    try:
        return followed(output)
    except OSError:
        raise DataError(f"{output}: is a symbolic link to itself. Choose another --output.") from None


def _remove_half_written(partial: Path) -> None:
    """Remove temporary files of `write_json` that a kill left behind, so that they are not published."""
    for file in partial.rglob(".*.partial"):
        if file.is_file():
            file.unlink()


def _key(stage: str, params: Mapping[str, Any], made_from: Mapping[str, str]) -> str:
    """Return the key of a stage's work."""
    return digest_json({"stage": stage, "params": params, "inputs": made_from, "version": __version__})[:KEY_LENGTH]


def without_limits(params: Mapping[str, Any], *, on_limit: bool = True) -> Mapping[str, Any]:
    """Return parameters without LIMITS, which may be raised for work that they stopped.

    Args:
        params: with the section annotate, or without.
        on_limit: keep what happens at a limit, on which what is asked may depend.
    """
    annotate = params.get("annotate")
    if not isinstance(annotate, Mapping):
        return params
    section = {key: value for key, value in annotate.items() if key not in LIMITS}
    if on_limit:
        section["on_limit"] = (annotate.get("budget") or {}).get("on_limit")
    return {**params, "annotate": section}


def left_by_stopped(output: Path, name: str = "partial") -> list[Path]:
    """Return what stopped runs have left beside an output, but not beside one whose name merely begins the same."""
    return list(output.parent.glob(f".{glob.escape(output.name)}.{'[0-9a-f]' * KEY_LENGTH}.{name}"))


def _spent(output: Path, key: str) -> Spent:
    """Return what stopped runs of the same work used."""
    spent = Spent(output.parent / f".{output.name}.{key}.spent.json")
    run = output / RUN
    if spent.file.exists() and run.exists() and spent.file.stat().st_mtime_ns <= run.stat().st_mtime_ns:
        spent.forget()  # that run was killed only after its output was in place
        return Spent(spent.file)
    return spent


def _used_under_other_limits(
    output: Path, stage: str, params: Mapping[str, Any], made_from: Mapping[str, str]
) -> Usage:
    """Return the usage of an output that differs only in LIMITS from what is made now: its answers are used again, as
    when a later stage has reached a limit that is raised. Empty for any other output.
    """
    try:
        before = read_manifest(output, stage)
    except DataError:
        return {}
    then = before["params"]
    if (before["version"], before["inputs"]) != (__version__, made_from) or digest_json(then) == digest_json(params):
        return {}
    work = [digest_json(without_limits(content, on_limit=False)) for content in (then, params)]
    return dict(before["usage"]) if work[0] == work[1] else {}


def _remove_stale(output: Path, keep: Sequence[Path]) -> None:
    """Remove what stopped runs of other work have left."""
    half_written = left_by_stopped(output.with_name(f".{output.name}"), "spent.json.partial")
    for stale in (*left_by_stopped(output), *left_by_stopped(output, "spent.json"), *half_written):
        if stale in keep:
            continue
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)


def _seconds_of_stopped_runs(partial: Path) -> float:
    """Return how long interrupted runs worked on the output, and record that another run begins.

    A killed run counts until the last time it wrote something; its later work is lost.
    """
    note = partial / SECONDS_SO_FAR
    seconds = 0.0
    if note.exists():
        last_written = max(path.stat().st_mtime for path in partial.rglob("*"))
        with suppress(DataError, TypeError, ValueError):  # a damaged note: the time of those runs is unknown
            seconds = float(read_json(note))
        seconds += last_written - note.stat().st_mtime
    write_json(note, seconds)
    return seconds


def _changed_since_stopped_runs(partial: Path, params: Mapping[str, Any]) -> list[str]:
    """Return the user's files that parameters name and that interrupted runs had other versions of; note this one's."""
    note = partial / OWN_FILES
    contents = contents_named(without_limits(params))
    before: list[dict[str, str]] = []
    with suppress(DataError, TypeError):
        before = [entry for entry in read_json(note) if isinstance(entry, dict)] if note.exists() else []
    if contents not in before and (contents or before):
        write_json(note, [*before, contents])
    return sorted(
        {name for earlier in before for name in contents if earlier.get(name, contents[name]) != contents[name]}
    )


@contextmanager
def _explaining(output: Path) -> Iterator[None]:
    try:
        yield
    except Timeout:
        raise DataError(f"{output}: another process is writing it. Wait for it to end, then run again.") from None
    except OSError as error:
        raise _explained(output, error) from error


def _is_of_writing(error: OSError, partial: Path) -> bool:
    """Whether an error in a stage's work is about its output; this module explains only such errors."""
    inside = isinstance(error.filename, str) and Path(error.filename).is_relative_to(partial)
    return is_full(error) or inside


def _explained(output: Path, error: OSError) -> DataError:
    place = error.filename or output
    if is_full(error):
        return DataError(f"{place}: {FULL}")
    match error.errno:
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return DataError(
                f"{place}: not writable ({error.strerror}). Choose another --output or fix its permissions."
            )
        case _:
            return DataError(f"{place}: cannot be written ({reason_of(error)}).")
