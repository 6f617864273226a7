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

from laurel.llm.chat import NO_TOKENS, Failure, RefusedError, Tokens, without
from laurel.permissions import why_key_is_withheld

AGAIN = frozenset({408, 409, 425, 429})
"""Statuses that are retried, besides 5xx."""
LONGEST_WAIT = 30.0
"""Maximum seconds between attempts, unless the server asks for more."""
LONGEST_REASON = 300
NETWORK_ERRORS = (httpx2.RequestError, aiohttp.ClientError, OSError)  # OSError includes TimeoutError

Result = TypeVar("Result")


class TransientError(Exception):
    """A temporary failure."""

    def __init__(
        self,
        reason: str,
        *,
        congested: bool = False,
        unreachable: bool = False,
        no_choice: bool = False,
        too_many: bool = False,
        billed: Tokens = NO_TOKENS,
        wait: float = 0.0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.congested = congested
        """The server is overloaded: reduce concurrency."""
        self.unreachable = unreachable
        """No connection could be made."""
        self.no_choice = no_choice
        """The server completed the request, but with no choice, as some do instead of a refusal."""
        self.too_many = too_many
        """The server refused it by a limit on requests or tokens."""
        self.billed = billed
        """Cost of the failed attempt, which is billed nevertheless."""
        self.wait = wait
        """Seconds that the server asks to wait before a retry."""


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
        attempt: raises TransientError if a retry makes sense.
        attempts: maximum number.
        seconds: returns the duration of the attempts so far, without waiting for a turn.
        deadline: seconds of attempts and waits after which no further attempt begins; waits that the server asked for
            are not counted.
        backoff: maximum seconds of the first wait.

    Raises:
        TransientError: the last attempt's, with the number of attempts in its reason.
    """
    waited = 0.0
    for number in count(1):
        try:
            return await attempt()
        except TransientError as error:
            if number >= attempts or waited + seconds() >= deadline:
                reason = f"after {number} attempts: {error.reason}"
                raise TransientError(reason, no_choice=error.no_choice, too_many=error.too_many) from None
            pause = uniform(0.0, min(backoff * 2 ** (number - 1), LONGEST_WAIT))  # noqa: S311  not for security
            waited += pause
            await sleep(error.wait + pause)
    raise AssertionError  # the loop returns or raises


def one_line(text: Any, secrets: Iterable[str]) -> str:
    """Return a server's text as one short line, without secrets."""
    line = without(" ".join(str(text).split()), secrets)
    line = re.sub(r"\b(sk-|Bearer )\S+", r"\1***", line)
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 1] + "…"


@dataclass(frozen=True)
class Refusal:
    """An answer that is an error."""

    status: int
    error: Any
    """The server's error object: the content of `error`, or the whole content."""
    message: str
    """The error's message, the address of a redirection, or the name of the status."""

    @classmethod
    def read(cls, status: int, content: bytes, secrets: Iterable[str], location: str | None = None) -> Refusal:
        """Parse an error in any form; `location`: the header of a redirection."""
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = content.decode("utf-8", "replace")
        error = body.get("error", body) if isinstance(body, Mapping) else body
        says = error.get("message") or error.get("detail") or error if isinstance(error, Mapping) else error
        if not says or str(says).lstrip().startswith("<"):  # a web page
            says = responses.get(status, "no reason")
        if location and 300 <= status < 400:
            says = location.partition("?")[0]  # a query may hold secrets
        return cls(status, error, one_line(says, secrets))

    @property
    def kinds(self) -> set[str]:
        """Error codes and types of the server."""
        return {str(self.error.get("code")), str(self.error.get("type"))} if isinstance(self.error, Mapping) else set()


def of_network(error: BaseException, timeout_seconds: float) -> TransientError:
    """Convert a network error to a TransientError; `timeout_seconds`: of the attempt."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, aiohttp.ClientError):
        cause = cause.__cause__
    unreachable = isinstance(cause, aiohttp.ClientConnectorError)
    if unreachable:
        os_error = getattr(cause, "os_error", None)
        detail = getattr(os_error, "strerror", None) or str(os_error or cause)
        return TransientError(f"no connection ({one_line(detail, ())})", unreachable=True)
    if isinstance(cause or error, TimeoutError):
        limit = f"{timeout_seconds:g} s (annotate.openai.timeout_seconds)"
        return TransientError(f"no complete answer within {limit}", congested=True)
    return TransientError(f"the connection broke ({type(cause or error).__name__})")


def fatal(refusal: Refusal, *, model: str, endpoint: str, key: str) -> RefusedError | None:
    """Return the error for a permanent refusal, with how to fix it; None for other refusals."""
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
        case status if 300 <= status < 400:
            says = (
                f"redirects requests to another address (status {status}: {message}), which Laurel does not follow: "
                "set annotate.openai.base_url to that server's if you trust it"
            )
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
        """`takes_them`: the server has accepted requests of this kind before; the remaining ones may be refused
        individually.
        """
        self._endpoint = endpoint
        self._takes_them = takes_them
        self._answered = False
        self._in_a_row = 0
        self._unreached_since: float | None = None
        self._refusals: list[str] = []

    @property
    def in_doubt(self) -> bool:
        """Whether the next request that is given up stops the run, though the server has answered such requests."""
        return (self._answered or self._takes_them) and self._in_a_row + 1 >= self.EXHAUSTED

    def answered(self) -> None:
        self._answered = True
        self._in_a_row = 0

    def failed(self, error: TransientError) -> None:
        """Record a failed attempt.

        Raises:
            RefusedError: the server was never reached.
        """
        if error.unreachable and not self._answered:
            moment = time.monotonic()
            self._unreached_since = self._unreached_since or moment
            if moment - self._unreached_since >= self.UNREACHED:
                raise RefusedError(
                    f"{self._endpoint} cannot be reached: {error.reason}. "
                    "Start the server, or see annotate.openai.base_url."
                )

    def exhausted(self, failure: Failure, *, too_many: bool = False) -> None:
        """Record a request that was given up; `too_many`: because the server's limits refused it.

        Raises:
            RefusedError: too many requests in a row were given up.
        """
        self._in_a_row += 1
        if self._in_a_row >= self.EXHAUSTED and too_many:
            raise RefusedError(
                f"{self._endpoint} rejects requests because of its rate limits: {self._in_a_row} in a row failed, the "
                f"last {failure.reason}. Answers received so far are kept. Set annotate.openai.requests_per_minute or "
                "tokens_per_minute to what it allows, or wait, and run the same command again."
            )
        if self._in_a_row >= self.EXHAUSTED:
            raise RefusedError(
                f"{self._endpoint} does not answer: {self._in_a_row} requests in a row failed, the last "
                f"{failure.reason}. Answers received so far are kept; run the same command again when it is back"
                + ("." if self._answered or self._takes_them else ", or see annotate.openai.base_url.")
            )

    def refused(self, failure: Failure) -> None:
        """Record a request that the server refuses.

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
