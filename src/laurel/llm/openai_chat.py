"""A chat model behind an OpenAI-compatible server: OpenAI, vLLM, SGLang, Ollama, llama.cpp, a gateway.

Every request ends as a reply or a failure; transient errors are retried within the server's limits. Only the key comes
from the environment: OPENAI_BASE_URL is not read, because a run's params must say where its answers come from.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from laurel.llm import retries
from laurel.llm.chat import NO_TOKENS, ChatRequest, Failure, Identity, Message, RefusedError, Reply, Stopped, Tokens
from laurel.llm.chat_wire import NO_CHOICE, Dialect, read_reply, tokens_of
from laurel.llm.concurrently import Idle, concurrently
from laurel.llm.limits import Limits, retry_after
from laurel.llm.retries import Breaker, TransientError
from laurel.params.judges import OPENAI, OpenAIParams
from laurel.permissions import is_loopback, why_key_is_withheld

DEFAULT_KEY = "OPENAI_API_KEY"
PATIENCE = 4.0
"""A request is given up when its attempts and waits exceed this multiple of one attempt's timeout."""
MOST_BYTES = 16 * 2**20
"""Maximum size of an answer; larger ones are aborted."""
SHORT = (Message("user", "Hello."),)
"""Asked where several questions fail in a row, to see whether the server is down."""
LONGEST_PAUSE = 600.0
"""Maximum pause in seconds; if a server asks for a longer one, the run stops."""


