"""What every component does around its stage: check params, mark begin and end, say a failure in one line.

Runs inside the step's own process; knows nothing about which runner or cloud started it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.errors import LaurelError
from laurel.params import Params, parse_params

if TYPE_CHECKING:
    from kfp import dsl

TRACKING_URI = "MLFLOW_TRACKING_URI"
BEGUN, DONE, FAILED = "begun", "done", "failed"


@contextmanager
def step(name: str, params: Mapping[str, Any]) -> Iterator[Params]:
    """Yield the checked parameters; end the process with code 2 and one line where the user can mend a failure.

    Without MLFLOW_TRACKING_URI in the environment, tracking is turned off: a database in a container's working
    directory would go with the container.

    Args:
        name: of the step, as its lines show it, e.g. "caption" or "train-agents oracle".
        params: the content of params.yaml. Whole numbers may come as floats, as KFP's backends send them.
    """
    _say(name, BEGUN)
    started = time.monotonic()
    try:
        checked = parse_params(_whole(params), "params")
        if checked.tracking.enabled and not os.environ.get(TRACKING_URI):
            _say(name, "not tracked", f"{TRACKING_URI} is not set")
            checked = checked.model_copy(update={"tracking": checked.tracking.model_copy(update={"enabled": False})})
        yield checked
    except LaurelError as error:
        _say(name, FAILED, " ".join(str(error).split()))
        sys.exit(2)
    _say(name, DONE, f"{time.monotonic() - started:.1f} s")


def describe(artifact: dsl.Artifact) -> None:
    """Show what a stage's output holds beside it in KFP: counts and digest of its manifest."""
    manifest = json.loads((Path(artifact.path) / "manifest.json").read_text(encoding="utf-8"))
    artifact.metadata.update(manifest["counts"])
    artifact.metadata["digest"] = manifest["digest"]


def _say(name: str, event: str, detail: str = "") -> None:
    sys.stderr.write(f"laurel step {name}: {event}{f' ({detail})' if detail else ''}\n")
    sys.stderr.flush()


def _whole(value: Any) -> Any:
    """Turn 5.0 back into 5: JSON structures of KFP hold floats alone. A float parameter takes either."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case Mapping():
            return {key: _whole(item) for key, item in value.items()}
        case list() | tuple():
            return [_whole(item) for item in value]
        case _:
            return value
