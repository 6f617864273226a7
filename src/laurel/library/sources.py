"""Where artefacts come from: a folder, a model in MLflow's registry, or a repository of the Hugging Face hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from laurel.errors import DataError, ParamsError

MLFLOW, HUB = ("models:/", "runs:/"), "hf://"


def path_of(given: Any, name: str) -> str:
    """Return a path that a caller gave.

    Raises:
        ParamsError: it is none, such as None or what has been loaded already.
    """
    if not isinstance(given, str | os.PathLike):
        raise ParamsError(f"laurel: {name} is {type(given).__name__} {given!r:.60}, but must be a path.")
    return os.fspath(given)


def fetched(source: str | Path) -> Path:
    """Return the folder of an artefact, downloading it if necessary.

    Args:
        source: a path; `models:/NAME@ALIAS`, `models:/NAME/VERSION` or `runs:/ID/PATH` at MLFLOW_TRACKING_URI, or in
            the mlflow.db of the working directory; `hf://OWNER/NAME` or `hf://OWNER/NAME/FOLDER`, with `@REVISION`
            after NAME if wanted.

    Raises:
        DataError: it does not exist, or cannot be reached.
        ParamsError: it is neither a text nor a path.
    """
    name = path_of(source, "the location")
    if name.startswith(MLFLOW):
        return _from_mlflow(name)
    if name.startswith(HUB):
        return _from_hub(name)
    if not Path(source).is_dir():
        raise DataError(
            f"{source}: no such directory. Name one that a run wrote, such as data/reward/preference, a model in "
            "MLflow's registry (models:/NAME@ALIAS), or a repository of the Hugging Face hub (hf://OWNER/NAME)."
        )
    return Path(source)


def _from_mlflow(uri: str) -> Path:
    from mlflow.artifacts import download_artifacts

    from laurel.tracking.server import configure, explained, failures, quiet

    quiet()
    configure(Path.cwd())
    try:
        return Path(download_artifacts(uri))
    except failures() as error:
        raise DataError(f"{uri}: MLflow does not have it {explained(error)}.") from None


def _from_hub(uri: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    owner, _, rest = uri.removeprefix(HUB).partition("/")
    name, _, folder = rest.partition("/")
    name, _, revision = name.partition("@")
    if not owner or not name:
        raise DataError(f"{uri}: must be hf://OWNER/NAME or hf://OWNER/NAME/FOLDER.")
    try:
        place = snapshot_download(
            f"{owner}/{name}", revision=revision or None, allow_patterns=f"{folder}/*" if folder else None
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(f"{uri}: cannot be downloaded: {reason}.") from None
    return Path(place) / folder
