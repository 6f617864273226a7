"""Imports the pipeline's modules where they are used, since they need the extra `cloud`."""

from __future__ import annotations

import importlib
from typing import Any

from laurel.extras import missing


def pipelines_module(module: str) -> Any:
    """Import a module of the pipeline.

    Raises:
        LaurelError: it needs a package of the extra `cloud`, which is not installed.
    """
    try:
        return importlib.import_module(f"laurel.pipelines.{module}")
    except ModuleNotFoundError as error:
        raise missing(error) or error from None
