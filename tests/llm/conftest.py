"""What tests of language models share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_llama import make_tiny_llama


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tiny model; only to be looked at."""
    return make_tiny_llama(tmp_path_factory.mktemp("tiny") / "llama")
