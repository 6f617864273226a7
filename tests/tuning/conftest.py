from __future__ import annotations

import pytest

from laurel.params import Params, load_params
from tiny_project import REPOSITORY


@pytest.fixture(scope="session")
def params() -> Params:
    """As params.yaml has them."""
    return load_params(REPOSITORY / "params.yaml")
