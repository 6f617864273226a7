"""Imports run one way, those within functions and for types alone included: from users to what they use, no circles."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter

import pytest

from our_imports import imported, our_modules
from tiny_project import REPOSITORY

LAYERS = (
    {"cli"},
    {"pipelines", "components"},
    {"library", "stages"},
    {"tuning", "classics", "tracking"},
    {"evaluation", "training"},
    {"feedback", "rewards", "agents"},
    {"envs", "llm", "data"},
    {"params"},
)
"""Packages, users first; each may import those of its own layer and of later ones, and modules beside them."""


def package(module: str) -> str:
    """Return the package within `laurel` that a module is in, or its own name where it is beside them."""
    return module.removeprefix("laurel").removeprefix(".").split(".")[0]


def used() -> dict[str, dict[str, str]]:
    """Return for each package those that it imports, with an import of each as an example."""
    known = our_modules()
    found: dict[str, dict[str, str]] = {package(name): {} for name in known}
    for name, file in known.items():
        for other in imported(file, types=True):
            if package(other) != package(name):
                found[package(name)][package(other)] = f"{name} imports {other}"
    return found


def test_imports_run_one_way() -> None:
    layer = {package: number for number, packages in enumerate(LAYERS) for package in packages}
    upwards = [
        example
        for one, others in used().items()
        for other, example in others.items()
        if layer.get(other, len(LAYERS)) < layer.get(one, 0)
    ]
    assert not upwards
    packages = {path.parent.name for path in (REPOSITORY / "src/laurel").glob("*/__init__.py")}
    assert packages <= set(layer), "each package has its layer"


def test_no_circles() -> None:
    graph = {name: {*imported(file, types=True)} - {name} for name, file in our_modules().items()}
    assert {"laurel.cli.pipeline", "laurel.cli.play"} <= graph["laurel.cli.app"], "imports within functions are seen"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" imports ".join(error.args[1][::-1])) from None


def test_no_two_modules_of_tests_have_one_name() -> None:
    """Pytest would refuse to collect either together with the other."""
    names = [file.name for file in (REPOSITORY / "tests").rglob("*.py") if file.name != "conftest.py"]
    assert [name for name in names if names.count(name) > 1] == []


@pytest.mark.parametrize("folder", ["benchmarks", "examples"])
def test_scripts_import_what_there_is(folder: str) -> None:
    """Few of them are run by tests, so that a name that has moved would be missed for long."""
    found = [
        (script, node.module, name.name)
        for script in sorted((REPOSITORY / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("laurel")
        for name in node.names
    ]
    assert len(found) > 10
    known = our_modules()
    for script, module, name in found:
        assert module in known, f"{script} imports {module}, which there is not"
        here = f"{module}.{name}" in known or re.search(rf"\b{name}\b", known[module].read_text(encoding="utf-8"))
        assert here, f"{script} imports {name} of {module}, which has none"