class OpenAIChat:
    """Implements `laurel.llm.chat.ChatModel`.

    Args:
        takes_them: whether the model is known to accept requests of this kind; otherwise a run ends if the first ones
            are all refused for the same reason.
        backoff: maximum seconds of the first wait before a retry.

    Raises:
        RefusedError: the key is not in the environment.
    """

    def __init__(self, params: OpenAIParams, *, takes_them: bool = False, backoff: float = 0.5) -> None:
        self._params = params
        self._backoff = backoff
        self._breaker = Breaker(params.base_url or OPENAI, takes_them=takes_them)
        self.identity = Identity(model=params.model, endpoint=params.base_url or OPENAI)
        read_key(params)
        read_headers(params)

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield (number of the request, answer) as answers come in; see `ChatModel`.

        Raises:
            RefusedError: every further request would fail in the same way, or the server is unreachable.
        """
        run = _Run(self._params, self.identity, read_key(self._params), self._backoff, self._breaker)
        return concurrently(requests, run.answer, self._params.max_in_flight, run.close, run.idle, run.shut)


def read_key(params: OpenAIParams) -> str:
    """Return the key from the environment; empty if none is set and none needed.

    Raises:
        RefusedError: the server needs a key and none is set; the key is not valid; or the user has not permitted
            sending it to this server.
    """
    name, endpoint = params.api_key_env, params.base_url or OPENAI
    url = urlsplit(endpoint)
    key = os.environ.get(name, "").strip()
    if url.scheme == "https" and not key:
        raise RefusedError(
            f"{endpoint} needs a key: set the environment variable {name}, "
            "or name another in annotate.openai.api_key_env."
        )
    if not re.fullmatch(r"[!-~]*", key):
        raise RefusedError(f"{name} holds no valid key: a key is ASCII without spaces.")
    withheld = why_key_is_withheld(name, endpoint) if key else None
    if withheld and url.scheme == "http" and name == DEFAULT_KEY:
        return ""  # no key was named for this server: most local servers need none
    if withheld:
        raise RefusedError(withheld)
    return key


def read_headers(params: OpenAIParams) -> dict[str, str]:
    """Return the further headers with values from the environment, under the same rules as the key.

    Raises:
        RefusedError: a variable is not set, is not a valid header, or may not be sent there.
    """
    values = {}
    for header, name in params.headers.items():
        try:
            value = read_key(params.model_copy(update={"api_key_env": name}))
        except RefusedError as error:
            raise RefusedError(f"annotate.openai.headers.{header}: {error}") from None
        if not value:
            raise RefusedError(f"annotate.openai.headers.{header}: the environment variable {name} is not set.")
        values[header] = value
    return values


def by_proxy(endpoint: str) -> bool:
    """Whether to use the proxy of the environment, if any: not for http to this machine, whose key it would read."""
    url = urlsplit(endpoint)
    return not (url.scheme == "http" and is_loopback(url.hostname))


class _Run:
    """One run over many requests: the connection, and the limits and dialect learned from the server."""

    def __init__(self, params: OpenAIParams, identity: Identity, key: str, backoff: float, breaker: Breaker) -> None:
        self._params = params
        self._identity = identity
        headers = read_headers(params)
        self._secrets = tuple(secret for secret in (key, *headers.values()) if secret)
        self._backoff = backoff
        is_openai = identity.endpoint == OPENAI
        self._dialect = Dialect(params.model, "max_completion_tokens" if is_openai else "max_tokens", params.structured)
        self._limits = Limits(params.max_in_flight, params.requests_per_minute, params.tokens_per_minute)
        self._breaker = breaker
        self.idle = Idle()
        """Requests that wait for another attempt."""
        self._http = openai.DefaultAioHttpClient(
            timeout=params.timeout_seconds,
            limits=httpx2.Limits(max_connections=params.max_in_flight),
            follow_redirects=False,  # another server would get the headers, whose keys were permitted for this one
            trust_env=by_proxy(identity.endpoint),
        )
        self._client = openai.AsyncOpenAI(
            api_key=key or "none",  # the package requires one
            base_url=identity.endpoint,
            http_client=self._http,
            default_headers=headers,
        )
        self._url = httpx2.URL(f"{identity.endpoint}/chat/completions")
        all_headers = {**self._client.default_headers, **self._client.auth_headers}
        self._headers = httpx2.Headers(
            {
                name: value
                for name, value in all_headers.items()
                if isinstance(value, str) and not name.lower().startswith("x-stainless")  # the package's telemetry
            }
        )

    async def close(self) -> None:
        await self._client.close()

    def shut(self) -> None:
        """Send no further requests, including retries."""
        self._limits.window.shut()

    async def answer(self, request: ChatRequest) -> Reply | Failure:
        """Ask until there is a reply, or a permanent failure."""
        spent, lost = 0.0, NO_TOKENS

        async def attempt(asked: ChatRequest = request) -> Reply | Failure:
            nonlocal spent, lost
            async with self._limits.window.place() as place:
                await self._limits.turn(tokens_of(asked))
                self._limits.window.sent(place)
                began = time.monotonic()
                try:
                    return await self._attempt(asked, began)
                except TransientError as error:
                    lost += error.billed
                    if error.congested:
                        self._limits.window.shrink(began)
                    self._breaker.failed(error)
                    raise
                finally:
                    spent += time.monotonic() - began

        async def is_up() -> bool:
            """Whether the server answers a short question, unlike this one."""
            nonlocal lost
            try:
                answer = await attempt(ChatRequest(SHORT, replace(request.sampling, max_tokens=1)))
            except TransientError as error:
                return error.no_choice
            if isinstance(answer, Reply):
                lost += Tokens(answer.input_tokens or 0, answer.output_tokens or 0, answer.cached_tokens or 0)
            return True

        patience = PATIENCE * self._params.timeout_seconds
        try:
            outcome = await retries.persistently(
                attempt, self._params.retries + 1, lambda: spent, patience, self._backoff, self.idle.sleep
            )
        except asyncio.CancelledError:  # stopped while it waited: what failed attempts cost counts
            if lost == NO_TOKENS:
                raise
            return Stopped("asking was stopped", lost)
        except TransientError as error:
            # A server that is up would do the same with this question in every run.
            is_reachable = error.no_choice or (self._breaker.in_doubt and await is_up())
            failure = Failure(error.reason, lost)
            if is_reachable:
                self._breaker.refused(failure)
            else:
                self._breaker.exhausted(failure, too_many=error.too_many)
            return failure
        if isinstance(outcome, Failure):
            self._breaker.refused(outcome)
            return replace(outcome, lost=lost)
        self._breaker.answered()
        return outcome._replace(lost=lost)

    async def _attempt(self, request: ChatRequest, began: float) -> Reply | Failure:
        """Ask once, and again for every field that the server does not accept."""
        while True:
            body = self._dialect.body(request)
            try:
                async with asyncio.timeout(self._params.timeout_seconds):  # timeout of the whole answer
                    response, content = await self._post(body)
            except retries.NETWORK_ERRORS as error:
                raise retries.of_network(error, self._params.timeout_seconds) from None
            self._limits.learn(response.headers)
            if content is None:
                return Failure(f"the answer has more than {MOST_BYTES // 2**20} MiB")
            if not response.is_success:
                failure = self._judge(response, content, body)
                if failure is not None:
                    return failure
                continue
            reply = read_reply(content, request, time.monotonic() - began)
            if isinstance(reply, Failure):
                reason = retries.one_line(reply.reason, self._secrets)
                raise TransientError(reason, no_choice=reply.reason == NO_CHOICE, billed=reply.lost)
            self._limits.window.grow(reply.seconds)
            return reply.without_secrets(self._secrets)

    async def _post(self, body: dict[str, Any]) -> tuple[httpx2.Response, bytes | None]:
        """Send a request with the package's address, key and connections; return the content, None if it is too large.

        The package's `chat.completions.create` makes the same request with four times the CPU time, because it builds
        models of question and answer.
        """
        request = httpx2.Request("POST", self._url, headers=self._headers, content=json.dumps(body).encode())
        response = await self._http.send(request, stream=True)
        try:
            parts, size = [], 0
            async for part in response.aiter_bytes():
                parts.append(part)
                size += len(part)
                if size > MOST_BYTES:
                    return response, None
            return response, b"".join(parts)
        finally:
            await response.aclose()

    def _judge(self, response: httpx2.Response, content: bytes, body: dict[str, Any]) -> Failure | None:
        """Return the failure of a request that the server refused; None if it is worth retrying in a changed form.

        Raises:
            RefusedError: every request would be refused.
            TransientError: the same request may be accepted later.
        """
        refusal = retries.Refusal.read(response.status_code, content, self._secrets, response.headers.get("location"))
        status, message = refusal.status, refusal.message
        fatal = retries.fatal(
            refusal, model=self._params.model, endpoint=self._identity.endpoint, key=self._params.api_key_env
        )
        if fatal is not None:
            raise fatal
        if status in retries.AGAIN or status >= 500:
            wait = retry_after(response.headers) or 0.0
            if wait and status in (429, 503):
                if wait > LONGEST_PAUSE:
                    raise RefusedError(
                        f"{self._identity.endpoint} asks for a pause of {wait:.0f} s ({status}: {message}). "
                        "The answers so far are kept; run the same command again then."
                    )
                self._limits.pause(wait)
            congested, too_many = status in (408, 429, 503), status == 429
            raise TransientError(f"status {status}: {message}", congested=congested, too_many=too_many, wait=wait)
        if status in (400, 422) and self._dialect.adapt(body, refusal.error, message):
            return None
        return Failure(f"refused with status {status}: {message}")
