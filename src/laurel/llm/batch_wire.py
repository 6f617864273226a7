"""The JSONL files of OpenAI's Batch API: requests written, answers parsed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from laurel.llm.chat import NO_TOKENS, ChatRequest, Reply, Tokens
from laurel.llm.chat_wire import read_completion
from laurel.llm.retries import Refusal, one_line

PATH: Literal["/v1/chat/completions"] = "/v1/chat/completions"
"""The path of every request in a batch, independent of the server's base path."""
MOST_LINES = 50_000
MOST_BYTES = 200_000_000
"""Limits on a file."""


@dataclass(frozen=True, slots=True)
class Again:
    """No answer yet; another batch may give one."""

    reason: str
    reworded: bool = False
    """Whether the request will be rewritten, because the server did not accept a field."""
    lost: Tokens = NO_TOKENS
    """Tokens that were billed all the same."""


def request_line(key: str, body: Mapping[str, Any]) -> bytes:
    """Return a request as a line."""
    return json.dumps({"custom_id": key, "method": "POST", "url": PATH, "body": body}).encode() + b"\n"


def in_files(
    lines: Iterable[tuple[str, bytes]], most_lines: int = MOST_LINES, most_bytes: int = MOST_BYTES
) -> Iterator[list[tuple[str, bytes]]]:
    """Split (key, line) into files within the limits; a line that exceeds them gets its own file."""
    file: list[tuple[str, bytes]] = []
    size = 0
    for key, line in lines:
        if file and (len(file) == most_lines or size + len(line) > most_bytes):
            yield file
            file, size = [], 0
        file.append((key, line))
        size += len(line)
    if file:
        yield file


def read_line(
    line: str, requests: Mapping[str, ChatRequest], secrets: Iterable[str]
) -> tuple[str, Reply | Refusal | Again] | None:
    """Read a line of a file of answers or of errors.

    Args:
        requests: by key; lines about others are not read.
        secrets: removed from the outcome.

    Returns:
        Key and outcome; None if the line is about another request, or cannot be read. A refusal of status 0: the
        request was never sent, as when the batch ran out of time. Again: the answer is not a chat completion.
    """
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    key = content.get("custom_id") if isinstance(content, dict) else None
    if not isinstance(key, str) or key not in requests:
        return None
    return key, _outcome(content, requests[key], secrets)


def _outcome(content: Mapping[str, Any], request: ChatRequest, secrets: Iterable[str]) -> Reply | Refusal | Again:
    response, error = content.get("response"), content.get("error")
    body = response.get("body") if isinstance(response, Mapping) else None
    status = response.get("status_code") if isinstance(response, Mapping) else None
    if status == 200:
        reply = read_completion(body, request, 0.0)
        if isinstance(reply, Reply):
            return reply.without_secrets(secrets)
        return Again(one_line(reply.reason, secrets), lost=reply.lost)
    if isinstance(status, int) and isinstance(body, Mapping):
        error = body.get("error", body)
    message = error.get("message") or error.get("code") if isinstance(error, Mapping) else error
    return Refusal(status if isinstance(status, int) else 0, error, one_line(message or "no reason", secrets))
