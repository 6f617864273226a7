"""Laurel installed from a wheel: complete, and it runs from any folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tiny_project import REPOSITORY, TINY


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources in a folder called laurel, as README has it."""
    source = tmp_path_factory.mktemp("home") / "laurel"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "components", "pipelines"):
        shutil.copytree(REPOSITORY / name, source / name, symlinks=True, ignore=ignore)
    return source


def built(clone: Path, folder: Path, kind: str) -> Path:
    """Build a wheel or an editable one; return the folder that it is unpacked in."""
    build = f"import setuptools.build_meta as b, sys; b.build_{kind}(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", build, str(folder)], cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith("laurel_rl-"), "on PyPI, laurel is another library"
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture(scope="module")
def installed(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(clone, tmp_path_factory.mktemp("wheel"), "wheel")


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "laurel", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_it_holds_every_module_and_file(installed: Path) -> None:
    places = {"src/laurel": "laurel", "components": "laurel/components", "pipelines": "laurel/pipelines"}
    for place, name in places.items():
        others = (".html", ".css", ".jinja", ".js", ".j2", ".pyi", ".template", ".typed", ".yaml")
        data = others if place == "src/laurel" else ()
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


def test_an_editable_install_is_found_next_to_a_clone_called_laurel(clone: Path, tmp_path: Path) -> None:
    """Python would treat the folder as a namespace package if nothing on the path precedes it."""
    editable = built(clone, tmp_path, "editable")
    look = (
        "import site, sys; site.addsitedir(sys.argv[1]); import laurel, laurel.components, laurel.pipelines;"
        "print(laurel.__file__, laurel.components.__file__, laurel.pipelines.__file__, sep='\\n')"
    )
    command = [sys.executable, "-S", "-c", look, str(editable)]  # without this environment's own
    done = subprocess.run(command, cwd=clone.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files = [Path(line).resolve() for line in done.stdout.splitlines()]
    assert files == [clone / place / "__init__.py" for place in ("src/laurel", "components", "pipelines")]


def test_no_message_recommends_the_other_laurel_package() -> None:
    advice = re.compile(r"install[^\n]*[ '\"]laurel(\[|['\"\s]*$)", re.MULTILINE)
    places = [REPOSITORY, *(path for path in REPOSITORY.iterdir() if path.name in ("src", "components", "pipelines"))]
    files = [file for place in places for file in (place.glob("*") if place == REPOSITORY else place.rglob("*"))]
    texts = {
        file: file.read_text(encoding="utf-8") for file in files if file.suffix in (".py", ".md", ".yaml", ".toml")
    }
    assert len(texts) > 200
    assert [file for file, text in texts.items() if advice.search(text)] == []
