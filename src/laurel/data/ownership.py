"""Which stage wrote a directory, for writers of outputs and of users' files, which must not replace or add to another's
output.
"""

from __future__ import annotations

from pathlib import Path

from laurel.data.json_file import read_json
from laurel.data.manifest import LIVE_PAGE, MANIFEST
from laurel.errors import DataError


def stage_of(directory: Path) -> str | None:
    """Return the stage that wrote a directory; None if no stage did, or its manifest cannot be read."""
    try:
        manifest = read_json(directory / MANIFEST)
    except DataError:
        return None
    stage = manifest.get("stage") if isinstance(manifest, dict) and "digest" in manifest else None
    return stage if isinstance(stage, str) else None


def check_replaceable(output: Path, stage: str) -> None:
    """Refuse to replace what this stage did not write: publishing an output deletes the previous content.

    Raises:
        DataError: another stage's output, files of the user's, or a file is there.
    """
    if not output.is_dir():
        if output.exists():
            raise DataError(f"{output}: is a file, but a directory is needed. Remove it, or choose another --output.")
        return
    owner = stage_of(output)
    if owner is not None and owner != stage:
        raise would_be_lost(output, owner)
    if not (output / MANIFEST).is_file() and any(file.name != LIVE_PAGE for file in output.iterdir()):
        raise DataError(f"{output}: holds files that Laurel did not write. Choose another --output, or empty it first.")


def would_be_lost(output: Path, stage: str) -> DataError:
    """Return the error for an output that must not be replaced."""
    return DataError(
        f'{output}: holds the output of the stage "{stage}", which would be lost. Choose another --output, or remove '
        "it first."
    )


def check_outside_outputs(path: Path) -> None:
    """Refuse to write a file or directory into a stage's output, whose digest would then be wrong.

    Raises:
        DataError: it lies in such an output, or is one.
    """
    place = path.resolve()
    for directory in (place, *place.parents):
        if (stage := stage_of(directory)) is not None:
            raise DataError(
                f'{path}: lies in {directory}, the output of the stage "{stage}", which would then count as changed. '
                "Choose another --output."
            )
