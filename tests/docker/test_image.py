"""The image of the steps: its contents, and the users that it runs as."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from laurel import __version__
from tiny_project import REPOSITORY

pytestmark = pytest.mark.docker

Run = Callable[..., subprocess.CompletedProcess[str]]

LARGEST = 2.4e9
"""Bytes; 2.19e9 were measured on a Debian of 0.19e9."""
INSTALLED = """
import importlib.metadata as metadata, json
print(json.dumps([(d.metadata["Name"], d.version) for d in metadata.distributions()]))
"""
UNFIT = """
import importlib.metadata as metadata
from packaging.requirements import Requirement
wrong = []
for distribution in metadata.distributions():
    for line in distribution.requires or []:
        wanted = Requirement(line)
        if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            fits = wanted.specifier.contains(metadata.version(wanted.name), prereleases=True)
        except metadata.PackageNotFoundError:
            fits = False
        if not fits and distribution.metadata["Name"] != "kfp":
            wrong.append(f"{distribution.metadata['Name']} needs {line}")
print(wrong)
"""


@pytest.fixture(scope="module")
def config(image: str) -> Any:
    described = subprocess.run(["docker", "image", "inspect", image], capture_output=True, text=True, check=True)
    return json.loads(described.stdout)[0]


def test_how_it_starts(config: Any) -> None:
    assert not config["Config"]["Entrypoint"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", config["Config"]["User"])  # by number, as Kubernetes wants to check it
    assert config["Config"]["Cmd"] == ["laurel", "--help"]


def test_labels(config: Any) -> None:
    labels = config["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == __version__
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?|unknown", labels["org.opencontainers.image.revision"])


def test_its_size(config: Any) -> None:
    assert config["Size"] < LARGEST


def test_no_secrets_or_settings_of_the_builder(config: Any, in_container: Run) -> None:
    assert not [line for line in config["Config"]["Env"] if re.match(r"PIP_|.*(TOKEN|PASSWORD|SECRET|KEY)\b", line)]
    assert in_container("cat", "/etc/pip.conf").returncode != 0


@pytest.mark.parametrize("options", [(), ("--user", "12345:12345", "--network", "none")])
def test_it_answers_without_help(in_container: Run, options: tuple[str, ...]) -> None:
    assert in_container(options=options).stdout.startswith("usage: laurel")
    done = in_container("python3", "-c", "import laurel; print(laurel.__version__)", options=options)
    assert done.stdout == f"{__version__}\n", done.stderr


def test_a_stranger_without_network_can_work(in_container: Run) -> None:
    """The encoder is in the image; caches go where any user may write."""
    options = ("--user", "12345:12345", "--network", "none", "--read-only", "--tmpfs", "/tmp")
    script = (
        "import getpass, matplotlib.pyplot, torch, envpool\n"
        "from laurel.llm.encoder import load_encoder, PACKAGED\n"
        "getpass.getuser()\n"
        "print(load_encoder(PACKAGED).encode(['You open the door.']).shape, torch.version.cuda)\n"
    )
    done = in_container("python", "-c", script, options=options)
    assert done.stdout == "(1, 384) None\n", done.stderr


def test_no_build_or_test_dependencies(in_container: Run) -> None:
    compilers = in_container("sh", "-c", "for p in gcc g++ cc make git dvc pytest ruff mypy; do command -v $p; done")
    assert compilers.stdout == ""
    patterns = ["*/.git", "*/tests/conftest.py", "*/site-packages/*/tests", "/build", "*/.cache/pip", "*/torch/include"]
    search = " -o ".join(f"-path '{pattern}'" for pattern in patterns)
    found = in_container("sh", "-c", f"find / -xdev \\( {search} \\) -print")
    assert found.stdout == ""


def test_packages_are_those_of_the_lock(in_container: Run) -> None:
    lock = {}
    files = [(REPOSITORY / name).read_text() for name in ("requirements.lock", "torch.lock")]
    for line in "".join(files).splitlines():
        if pinned := re.match(r"([\w.-]+)==([^\s;]+)", line):
            lock[_canonical(pinned[1])] = pinned[2]
    installed = {
        _canonical(name): version.partition("+")[0]
        for name, version in json.loads(in_container("python", "-c", INSTALLED).stdout)
    }
    assert {"torch", "kfp", "mlflow", "envpool", "transformers"} <= installed.keys()
    assert not {"dvc", "pytest", "pip"} & installed.keys()
    unlocked = {"laurel-rl", "setuptools"}  # torch asks for the latter in any version
    assert {name: version for name, version in installed.items() if lock.get(name) != version}.keys() <= unlocked


def test_packages_fit_each_other(in_container: Run) -> None:
    done = in_container("python", "-c", UNFIT)
    assert done.stdout == "[]\n", done.stderr


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
