"""What the tests need that start containers: an engine, an image, a project small enough."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

IMAGE, WHY = "LAUREL_TEST_IMAGE", "LAUREL_TEST_IMAGE_MISSING"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def image() -> str:
    """The image of the steps, as .ci/docker builds it."""
    name = os.environ.get(IMAGE)
    if not name:
        pytest.skip(os.environ.get(WHY) or f"{IMAGE} names no image: .ci/docker builds one")
    try:
        found = subprocess.run(["docker", "image", "inspect", name], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"no Docker engine answers: {error}")
    if found.returncode:
        pytest.skip(f"{IMAGE}: {found.stderr.strip()}")
    return name


@pytest.fixture(scope="session")
def in_container(image: str) -> Run:
    """Run a command in a new container."""

    def run(*command: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        whole = ["docker", "run", "--rm", *options, image, *command]
        return subprocess.run(whole, capture_output=True, text=True, timeout=600)

    return run
