"""Rate limits and concurrency towards a server: its limits, the user's, and its capacity."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from aiolimiter import AsyncLimiter

FIRST_WINDOW = 8
"""Concurrent requests before the first answer."""
OPENING = 31.0
"""Growth of the window per answer, until the server refuses a request."""
REOPENING = 16
"""After a refusal, the window grows by size / REOPENING per round of answers, and by at least 2."""
SLOW, SLOW_AT_LEAST = 3.0, 0.5
"""A request is slow beyond this multiple of the 90th percentile, and at least this many seconds."""
LOOK_EVERY = 0.1
"""Seconds between checks for slow requests."""
MANY = 0.5
"""Above this share of refused requests, a pause that a server requests applies to all requests."""
LONGEST_RESET = 7 * 24 * 3600.0
"""Longest duration of a header, in seconds; larger numbers are not durations."""
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds_of(text: str | None) -> float | None:
    """Read a header's duration: 20ms, 1s, 6m0s, 12 (seconds) or an HTTP date; None where it is none of these."""
    text = (text or "").strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        seconds = float(text)
    elif _DURATION.fullmatch(text):
        seconds = sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))
    else:
        try:
            date = parsedate_to_datetime(text)
        except ValueError:
            return None
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = max((date - datetime.now(UTC)).total_seconds(), 0.0)
    return seconds if seconds <= LONGEST_RESET else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks the client to wait, if any."""
    milliseconds = headers.get("retry-after-ms", "")
    if re.fullmatch(r"[0-9]{1,15}(\.[0-9]+)?", milliseconds):
        return float(milliseconds) / 1000
    return seconds_of(headers.get("retry-after"))


class Rate:
    """A token bucket: within T seconds never more than burst + T * per_second."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._burst = burst
        self._limiter = AsyncLimiter(burst, burst / per_second)

    @classmethod
    def per_minute(cls, amount: int) -> Rate:
        """Never more than `amount` within any minute."""
        burst = max(1.0, amount / 50)
        return cls((amount - burst if burst > 1 else amount) / 60, burst)

    async def take(self, amount: float) -> None:
        """Wait until `amount` may be sent; more than a burst is sent in several."""
        while amount > 0:
            await self._limiter.acquire(min(amount, self._burst))
            amount -= self._burst


class LearnedRate:
    """A rate limit that a server announces in the headers of its answers: limit, remaining, and time until all is back.

    OpenAI's servers and compatible ones refill a bucket of `limit` at a constant rate, which is exactly used / reset,
    however old the header is. Others reset once per period, so that remaining / reset is the usable rate. The larger of
    the two is right for both kinds when usage is very low or very high, so its minimum over time is used, and raised
    slowly while more than half remains. That keeps the bucket half full: nothing is refused, and no capacity is wasted.
    """

    RAISE = 1.05
    """Per second, while the server has more left than used."""
    STEP = 0.02
    """Minimum relative change for creating a new limiter."""

    def __init__(self) -> None:
        self._rate: float | None = None
        self._limit = 0.0
        self._updated = 0.0
        self._pace: float | None = None
        self._paced: tuple[float, Rate] | None = None

    def learn(self, limit: float | None, remaining: float | None, reset: float | None) -> None:
        """Learn from the headers of an answer."""
        if not limit or remaining is None or not reset or not 0 <= remaining < limit:
            return
        used = limit - remaining
        seen = max(used, remaining) / reset
        elapsed, self._updated = time.monotonic() - self._updated, time.monotonic()
        if self._rate is None or limit != self._limit or seen < self._rate:
            self._rate = seen
        elif remaining > used:
            self._rate = min(seen, self._rate * self.RAISE ** min(elapsed, 1.0))
        self._limit = limit
        # other clients, or requests that cost more than estimated
        scarce = limit >= 10 and remaining < limit / 10
        self._pace = self._rate / 2 if scarce else self._rate

    async def take(self, amount: float) -> None:
        """Wait until `amount` may go; at once while the server has named no limit. One caller at a time."""
        if self._pace is None:
            return
        if self._paced is None or abs(self._paced[0] / self._pace - 1) > self.STEP:
            burst = max(1.0, min(self._pace, self._limit) / 10)
            self._paced = (self._pace, Rate(self._pace, burst))
            await self._paced[1].take(burst)  # a new limiter must not allow a burst once more
        await self._paced[1].take(amount)


