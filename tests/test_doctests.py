"""Examples in docstrings give the output that they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import laurel

ROOT = Path(laurel.__file__).parent
MODULES = [
    ".".join(("laurel", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for file in sorted(ROOT.rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]


def test_there_are_examples() -> None:
    assert len(MODULES) > 50


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 0
    assert found.failed == 0, "its output, above, differs"
