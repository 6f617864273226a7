"""The table of CONTRIBUTING.md that says what it takes to add something, against the examples that it names."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tiny_project import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
LINK = re.compile(r"\[[^]]+\]\(([^)]+)\)")
BESIDE = "beside its"
"""Words of a count that leaves out the files of another row."""


@dataclass(frozen=True)
class Row:
    what: str
    count: str
    examples: list[list[Path]]
    """The files of each example."""
    tests: list[Path]

    @property
    def modules(self) -> list[str]:
        return [file.stem for files in self.examples for file in files if file.suffix == ".py"]


def rows() -> list[Row]:
    section = (
        (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## What it takes to add something")
    )
    lines = [line for line in section[2].partition("\n## ")[0].splitlines() if line.startswith("| ")]
    found: list[Row] = []
    for line in lines[1:]:
        what, count, examples, tests = (cell.strip() for cell in line.strip("|").split(" | "))
        named = [[REPOSITORY / link for link in LINK.findall(part)] for part in examples.split(" or ")]
        own_tests = found[-1].tests if tests == "the same" else [REPOSITORY / link for link in LINK.findall(tests)]
        found.append(Row(what, count, named, own_tests))
    return found


def entry_points() -> dict[str, str]:
    """Return the kinds that the package of examples adds -> the module of each, without its package."""
    project = tomllib.loads((EXAMPLES / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        kind: place.partition(":")[0].removeprefix("laurel_examples.")
        for group in project["entry-points"].values()
        for kind, place in group.items()
    }


def test_the_table_is_read() -> None:
    assert [row.what.split()[0].rstrip(",:") for row in rows()] == [
        *("environment", "annotator", "question", "reward", "reward", "reward", "agent", "actor", "arm"),
    ]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.what)
def test_an_example_has_the_files_in_the_table(row: Row) -> None:
    assert row.examples
    assert row.tests
    for file in (*row.tests, *(file for files in row.examples for file in files)):
        assert file.is_file()
    number = int(row.count.split()[0].rstrip(","))
    assert {len(files) for files in row.examples} == {number}


def test_each_module_of_the_examples_is_in_one_row() -> None:
    named = [module for row in rows() for module in row.modules]
    assert sorted(named) == sorted(file.stem for file in EXAMPLES.glob("*.py"))
    added = {*entry_points().values()}
    assert added <= {*named}
    assert {*named} - added == {"corridor"}, "which params name by its module"


@pytest.mark.parametrize("row", [row for row in rows() if row.modules], ids=lambda row: row.what)
def test_an_example_only_needs_files_that_its_row_of_the_table_names(row: Row) -> None:
    kinds = entry_points()
    for module in row.modules:
        tree = ast.parse((EXAMPLES / f"{module}.py").read_text(encoding="utf-8"))
        loaded = {
            str(node.args[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".load") and node.args
            if isinstance(node.args[0], ast.Constant)
        }
        imported = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.level or str(node.module).startswith("laurel_examples"))
        ]
        assert not imported
        others = {kinds[kind] for kind in loaded if kind in kinds} - {module}
        assert bool(others) == (BESIDE in row.count), f"{module} needs {others}"
