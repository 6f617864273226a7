"""Errors: one family, and a hint only where a name is near."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

from laurel import errors
from laurel.cli.app import main
from laurel.data.lineage import PRODUCERS
from laurel.errors import LaurelError, closest
from tiny_project import REPOSITORY

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
SOURCES = [file for part in ("src/laurel", "components", "pipelines") for file in (REPOSITORY / part).rglob("*.py")]


def test_every_error_is_laurels_and_says_when_it_is_raised() -> None:
    assert len(KINDS) > 1
    for kind in KINDS:
        assert issubclass(kind, LaurelError)
        assert kind.__doc__
        with pytest.raises(LaurelError, match=r"^what is wrong$"):
            raise kind("what is wrong")


NARROWER = {"MissingEnvError", "MissingPackageError", "RefusedLabelsError"}
"""Kinds that are caught with another, whose special case they are."""


def test_errors_are_siblings() -> None:
    """Catching one kind must not catch another, but for those that are a narrower kind of it."""
    assert {kind.__name__ for kind in KINDS if kind.__bases__ != (LaurelError,)} - {"LaurelError"} == NARROWER


@pytest.mark.parametrize(
    ("name", "allowed", "hint"),
    [
        ("agnet", ("agent", "annotate"), ' Did you mean "agent"?'),
        ("gama", ["clip_range", "gamma", "gae_lambda"], ' Did you mean "gamma"?'),
        ("MiniGrid-DoorKey-8x8", {"MiniGrid-DoorKey-8x8-v0": 1}, ' Did you mean "MiniGrid-DoorKey-8x8-v0"?'),
        ("agent", ("agents", "agent"), ' Did you mean "agent"?'),
        ("zzz", ("agent", "annotate"), ""),
        ("agent", (), ""),
        ("", ("agent",), ""),
    ],
)
def test_the_nearest_name_is_offered(name: str, allowed: object, hint: str) -> None:
    assert closest(name, allowed) == hint  # type: ignore[arg-type]


def test_messages_name_existing_commands() -> None:
    texts = [
        node.value
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = {name for text in texts for name in re.findall(r"[Rr]un `?laurel ([\w-]+)", text)}
    assert {"collect", "evaluate"} <= named
    for command in sorted(named | set(PRODUCERS.values())):
        with pytest.raises(SystemExit) as end:
            main([command, "--help"])
        assert end.value.code == 0, f"laurel {command}"
