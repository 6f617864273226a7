"""Laurel as it is installed from a wheel: nothing is missing, and it runs from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tiny_project import REPOSITORY, TINY


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack a wheel that was built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    for name in ("src", "components", "pipelines"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    build = "import setuptools.build_meta as b, sys; print(b.build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(folder)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    return folder / "installed"


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "laurel", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_it_holds_every_module_and_file(installed: Path) -> None:
    places = {"src/laurel": "laurel", "components": "laurel/components", "pipelines": "laurel/pipelines"}
    for place, name in places.items():
        data = (".html", ".css", ".jinja", ".js", ".j2", ".typed", ".yaml") if place == "src/laurel" else ()
        for file in (REPOSITORY / place).rglob("*"):
            if file.is_file() and file.suffix in (".py", *data):
                assert (installed / name / file.relative_to(REPOSITORY / place)).is_file(), file
    assert not (installed / "components").exists(), "names that anything may have"


def test_it_runs_from_another_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({**TINY, "tracking": {"enabled": False}}))
    where = subprocess.run(
        [sys.executable, "-c", "import laurel.pipelines; print(laurel.pipelines.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(installed))
    for arguments in (["collect"], ["caption"], ["show", "data/captions"], ["pipeline", "compile", "-o", "p.yaml"]):
        done = run(installed, tmp_path, *arguments)
        assert done.returncode == 0, done.stderr
    assert yaml.safe_load((tmp_path / "p.yaml").read_text())["pipelineInfo"]["name"] == "laurel"
