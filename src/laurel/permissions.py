"""What a user permits a params file to do: send a key to a server, and keep answers outside the working directory.

Params files are passed around, so a params file alone may not send secrets or write to other folders. Permission comes
from the user's environment or command line, and is passed to pipeline steps through the environment.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

KEYS = "LAUREL_ALLOW_KEYS"
"""Pairs NAME@HOST or NAME@HOST:PORT, with spaces or commas between them."""
RESPONSES = "LAUREL_ALLOW_RESPONSES"
"""A file outside of the working directory in which answers may be kept."""
KNOWN_HOSTS = {
    "OPENAI_API_KEY": "api.openai.com",
    "OPENROUTER_API_KEY": "openrouter.ai",
    "MISTRAL_API_KEY": "api.mistral.ai",
    "GROQ_API_KEY": "api.groq.com",
    "TOGETHER_API_KEY": "api.together.xyz",
    "DEEPSEEK_API_KEY": "api.deepseek.com",
    "FIREWORKS_API_KEY": "api.fireworks.ai",
    "GEMINI_API_KEY": "generativelanguage.googleapis.com",
    "ANTHROPIC_API_KEY": "api.anthropic.com",
}
"""A key's variable -> the host of its issuer, which knows the key already."""
_KEY_NAME = re.compile(r"(?:[A-Za-z0-9_]+_)?(?:KEY|TOKEN)(?:_[A-Za-z0-9]+)?", re.IGNORECASE)
_GRANT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*@[A-Za-z0-9.:\[\]-]+")


def looks_like_a_key(name: str) -> bool:
    """Whether the name of a variable says that it holds a key, e.g. OPENAI_API_KEY or VLLM_TOKEN_2."""
    return _KEY_NAME.fullmatch(name) is not None


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine: localhost, 127.0.0.0/8 or ::1; a name such as 127.0.0.1.example is not."""
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def why_key_is_withheld(name: str, endpoint: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return why a key may not be sent to a server, with the command that permits it; None where it may.

    Args:
        endpoint: address of the server.
        environment: the user's variables.
    """
    url = urlsplit(endpoint)
    if not looks_like_a_key(name):
        return f"annotate.openai.api_key_env is {name}, which is not the name of a key."
    if url.scheme != "https" and not is_loopback(url.hostname):
        return (
            f"{name} is not sent to {endpoint}, where anyone on the way could read it: use https, or a tunnel to "
            "localhost, or leave annotate.openai.api_key_env out."
        )
    host = (url.hostname or "").lower()
    place = host if url.port in (None, 443) else f"{host}:{url.port}"
    grants = environment.get(KEYS, "").replace(",", " ").split()
    if place == KNOWN_HOSTS.get(name) or f"{name}@{place}" in grants:
        return None
    malformed = next((grant for grant in grants if not _GRANT.fullmatch(grant)), None)
    if malformed is not None:
        return f"{KEYS} must be made of NAME@HOST, e.g. {name}@{place}, but one of its entries is not."
    grant = shlex.quote(f"{name}@{place}")
    return (
        f"{name} is not sent to {place}, since a params file alone may not decide where a key goes. If you trust this "
        f'server with it, add --allow-key {grant} or type: export {KEYS}="${KEYS} "{grant}'
    )


def why_responses_are_refused(responses: Path, project: Path) -> str | None:
    """Return why answers may not be kept in a file, with the command that permits it; None where they may.

    Args:
        responses: annotate.language_model.responses.
        project: the folder of the params file.
    """
    place, allowed = _absolute(responses), os.environ.get(RESPONSES)
    if any(map(place.is_relative_to, (_absolute("."), _absolute(project)))):
        return None
    if allowed and place == _absolute(allowed):
        return None
    quoted = shlex.quote(str(responses))
    return (
        f"annotate.language_model.responses is {responses}, which is neither below the working directory nor below the "
        f"folder of the params file. If you want answers to be kept there, type: export {RESPONSES}={quoted} "
        f"(or add --responses {quoted} to laurel annotate)"
    )


def _absolute(path: Path | str) -> Path:
    """Return an absolute path without `..`; links are kept: only the user can have made them."""
    return Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow links


def add_permissions(parser: argparse.ArgumentParser) -> None:
    """Add the options that grant permissions to a command."""
    parser.add_argument(
        "--allow-key",
        action="append",
        default=argparse.SUPPRESS,
        metavar="NAME@HOST",
        help=f"send this key to this server; the variable {KEYS} has the same effect",
    )
    parser.add_argument(
        "--responses",
        default=argparse.SUPPRESS,
        metavar="FILE",
        help=f"keep answers in this file outside of the working directory, which annotate.language_model.responses "
        f"names; the variable {RESPONSES} has the same effect",
    )


def take_permissions(options: argparse.Namespace) -> None:
    """Put the permissions of the command line into the environment of this process and its children."""
    for grant in getattr(options, "allow_key", ()):
        os.environ[KEYS] = f"{os.environ.get(KEYS, '')} {grant}".strip()
    if isinstance(allowed := getattr(options, "responses", None), str):
        os.environ[RESPONSES] = allowed
