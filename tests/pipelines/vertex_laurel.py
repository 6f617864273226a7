"""`laurel pipeline submit` as tests of Vertex AI type it."""

from __future__ import annotations

from collections.abc import Callable

IMAGE = "europe-west4-docker.pkg.dev/demo-project/laurel/laurel-python:1"
PLACE = ["--project", "demo-project", "--region", "europe-west4"]
Laurel = Callable[..., tuple[int, str, str]]
"""Runs a command of `laurel pipeline` for Vertex AI; returns its exit code, output and remarks."""


def submit(laurel: Laurel, *options: str) -> tuple[int, str, str]:
    return laurel("submit", "--bucket", "gs://demo-bucket/laurel", "--image", IMAGE, *options)
