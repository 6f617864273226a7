"""Imports run one way, those within functions and for types alone included: from users to what they use, no circles."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter

import pytest

from laurel.params.kinds import ANNOTATORS
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
        for module, others in used().items()
        for other, example in others.items()
        if layer.get(other, len(LAYERS)) < layer.get(module, 0)
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
def test_scripts_import_existing_names(folder: str) -> None:
    """Tests run few of them, so a moved name could stay unnoticed."""
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


def compared_texts(tree: ast.AST) -> list[tuple[int, str]]:
    """Return the texts that code compares with, each with its line: by an operator, a prefix, a case or a look-up."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            found += [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found += node.args if node.func.attr in ("startswith", "endswith") else []
        elif isinstance(node, ast.MatchValue):
            found.append(node.value)
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
            found += [key for key in node.value.keys if key]
    return [
        (part.lineno, part.value)
        for node in found
        for part in (node, *(node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else ()))
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


def test_no_module_asks_which_annotator_it_is() -> None:
    """Capabilities are declared by the kind, so that annotators of other packages can have them, too."""
    asks = 'a == "scripted" or b in ("openai", x) or c.startswith("ensemble") or {"embedding": 1}[d]'
    assert [text for _, text in compared_texts(ast.parse(asks))] == ["scripted", "openai", "ensemble", "embedding"]
    kinds = {*ANNOTATORS.builtin()}
    allowed = ("laurel.feedback.annotators", "laurel.params")
    modules = {name: file for name, file in our_modules().items() if not name.startswith(allowed)}
    assert {"laurel.feedback.responders", "laurel.stages.hub"} <= modules.keys()
    for folder in ("components", "pipelines"):
        modules |= {f"{folder}/{file.name}": file for file in (REPOSITORY / folder).rglob("*.py")}
    trees = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in modules.items()}
    asking = [(name, *place) for name, tree in trees.items() for place in compared_texts(tree) if place[1] in kinds]
    assert not asking
    imports = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "ENSEMBLE" not in {alias.name for node in imports for alias in node.names}, "it is a kind's name"
