"""How fast and how many at once a server may be asked: its own limits, the user's, and what it bears.

Knows headers and clocks; knows nothing of what is asked.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from aiolimiter import AsyncLimiter

FIRST_WINDOW = 8
"""Requests at once before the first answer."""
OPENING = 3.0
"""More of them with every answer, until the server refuses one."""
LONGEST_RESET = 7 * 24 * 3600.0
"""Seconds; a header that says more than this says something else."""
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
    """Return the seconds that a server asks to be left alone, if it does."""
    milliseconds = headers.get("retry-after-ms", "")
    if re.fullmatch(r"\d+(\.\d+)?", milliseconds):
        return float(milliseconds) / 1000
    return seconds_of(headers.get("retry-after"))


class Rate:
    """So much a second, in bursts of at most `burst`: within T seconds never more than burst + T * per_second."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._burst = burst
        self._limiter = AsyncLimiter(burst, burst / per_second)

    @classmethod
    def per_minute(cls, amount: int) -> Rate:
        """Never more than `amount` within any minute."""
        burst = max(1.0, amount / 50)
        return cls((amount - burst if burst > 1 else amount) / 60, burst)

    async def take(self, amount: float) -> None:
        """Wait until `amount` may go; what is more than a burst goes in several."""
        while amount > 0:
            await self._limiter.acquire(min(amount, self._burst))
            amount -= self._burst


class LearnedRate:
    """A rate that a server tells in the headers of its answers: limit, remaining, and time until all is back.

    OpenAI's servers and those that follow them fill a bucket of `limit` evenly, so that used / reset is the rate at
    which it fills: exact, and true however old the header is. Others start afresh once a period, where
    remaining / reset is what may be used. The larger of the two is right for either at the times when little or much
    is used, so its least value over time is followed, and raised slowly while more than half remains. That keeps the
    bucket half full: nothing is refused, and nothing is left unused.
    """

    RAISE = 1.05
    """Per second, while the server has more left than used."""
    STEP = 0.02
    """Relative changes below this are not worth a new limiter."""

    def __init__(self) -> None:
        self._rate: float | None = None
        self._limit = 0.0
        self._heard = 0.0
        self._pace: float | None = None
        self._paced: tuple[float, Rate] | None = None

    def learn(self, limit: float | None, remaining: float | None, reset: float | None) -> None:
        """Take what the headers of an answer say."""
        if not limit or remaining is None or not reset or not 0 <= remaining < limit:
            return
        used = limit - remaining
        seen = max(used, remaining) / reset
        elapsed, self._heard = time.monotonic() - self._heard, time.monotonic()
        if self._rate is None or limit != self._limit or seen < self._rate:
            self._rate = seen
        elif remaining > used:
            self._rate = min(seen, self._rate * self.RAISE ** min(elapsed, 1.0))
        self._limit = limit
        # others ask, too, or a request costs more than was thought
        scarce = limit >= 10 and remaining < limit / 10
        self._pace = self._rate / 2 if scarce else self._rate

    async def take(self, amount: float) -> None:
        """Wait until `amount` may go; at once as long as nothing was said. One caller at a time."""
        if self._pace is None:
            return
        if self._paced is None or abs(self._paced[0] / self._pace - 1) > self.STEP:
            burst = max(1.0, min(self._pace, self._limit) / 10)
            self._paced = (self._pace, Rate(self._pace, burst))
            await self._paced[1].take(burst)  # a new limiter is no new allowance
        await self._paced[1].take(amount)


class Window:
    """How many requests may be on their way: four times as many with every round of answers at first, for a refusal
    costs little; after the first one more a round. Halved when the server refuses or does not answer in time.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = float(min(FIRST_WINDOW, most))
        self._busy = self._waiting = 0
        self._opening = True
        self._shrunk = 0.0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold one of the places, waiting for it."""
        if self._waiting or self._busy >= int(self.size):  # else there is nobody to wait for
            self._waiting += 1
            try:
                async with self._changed:
                    await self._changed.wait_for(lambda: self._busy < int(self.size))
            finally:
                self._waiting -= 1
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if self._waiting:
                async with self._changed:
                    self._changed.notify(max(int(self.size) - self._busy, 0))

    def grow(self) -> None:
        """Note an answer."""
        self.size = min(self.size + (OPENING if self._opening else 1.0 / self.size), float(self.most))

    def shrink(self, sent: float) -> None:
        """Note a refusal of a request sent at `sent` (monotonic); those sent before the last one tell nothing new."""
        if sent >= self._shrunk:
            self.size = max(self.size / 2, 1.0)
            self._opening = False
            self._shrunk = time.monotonic()


class Limits:
    """All limits of a run. A request passes `turn` before every attempt; `learn` is told of every answer's headers."""

    def __init__(self, in_flight: int, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self.window = Window(in_flight)
        self._requests = Rate.per_minute(requests_per_minute) if requests_per_minute else None
        self._tokens = Rate.per_minute(tokens_per_minute) if tokens_per_minute else None
        self._told_requests, self._told_tokens = LearnedRate(), LearnedRate()
        self._resume = 0.0
        self._queue = asyncio.Lock()

    def learn(self, headers: Mapping[str, str]) -> None:
        """Take what a server says of its limits."""
        for kind, rate in (("requests", self._told_requests), ("tokens", self._told_tokens)):
            limit = headers.get(f"x-ratelimit-limit-{kind}")
            if limit is not None:
                rate.learn(
                    _number(limit),
                    _number(headers.get(f"x-ratelimit-remaining-{kind}")),
                    seconds_of(headers.get(f"x-ratelimit-reset-{kind}")),
                )

    def pause(self, seconds: float) -> None:
        """Send nothing for so long."""
        self._resume = max(self._resume, time.monotonic() + seconds)

    async def turn(self, tokens: float) -> None:
        """Wait until a request of about so many tokens may be sent. First come, first served."""
        async with self._queue:
            for rate, amount in ((self._requests, 1.0), (self._tokens, tokens)):
                if rate is not None:
                    await rate.take(amount)
            await self._told_requests.take(1.0)
            await self._told_tokens.take(tokens)
            while (wait := self._resume - time.monotonic()) > 0:
                await asyncio.sleep(wait)


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"\d+(\.\d+)?", text.strip()) else None
