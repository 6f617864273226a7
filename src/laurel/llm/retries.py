"""Errors of requests: one sentence each, and whether to retry."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from http.client import responses
from itertools import count
from random import uniform
from typing import Any, TypeVar

import aiohttp
import httpx2

from laurel.llm.chat import Failure, RefusedError
from laurel.permissions import why_key_is_withheld

AGAIN = frozenset({408, 409, 425, 429})
"""Statuses worth another attempt, besides 5xx."""
LONGEST_WAIT = 30.0
"""Seconds between two attempts at most, unless the server asks for more."""
LONGEST_REASON = 300
NETWORK_ERRORS = (httpx2.RequestError, aiohttp.ClientError, OSError)  # OSError: of which TimeoutError is one

Result = TypeVar("Result")


class TransientError(Exception):
    """A failure that may pass."""

    def __init__(self, reason: str, *, congested: bool = False, unreachable: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.congested = congested
        """The server has too much to do: ask it for less at once."""
        self.unreachable = unreachable
        """There was not even a connection."""
        self.wait = wait
        """Seconds that the server asks for before the same request is sent again."""


async def persistently(
    attempt: Callable[[], Awaitable[Result]],
    attempts: int,
    seconds: Callable[[], float],
    deadline: float,
    backoff: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Result:
    """Await `attempt` until it succeeds; waits are random, below a bound of `backoff` seconds that doubles each time.

    Args:
        attempt: raises TransientError where another makes sense.
        attempts: in all, at most.
        seconds: says how long the attempts themselves took so far, waiting for a turn not counted.
        deadline: seconds of attempts and waits after which no further attempt begins; waits that the server asked for
            are not counted.
        backoff: seconds of the first wait at most.

    Raises:
        TransientError: the last attempt's, with the number of attempts in its reason.
    """
    waited = 0.0
    for number in count(1):
        try:
            return await attempt()
        except TransientError as error:
            if number >= attempts or waited + seconds() >= deadline:
                raise TransientError(f"after {number} attempts: {error.reason}") from None
            pause = uniform(0.0, min(backoff * 2 ** (number - 1), LONGEST_WAIT))  # noqa: S311  no secret hangs on it
            waited += pause
            await sleep(error.wait + pause)
    raise AssertionError  # the loop returns or raises


def one_line(text: Any, secrets: Iterable[str]) -> str:
    """Return a server's text as one short line, without secrets."""
    line = " ".join(str(text).split())
    for secret in secrets:
        line = line.replace(secret, "***")
    line = re.sub(r"\b(sk-|Bearer )\S+", r"\1***", line)
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 1] + "…"


@dataclass(frozen=True)
class Refusal:
    """An answer that is an error."""

    status: int
    error: Any
    """The server's error object: what stands under `error`, or all that it sent."""
    message: str
    """Its message, or the name of the status."""

    @classmethod
    def read(cls, status: int, content: bytes, secrets: Iterable[str]) -> Refusal:
        """Read an error, in whatever form it comes."""
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = content.decode("utf-8", "replace")
        error = body.get("error", body) if isinstance(body, Mapping) else body
        says = error.get("message") or error.get("detail") or error if isinstance(error, Mapping) else error
        if not says or str(says).lstrip().startswith("<"):  # a web page
            says = responses.get(status, "no reason")
        return cls(status, error, one_line(says, secrets))

    @property
    def kinds(self) -> set[str]:
        """The words that servers sort errors by."""
        return {str(self.error.get("code")), str(self.error.get("type"))} if isinstance(self.error, Mapping) else set()


def of_network(error: BaseException) -> TransientError:
    """Turn a failed connection into a retry."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, aiohttp.ClientError):
        cause = cause.__cause__
    unreachable = isinstance(cause, aiohttp.ClientConnectorError)
    if unreachable:
        os_error = getattr(cause, "os_error", None)
        detail = getattr(os_error, "strerror", None) or str(os_error or cause)
        return TransientError(f"no connection ({one_line(detail, ())})", unreachable=True)
    if isinstance(cause or error, TimeoutError):
        return TransientError("no whole answer in time", congested=True)
    return TransientError(f"the connection broke ({type(cause or error).__name__})")


def fatal(refusal: Refusal, *, model: str, endpoint: str, key: str) -> RefusedError | None:
    """Return the error of a refusal after which no request can succeed, with how to fix it; None for any other."""
    message = refusal.message
    match refusal.status:
        case 401:
            says = f"does not accept the key (status 401): set {key} to a valid one for this server"
            if withheld := os.environ.get(key) and why_key_is_withheld(key, endpoint):
                says = f"requires a key (status 401), and none was sent. {withheld}"
        case 403:
            says = f'denies access to model "{model}" (status 403: {message}): set {key} to a key that may use it'
        case 404:
            says = (
                f'has no model "{model}" or no chat completions there (status 404: {message}): '
                "see annotate.openai.model and annotate.openai.base_url"
            )
        case 402:
            says = f"asks for payment (status 402: {message}): see the account that the key in {key} belongs to"
        case 429 if refusal.kinds & {"insufficient_quota", "billing_hard_limit_reached"}:
            says = f"has no quota left (status 429: {message}): see the account that the key in {key} belongs to"
        case _:
            return None
    return RefusedError(f"{endpoint} {says.rstrip('.')}. Answers received so far are kept.")


class Breaker:
    """A circuit breaker: stops a run whose server is down or refuses every request of this kind."""

    EXHAUSTED = 5
    """Consecutive requests that failed after all their attempts."""
    REFUSALS = 5
    """First requests that were all refused with the same message."""
    UNREACHED = 3.0
    """Timeout of the first connection, in seconds."""

    def __init__(self, endpoint: str, *, takes_them: bool = False) -> None:
        """`takes_them`: the server took requests of this kind before; those left may be the ones that it refuses."""
        self._endpoint = endpoint
        self._takes_them = takes_them
        self._answered = False
        self._in_a_row = 0
        self._unreached_since: float | None = None
        self._refusals: list[str] = []

    def answered(self) -> None:
        self._answered = True
        self._in_a_row = 0

    def failed(self, error: TransientError) -> None:
        """Note a failed attempt.

        Raises:
            RefusedError: the server was never reached.
        """
        if error.unreachable and not self._answered:
            now = time.monotonic()
            self._unreached_since = self._unreached_since or now
            if now - self._unreached_since >= self.UNREACHED:
                raise RefusedError(
                    f"{self._endpoint} cannot be reached: {error.reason}. "
                    "Start the server, or see annotate.openai.base_url."
                )

    def exhausted(self, failure: Failure) -> None:
        """Note a request that was given up.

        Raises:
            RefusedError: too many requests in a row were given up.
        """
        self._in_a_row += 1
        if self._in_a_row >= self.EXHAUSTED:
            raise RefusedError(
                f"{self._endpoint} does not answer: {self._in_a_row} requests in a row were given up, the last "
                f"{failure.reason}. Answers received so far are kept; run the same command again when it is back."
            )

    def refused(self, failure: Failure) -> None:
        """Note a request that the server will not take.

        Raises:
            RefusedError: the first requests were all refused for the same reason.
        """
        self._in_a_row = 0
        if self._answered or self._takes_them or len(self._refusals) == self.REFUSALS:
            return
        self._refusals.append(re.sub(r"\d+", "0", failure.reason))
        if len(self._refusals) == self.REFUSALS and len(set(self._refusals)) == 1:
            raise RefusedError(
                f"{self._endpoint} rejects all requests: {failure.reason.rstrip('.')}. "
                "See annotate.openai: its model and its other keys."
            )