class Window:
    """A congestion window: the maximum number of requests in flight.

    At first it grows 32-fold per round of answers, since a refusal costs little; after the first refusal it grows
    slowly.

    A refusal halves it the first time. Later it shrinks by half the share of recent requests that were refused, once a
    round, as DCTCP does (Alizadeh et al. 2010): a server that refuses a few at random keeps it open, an overloaded one
    closes it. A request that takes much longer than the others leaves the window, so that it does not fill with slow
    ones; the total is never more than `most`.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = float(min(FIRST_WINDOW, most))
        self.refused = 1.0
        """Share of the latest requests that were refused or not answered in time; 1 before there are any."""
        self._quick = self._slow = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._sent: dict[object, float] = {}
        """When the latest quick requests were sent, the oldest first."""
        self._took: deque[float] = deque(maxlen=128)
        self._timer: asyncio.TimerHandle | None = None
        self._opening = True
        self._shrunk = 0.0
        self._shut = False

    @asynccontextmanager
    async def place(self) -> AsyncIterator[object]:
        """Wait for a slot and occupy it; yield it, as the argument of `sent`."""
        await self._take()
        place = object()
        self._sent[place] = math.inf
        try:
            yield place
        finally:
            if self._sent.pop(place, None) is None:
                self._slow -= 1
            else:
                self._quick -= 1
            self._wake()

    def shut(self) -> None:
        """Start no further requests: those waiting for a slot are cancelled, and so are later ones."""
        self._shut = True
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            waiter.cancel()

    def sent(self, place: object) -> None:
        """Record that the request in a slot is in flight now."""
        self._sent.pop(place, None)
        self._sent[place] = time.monotonic()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        """Remove slow requests from the window."""
        moment, limit = time.monotonic(), self._slow_after()
        expired = [place for place, sent in self._sent.items() if moment - sent > limit]
        for place in expired:
            del self._sent[place]
        self._quick -= len(expired)
        self._slow += len(expired)
        self._wake()
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look) if self._sent else None

    def _slow_after(self) -> float:
        if len(self._took) < FIRST_WINDOW:
            return math.inf
        return max(SLOW * sorted(self._took)[int(0.9 * len(self._took))], SLOW_AT_LEAST)

    def _has_place(self) -> bool:
        return self._quick < int(self.size) and self._quick + self._slow < self.most

    async def _take(self) -> None:
        if self._shut:
            raise asyncio.CancelledError
        if not self._waiters and self._has_place():  # the queue is empty
            self._quick += 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with suppress(ValueError):  # the window was shut, and nothing waits any more
                    self._waiters.remove(waiter)
            else:  # its place is free again
                self._quick -= 1
                self._wake()
            raise

    def _wake(self) -> None:
        while self._waiters and self._has_place():
            waiter = self._waiters.popleft()
            self._quick += 1
            waiter.set_result(None)

    def grow(self, seconds: float | None = None) -> None:
        """Record an answer and its duration."""
        if seconds is not None:
            self._took.append(seconds)
        self.refused -= self.refused / max(self.size, FIRST_WINDOW)
        slowly = max(2.0 / self.size, 1 / REOPENING)
        self.size = min(self.size + (OPENING if self._opening else slowly), float(self.most))

    def shrink(self, sent: float) -> None:
        """Record the refusal of a request sent at `sent` (monotonic).

        One that was sent before the window last shrank changes the share of refusals, but not the window.
        """
        self.refused += (1 - self.refused) / max(self.size, FIRST_WINDOW)
        if sent >= self._shrunk:
            share = 1.0 if self._opening else self.refused
            self.size = max(self.size * (1 - share / 2), 1.0)
            self._opening = False
            self._shrunk = time.monotonic()


class Limits:
    """All limits of a run. A request passes `turn` before every attempt; `learn` takes the headers of every answer."""

    def __init__(self, in_flight: int, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self.window = Window(in_flight)
        self._requests = Rate.per_minute(requests_per_minute) if requests_per_minute else None
        self._tokens = Rate.per_minute(tokens_per_minute) if tokens_per_minute else None
        self._server_requests, self._server_tokens = LearnedRate(), LearnedRate()
        self._resume = 0.0
        self._queue = asyncio.Lock()

    def learn(self, headers: Mapping[str, str]) -> None:
        """Learn a server's limits."""
        for kind, rate in (("requests", self._server_requests), ("tokens", self._server_tokens)):
            limit = headers.get(f"x-ratelimit-limit-{kind}")
            if limit is not None:
                rate.learn(
                    _number(limit),
                    _number(headers.get(f"x-ratelimit-remaining-{kind}")),
                    seconds_of(headers.get(f"x-ratelimit-reset-{kind}")),
                )

    def pause(self, seconds: float) -> None:
        """Pause all requests for so long if most are refused; otherwise only the refused one waits."""
        if self.window.refused >= MANY:
            self._resume = max(self._resume, time.monotonic() + seconds)

    async def turn(self, tokens: float) -> None:
        """Wait until a request with about this many tokens may be sent, in FIFO order."""
        async with self._queue:
            for rate, amount in ((self._requests, 1.0), (self._tokens, tokens)):
                if rate is not None:
                    await rate.take(amount)
            await self._server_requests.take(1.0)
            await self._server_tokens.take(tokens)
            while (wait := self._resume - time.monotonic()) > 0:
                await asyncio.sleep(wait)


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"[0-9]{1,15}(\.[0-9]+)?", text.strip()) else None
