"""References to secrets, resolved through a fake Secret Manager."""

from __future__ import annotations

import base64
import os
import sys
from typing import Any

import pytest
from vertex_server import VertexServer, error

from laurel.secrets import SecretError, load_secrets

REFERENCE = "projects/demo-project/secrets/mlflow/versions/latest"
VARIABLE = "MLFLOW_TRACKING_PASSWORD"


@pytest.fixture
def manager(google: VertexServer, monkeypatch: pytest.MonkeyPatch) -> VertexServer:
    for name in list(os.environ):
        if name.startswith("LAUREL_SECRET"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LAUREL_SECRETS_ENDPOINT", google.url)
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)  # what the test sets is taken back
    return google


def secret(data: bytes) -> tuple[int, Any]:
    return 200, {"name": REFERENCE, "payload": {"data": base64.b64encode(data).decode()}}


def test_a_reference_becomes_its_secret(manager: VertexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"LAUREL_SECRET_{VARIABLE}", REFERENCE)
    manager.says("secret", secret("hünter2".encode()))
    load_secrets()
    assert os.environ[VARIABLE] == "hünter2"
    (asked,) = manager.of("secret")
    assert asked.path == f"/v1/{REFERENCE}:access"
    assert asked.headers["authorization"] == "Bearer loopback-token"
    load_secrets()
    assert len(manager.of("secret")) == 1, "what is set already stays"


def test_without_references_nothing_is_imported(manager: VertexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    load_secrets()
    assert manager.received == []


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (error(403, "denied"), "this step may not read projects/demo-project/secrets/mlflow/versions/latest: give its"),
        (error(404, "none"), "there is no projects/demo-project/secrets/mlflow/versions/latest: make it"),
        (error(500, "oh"), "Secret Manager answers 500 for projects/demo-project/secrets/mlflow"),
        ((0, None), "cannot be reached (ConnectionError)."),
        (secret(b"\xff\xfehunter2"), "holds no text in UTF-8."),
        ((200, {"payload": {"data": "hunter2!"}}), "holds no text in UTF-8."),
        ((200, ["hunter2"]), "holds no text in UTF-8."),
    ],
    ids=range(7),
)
def test_a_failure_is_one_sentence_without_the_secret(
    manager: VertexServer, monkeypatch: pytest.MonkeyPatch, answer: Any, sentence: str
) -> None:
    monkeypatch.setenv(f"LAUREL_SECRET_{VARIABLE}", REFERENCE)
    manager.says("secret", answer)
    with pytest.raises(SecretError) as failure:
        load_secrets()
    assert sentence in str(failure.value)
    assert VARIABLE in str(failure.value)
    assert "hunter2" not in str(failure.value)
    assert "\n" not in str(failure.value)
    assert VARIABLE not in os.environ


def test_a_malformed_reference_and_missing_credentials(manager: VertexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"LAUREL_SECRET_{VARIABLE}", "hunter2")
    with pytest.raises(SecretError, match="must be projects/PROJECT/secrets/SECRET/versions/VERSION") as failure:
        load_secrets()
    assert "hunter2" not in str(failure.value)
    monkeypatch.setenv(f"LAUREL_SECRET_{VARIABLE}", REFERENCE)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/none.json")
    with pytest.raises(SecretError, match="cannot be read without credentials of Google Cloud"):
        load_secrets()
    assert manager.received == []
