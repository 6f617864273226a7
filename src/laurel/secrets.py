"""Secrets of a step in the cloud: references in its environment, resolved through Secret Manager when it starts.

A pipeline's specification is stored in clear, so it holds `LAUREL_SECRET_NAME=projects/…/secrets/…/versions/…`
and never the secret. Needs google-auth and requests, and these only if there is a reference.
"""

from __future__ import annotations

import base64
import binascii
import os
import re

from laurel.errors import LaurelError

PREFIX = "LAUREL_SECRET_"
"""Prefix of variables that hold a reference; the rest of the name is the variable that gets the secret."""
REFERENCE = r"projects/[a-z0-9.:-]+/secrets/[A-Za-z0-9_-]{1,255}/versions/(latest|\d+|[A-Za-z][A-Za-z0-9_-]*)"
ENDPOINT = "https://secretmanager.googleapis.com"
ENDPOINT_VARIABLE = "LAUREL_SECRETS_ENDPOINT"
"""Address of Secret Manager if not Google's global one, e.g. a regional one."""
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TIMEOUT = 30


class SecretError(LaurelError):
    """A secret that could not be read; messages never contain its value."""


def load_secrets() -> None:
    """Set an environment variable for each reference in the environment; one that is already set is kept.

    Raises:
        SecretError: a reference is malformed, or its secret cannot be read.
    """
    references = {name.removeprefix(PREFIX): text for name, text in os.environ.items() if name.startswith(PREFIX)}
    wanted = {name: reference for name, reference in references.items() if name not in os.environ}
    if not wanted:
        return
    for name, reference in wanted.items():
        if not re.fullmatch(REFERENCE, reference):
            raise SecretError(f"{PREFIX}{name}: must be projects/PROJECT/secrets/SECRET/versions/VERSION.")
    try:
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession
    except ModuleNotFoundError as error:
        raise SecretError(
            f"{PREFIX}* needs {error.name}, which the image lacks: pip install google-auth requests"
        ) from None

    try:
        credentials, _ = google.auth.default(scopes=[SCOPE])
        with AuthorizedSession(credentials) as session:
            for name, reference in wanted.items():
                os.environ[name] = _read(session, name, reference)
    except GoogleAuthError as error:
        first = str(error).split("\n")[0][:200]
        raise SecretError(f"the secrets cannot be read without credentials of Google Cloud ({first}).") from None


def _read(session: object, name: str, reference: str) -> str:
    """Ask Secret Manager for one secret; `session` is an AuthorizedSession."""
    import requests

    assert isinstance(session, requests.Session)
    endpoint = os.environ.get(ENDPOINT_VARIABLE, ENDPOINT).rstrip("/")
    try:
        answer = session.get(f"{endpoint}/v1/{reference}:access", timeout=TIMEOUT)
    except requests.RequestException as error:
        raise SecretError(f"{name}: Secret Manager at {endpoint} cannot be reached ({type(error).__name__}).") from None
    match answer.status_code:
        case 200:
            pass
        case 403:
            raise SecretError(
                f"{name}: this step may not read {reference}: give its service account the role "
                "roles/secretmanager.secretAccessor."
            )
        case 404:
            raise SecretError(f"{name}: there is no {reference}: make it with gcloud secrets create.")
        case status:
            raise SecretError(f"{name}: Secret Manager answers {status} for {reference}.")
    try:
        return base64.b64decode(answer.json()["payload"]["data"], validate=True).decode()
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise SecretError(f"{name}: {reference} holds no text in UTF-8.") from None
