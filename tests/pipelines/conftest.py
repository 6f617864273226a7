"""What tests of submission share: a service in the place of Google Cloud, and credentials for it."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from vertex_laurel import PLACE, Laurel
from vertex_server import VertexServer, serving

from laurel import pipelines
from laurel.cli.app import main
from laurel.pipelines import registry
from tiny_project import Project


@pytest.fixture(scope="session", autouse=True)
def _callers_alone() -> Iterator[None]:
    """Spare KFP the source of each frame of the stack; it wants the name of a caller alone.

    In a test there are a hundred frames and thousands of modules: compiling took 2 s instead of 0.1 s.
    """
    from kfp.dsl import pipeline_task

    def stack() -> list[tuple[None, None, None, str]]:
        asking = sys._getframe(1)
        return [(None, None, None, frame.f_code.co_name) for frame in (asking, asking.f_back) if frame]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_task, "inspect", SimpleNamespace(stack=stack))
        yield


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Hide a package, as if it were not installed, and re-import laurel.pipelines; restore everything afterwards.

    The modules imported meanwhile must not stay: packages keep submodules as attributes too, so that later tests would
    patch a module that nothing imports.
    """
    ours = {name: module for name, module in sys.modules.items() if name.startswith("laurel.pipelines.")}

    def forget() -> None:
        for name in [name for name in sys.modules if name.startswith("laurel.pipelines.")]:
            del sys.modules[name]

    def hide(package: str) -> None:
        forget()
        monkeypatch.setitem(sys.modules, package, None)

    yield hide
    forget()
    for name, module in ours.items():
        sys.modules[name] = module
        setattr(pipelines, name.rpartition(".")[2], module)


@pytest.fixture(scope="session")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(*form).decode()


@pytest.fixture
def loopback_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every connection that would leave this machine.

    google-auth makes one of its own in the background, for the regions of an account; it bears the refusal.
    """
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a connection to {address}")
        connect(self, address)

    def resolved(host: Any, *arguments: Any, **options: Any) -> Any:
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise socket.gaierror(socket.EAI_NONAME, f"{host} is not of this machine")
        return resolve(host, *arguments, **options)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.fixture
def google(
    tmp_path: Path, private_key: str, monkeypatch: pytest.MonkeyPatch, loopback_alone: None
) -> Iterator[VertexServer]:
    """A fake Google Cloud server, and an environment variable with a service account file that points to it."""
    with serving(VertexServer()) as server:
        account = {
            "type": "service_account",
            "project_id": "demo-project",
            "private_key_id": "1",
            "private_key": private_key,
            "client_email": "tester@demo-project.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": f"{server.url}/token",
        }
        file = tmp_path / "account.json"
        file.write_text(json.dumps(account))
        for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_REGION", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.lower(), raising=False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        monkeypatch.setattr(registry, "address", lambda host: server.url)
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Project:
    changes = {"env.backend": "gymnasium", "arms": ["extrinsic", "preference", "random_policy"]}
    return Project.create(tmp_path / "p", changes)


@pytest.fixture
def laurel(
    google: VertexServer, project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Laurel:
    """Run a command of `laurel pipeline` for Vertex AI; return its exit code, output and remarks."""

    def laurel(action: str, *options: str) -> tuple[int, str, str]:
        monkeypatch.chdir(project.path)
        code = main(["pipeline", action, *options, *PLACE, "--api-endpoint", google.url])
        return (code, *capsys.readouterr())

    return laurel
