"""What tests of refused submissions share: a project, and `laurel pipeline submit` with options that are right."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from submitting import RIGHT, Refused

from laurel.cli.app import main
from laurel.params import Params
from laurel.pipelines import submission
from laurel.pipelines.template import Spec, compiled
from tiny_project import Project


@pytest.fixture(scope="session")
def compiled_once() -> Callable[..., Spec]:
    """Compile as usual, but cache equal pipelines: every case here would recompile them."""
    known: dict[str, Spec] = {}

    def compiled_once(params: Params, image: str, **form: Any) -> Spec:
        key = repr((params, image, form))
        if key not in known:
            known[key] = compiled(params, image, **form)
        return deepcopy(known[key])

    return compiled_once


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled_once: Callable[..., Spec]) -> Project:
    monkeypatch.setattr(submission, "compiled", compiled_once)
    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_REGION"):
        monkeypatch.delenv(name, raising=False)
    project = Project.create(tmp_path / "p", {"env.backend": "gymnasium"})
    monkeypatch.chdir(project.path)
    return project


@pytest.fixture
def refused(project: Project, capsys: pytest.CaptureFixture[str], loopback_alone: None) -> Refused:
    """Submit with options that are wrong; return the sentences."""

    def refused(
        *options: str, without: tuple[str, ...] = (), right: dict[str, str] = RIGHT, printed: str = ""
    ) -> list[str]:
        given = [part for name, value in right.items() if name not in without for part in (name, value)]
        assert main(["pipeline", "submit", *given, *options]) == 2
        out, err = capsys.readouterr()
        assert out == printed
        assert "Traceback" not in err
        return err.removeprefix("laurel: ").splitlines()

    return refused
