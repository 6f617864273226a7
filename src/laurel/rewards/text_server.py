"""An HTTP server for a text reward model: JSON in, JSON out; a single thread scores texts sequentially.

    POST /score   {"texts": ["..."]} or {"prompts": ["..."], "completions": ["..."]}  ->  {"scores": [0.5]}
    GET /health   {"model": "...", "train": "head"}

Errors are {"error": "a sentence"} with a status of 400 or above. There is no authentication: it is meant for the
loopback interface, or for your own network.
"""

from __future__ import annotations

import json
import socket
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from laurel.errors import DataError
from laurel.rewards.reward_function import MOST_BYTES
from laurel.rewards.text import TextReward
from laurel.rewards.text_pairs import joined

MOST_TEXTS = 1024
"""Maximum number of texts per request."""
SECONDS = 30
"""Timeout of an idle connection, in seconds."""


class RefusedRequestError(Exception):
    """A request that cannot be answered, with a status and a sentence."""

    def __init__(self, status: HTTPStatus, says: str) -> None:
        super().__init__(says)
        self.status, self.says = status, says


class ScoreServer(ThreadingHTTPServer):
    """Serves a reward model.

    Args:
        address: host and port; port 0: a free one.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], reward: TextReward) -> None:
        self.reward = reward
        self.at_work = Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            super().__init__(address, _Handler)
        except (OSError, OverflowError) as error:
            host, port = address
            raise DataError(
                f"{host}:{port} cannot be listened on ({error}). Choose another --host or --port."
            ) from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Its address."""
        host, port = self.server_address[:2]
        return f"http://[{host!s}]:{port}" if self.address_family == socket.AF_INET6 else f"http://{host!s}:{port}"

    def scores(self, content: Any) -> list[float]:
        """Answer the content of a request.

        Raises:
            RefusedRequestError: the request does not have the form that this module's docstring gives.
        """
        texts = _texts(content)
        with self.at_work:
            return [float(score) for score in self.reward.score(texts)]


class _Handler(BaseHTTPRequestHandler):
    server: ScoreServer
    protocol_version = "HTTP/1.1"
    timeout = SECONDS

    def do_GET(self) -> None:
        if self.path != "/health":
            return self._answer(HTTPStatus.NOT_FOUND, {"error": "Use GET /health or POST /score."})
        reward = self.server.reward
        return self._answer(HTTPStatus.OK, {"model": reward.model, "train": reward.train})

    def do_POST(self) -> None:
        try:
            if self.path != "/score":
                raise RefusedRequestError(HTTPStatus.NOT_FOUND, "Use GET /health or POST /score.")
            self._answer(HTTPStatus.OK, {"scores": self.server.scores(self._content())})
        except RefusedRequestError as refused:
            self.close_connection = True  # a body that was not read must not be taken for the next request
            self._answer(refused.status, {"error": refused.says})

    def _content(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise RefusedRequestError(HTTPStatus.LENGTH_REQUIRED, "The request has no Content-Length.")
        if len(length) > 15 or int(length) > MOST_BYTES:
            left = min(int(length[:15]), 10 * MOST_BYTES)  # a client reads no answer while it sends
            while left > 0 and (part := self.rfile.read(min(left, 65536))):
                left -= len(part)
            raise RefusedRequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body is larger than {MOST_BYTES:,} bytes: send fewer texts."
            )
        body = self.rfile.read(int(length))
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, f"The body is not JSON in UTF-8 ({error}).") from None

    def _answer(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing, since texts and addresses are private."""


def _texts(content: Any) -> list[str]:
    if not isinstance(content, dict):
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, 'The body must be an object, such as {"texts": ["..."]}.')
    match {*content}:
        case keys if keys == {"texts"}:
            texts = _strings(content, "texts")
        case keys if keys == {"prompts", "completions"}:
            prompts, completions = _strings(content, "prompts"), _strings(content, "completions")
            if len(prompts) != len(completions):
                raise RefusedRequestError(
                    HTTPStatus.BAD_REQUEST, f"There are {len(prompts)} prompts and {len(completions)} completions."
                )
            texts = [joined(*pair) for pair in zip(prompts, completions, strict=True)]
        case _:
            raise RefusedRequestError(
                HTTPStatus.BAD_REQUEST, "The body must have texts, or prompts and completions, and no more."
            )
    if len(texts) > MOST_TEXTS:
        raise RefusedRequestError(
            HTTPStatus.BAD_REQUEST, f"There are {len(texts):,} texts: send at most {MOST_TEXTS:,} at a time."
        )
    return texts


def _strings(content: dict[str, Any], name: str) -> list[str]:
    values = content[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, f"{name} must be a list of texts.")
    for value in values:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RefusedRequestError(
                HTTPStatus.BAD_REQUEST, f"{name} holds an unpaired surrogate, which is not valid text."
            ) from None
    return values
