"""Options of `laurel pipeline submit` that are right, and what calls it with others."""

from __future__ import annotations

from collections.abc import Callable

IMAGE = "europe-west4-docker.pkg.dev/demo-project/laurel/laurel-python:1"
RIGHT = {
    "--project": "demo-project",
    "--region": "europe-west4",
    "--bucket": "gs://demo-bucket/laurel",
    "--image": IMAGE,
}

Refused = Callable[..., list[str]]
