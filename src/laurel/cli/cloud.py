"""Imports the pipeline's modules where they are used, since they need the extra `cloud`."""

from __future__ import annotations

import importlib
from typing import Any

from laurel.errors import LaurelError


def pipelines_module(module: str) -> Any:
    """Import a module of the pipeline.

    Raises:
        LaurelError: it needs a package of the extra `cloud`, which is not installed.
    """
    try:
        return importlib.import_module(f"laurel.pipelines.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("kfp", "kfp_server_api", "google", "requests"):
            raise
        what = "Vertex AI's client" if (error.name or "").startswith("google") else "KFP"
        raise LaurelError(f"This needs {what}, which is not installed: pip install 'laurel-rl[cloud]'") from None
