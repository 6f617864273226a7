"""A chat server on the loopback interface that plays what real ones do: answers, limits, faults.

What a request meets is written in its last message, e.g. "7 reset,500": a connection reset at the first attempt, status
500 at the second, an answer at the third. The server counts what it sees; it runs on a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

Plan = Callable[[dict[str, Any]], tuple[str, list[str], str]]
"""Of a request: its name, what it meets at its first attempts, and the answer that it gets then."""
Behaviour = Callable[[web.Request, dict[str, Any]], web.Response | None]


def completion(text: str = "A", logprobs: Any = None, finish_reason: str = "stop") -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "logprobs": logprobs,
                "finish_reason": finish_reason,
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
    }


def top_logprobs(**tokens: float) -> dict[str, Any]:
    """Return a first token's likeliest, given as token=log-probability."""
    listed = [{"token": token, "logprob": logprob, "bytes": None} for token, logprob in tokens.items()]
    return {"content": [{**listed[0], "top_logprobs": listed}]}


def problem(status: int, message: str, headers: dict[str, str] | None = None, **fields: Any) -> web.Response:
    return web.json_response({"error": {"message": message, **fields}}, status=status, headers=headers)


def written(body: dict[str, Any]) -> tuple[str, list[str], str]:
    """Read what a request meets from its last message."""
    name, _, faults = body["messages"][-1]["content"].partition(" ")
    return name, [fault for fault in faults.split(",") if fault], f"answer {name}"


class Bucket:
    """A limit as OpenAI's servers keep it: a bucket of `limit` that fills evenly at `per_second`."""

    def __init__(self, limit: float, per_second: float) -> None:
        self.limit, self.per_second = limit, per_second
        self._level, self._at = limit, time.monotonic()

    def admit(self) -> tuple[bool, dict[str, str]]:
        now = time.monotonic()
        self._level = min(self.limit, self._level + (now - self._at) * self.per_second)
        self._at = now
        admitted = self._level >= 1
        self._level -= admitted
        headers = {
            "x-ratelimit-limit-requests": f"{self.limit:.0f}",
            "x-ratelimit-remaining-requests": f"{int(self._level)}",
            "x-ratelimit-reset-requests": f"{(self.limit - self._level) / self.per_second * 1000:.0f}ms",
        }
        return admitted, headers


class ChatServer:
    """What a test sets and reads."""

    def __init__(self) -> None:
        self.url = ""
        self.latency = 0.0
        self.behave: Behaviour = lambda request, body: None
        """Answers in the server's place, where it returns something."""
        self.plan: Plan = written
        self.answered: Counter[str] = Counter()
        """How often each request got the answer that was meant for it."""
        self.bucket: Bucket | None = None
        self.times: list[float] = []
        self.statuses: list[tuple[float, int]] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.attempts: Counter[str] = Counter()
        self.now = self.most_at_once = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.times.append(time.monotonic())
        self.headers.append(dict(request.headers))
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            response = await self._answer(request)
            self.statuses.append((time.monotonic(), response.status))
            return response
        finally:
            self.now -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        limits: dict[str, str] = {}
        if self.bucket is not None:
            admitted, limits = self.bucket.admit()
            if not admitted:
                return problem(429, "Rate limit reached", limits)
        body = await request.json()
        self.bodies.append(body)
        if self.latency:
            await asyncio.sleep(self.latency)
        response = self.behave(request, body)
        if response is not None:
            return response
        name, planned, text = self.plan(body)
        self.attempts[name] += 1
        if self.attempts[name] <= len(planned):
            return await self._fault(planned[self.attempts[name] - 1], request)
        self.answered[name] += 1
        return web.json_response(completion(text), headers=limits)

    async def _fault(  # noqa: C901 - a list
        self, fault: str, request: web.Request
    ) -> web.StreamResponse:
        assert request.transport is not None
        whole = json.dumps(completion()).encode()
        match fault:
            case "429":
                return problem(429, "slow down")
            case "429-after":
                return problem(429, "slow down", {"Retry-After": "0.05"})
            case "500" | "502" | "503" | "409" | "408":
                return web.Response(status=int(fault), text="<html>bad</html>", content_type="text/html")
            case "400":
                return problem(400, "This model's maximum context length is 8 tokens.", code="context_length_exceeded")
            case "reset":
                request.transport.abort()
                await asyncio.sleep(0)
            case "hang":
                await asyncio.sleep(60)
            case "half":
                return web.Response(body=whole[:50], content_type="application/json")
            case "cut":
                response = web.StreamResponse(headers={"Content-Length": str(len(whole))})
                await response.prepare(request)
                await response.write(whole[:50])
                request.transport.abort()
                return response
            case "drip":
                response = web.StreamResponse(headers={"Content-Length": str(len(whole))})
                await response.prepare(request)
                for byte in whole:
                    await response.write(bytes([byte]))
                    await asyncio.sleep(0.05)
                return response
            case "schema":
                return web.json_response({"id": "x", "choices": []})
            case "other":
                return web.json_response(["not", "an", "object"])
            case "error200":
                return web.json_response({"error": {"message": "upstream", "code": 502}})
            case _:
                raise AssertionError(fault)
        return web.Response()


@contextmanager
def elsewhere() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Serve another address, to which nothing may be sent; yield it, with the headers of what was."""
    got: list[dict[str, str]] = []

    async def take(request: web.Request) -> web.Response:
        got.append(dict(request.headers))
        return web.json_response(completion())

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", take)
    with serving(app) as url:
        yield url, got


def most_within(times: list[float], seconds: float) -> int:
    """Return how many of some moments lie together at most."""
    return max(sum(start <= other < start + seconds for other in times) for start in times)


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """Run a server for the time of a block."""
    server = ChatServer()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.handle)
    with serving(app) as server.url:
        yield server


@contextmanager
def serving(app: web.Application) -> Iterator[str]:
    """Serve an application for the time of a block; yield its address up to and with the version."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    async def stop() -> None:
        await runner.cleanup()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    url = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield url
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
