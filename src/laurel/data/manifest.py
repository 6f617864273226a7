"""The manifest of a stage's output: its origin, and digests to detect modified files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from laurel.data import digests
from laurel.data.asked import ASKED
from laurel.data.json_file import read_json
from laurel.data.replacing import recover_killed
from laurel.errors import DataError

MANIFEST = "manifest.json"
RUN = ".run.json"
"""File with facts of a single run: duration, cost, MLflow runs. DVC ignores it, so that two runs with the same result
have the same hashes; it is inside the output, so it is replaced and moved together with it."""
RUN_PAGE = "run.html"
"""The same as a page, beside the report; DVC ignores it, too."""
LIVE_PAGE = "live.html"
"""Page with learning curves during training, in the folder of the report; DVC ignores it, too."""
WITHOUT = (MANIFEST, RUN_PAGE, LIVE_PAGE)
"""Files that are no part of an output's content."""
RUN_FACTS: Mapping[str, Any] = {
    "seconds": None,
    "usage": {},
    "usage_of_all": False,
    "mlflow_run_id": None,
    "mlflow_left": None,
    "mlflow_agent_runs": {},
    "run_notes": [],
    "ended": {},
    ASKED: [],
}
"""Keys of RUN that `read_manifest` adds to the manifest -> defaults if RUN is missing."""
OF_DVC = ("collect", "caption", "annotate", "train-reward", "train-agents", "evaluate")
"""Stages in dvc.yaml."""
TYPES = {"stage": str, "digest": str, "params": dict, "inputs": dict, "counts": dict, "notes": list}
NEEDED = {"stage", "digest", "params", "inputs"}
RUN_TYPES = {key: type(empty) for key, empty in RUN_FACTS.items() if empty is not None}


def read_manifest(path: Path, stage: str | None = None) -> dict[str, Any]:
    """Read the manifest of a stage's output without checking its files, which `checked_manifest` does.

    RUN_FACTS of the run that wrote it are added; they are empty if unknown, e.g. for data pulled by DVC.

    Raises:
        DataError: it is missing, damaged or another stage's.
    """
    command = f"laurel {stage}" if stage else "the stage that makes it"
    recover_killed(path)
    if not path.is_dir():
        raise DataError(f"{path}: no such directory. Run laurel run or {command} first.")
    if not (path / MANIFEST).exists():
        raise DataError(
            f"{path / MANIFEST}: no such file, so {path} is not the whole output of a stage, such as data/captions. "
            f"Name one, or run {command} again if the file was lost."
        )
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or not manifest.keys() >= NEEDED or not _is_sound(manifest):
        raise DataError(f"{path / MANIFEST}: not a Laurel manifest. Run {command} again.")
    if stage is not None and manifest["stage"] != stage:
        raise DataError(f'{path}: holds the output of "{manifest["stage"]}", but that of "{stage}" is needed.')
    return manifest | _run_facts(path, manifest["digest"])


def _run_facts(path: Path, digest: str) -> dict[str, Any]:
    """Read RUN if it belongs to this content: DVC replaces the content but not this file."""
    try:
        run = read_json(path / RUN) if (path / RUN).exists() else {}
    except DataError:  # whose advice is to run the stage again, which may have taken days
        run = None
    if not isinstance(run, dict) or (run.get("digest") == digest and not _has_types(run, RUN_TYPES)):
        raise DataError(
            f"{path / RUN}: not a run record of Laurel. Remove it: only the run's duration, its cost and its "
            "link to MLflow are lost."
        )
    return {
        **RUN_FACTS,
        **({key: run.get(key, empty) for key, empty in RUN_FACTS.items()} if run.get("digest") == digest else {}),
    }


def _is_sound(manifest: Mapping[str, Any]) -> bool:
    """Whether values have their types, notes are texts, and counts are numbers, or unknown."""
    return (
        _has_types(manifest, TYPES)
        and all(isinstance(note, str) for note in manifest.get("notes", ()))
        and all(isinstance(n, int | float | None) for n in manifest.get("counts", {}).values())
    )


def _has_types(content: Mapping[str, Any], types: Mapping[str, type]) -> bool:
    """Whether the values of these keys, if present, have these types."""
    return all(isinstance(content[key], kind) for key, kind in types.items() if key in content)


def checked_manifest(path: Path, stage: str | None = None) -> dict[str, Any]:
    """Read the manifest of a stage's output, and check that its files are unchanged.

    Raises:
        DataError: as `read_manifest`, or a file was changed, added or removed since.
    """
    manifest = read_manifest(path, stage)
    try:
        unchanged = manifest["digest"] in _digests(path)
    except OSError as error:
        raise DataError(f"{error.filename or path}: cannot be read ({error.strerror or error}).") from None
    if not unchanged:
        stage = manifest["stage"]
        changed = _changed_since(path)
        problem = f"{changed}: is not what" if changed else f"{path}: holds other files than"
        dvc = f" (with DVC: `dvc repro --force {stage}`)" if stage in OF_DVC else ""
        raise DataError(
            f"{problem} laurel {stage} wrote. Restore the original files, or run laurel {stage} again{dvc}."
        )
    return manifest


def _digests(path: Path) -> Iterator[str]:
    """Yield the digest of an output's whole folder, and the one without outputs that were added to it later, such as
    further label sets, which have manifests of their own.
    """
    yield digest_directory(path)
    if nested := [manifest.parent for manifest in path.rglob(MANIFEST) if manifest.parent != path]:
        yield digests.digest_directory(path, excluded=WITHOUT, folders=nested)


def _changed_since(path: Path) -> Path | None:
    """Return the file that was written after the manifest, which a stage writes last; None if there is not exactly
    one.
    """
    last = (path / MANIFEST).stat().st_mtime_ns
    later = [f for f in digests.files_in(path) if f.name != MANIFEST and f.stat().st_mtime_ns > last]
    return later[0] if len(later) == 1 else None


def digest_directory(path: Path) -> str:
    """Return the SHA-256 of a directory's files, except MANIFEST, pages of a single run and hidden files."""
    return digests.digest_directory(path, excluded=WITHOUT)


def stamp_directory(path: Path) -> str:
    """Return a stamp that changes when a file that `digest_directory` reads is written, moved or removed."""
    return digests.stamp_directory(path, excluded=WITHOUT)
