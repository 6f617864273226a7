"""Limits by themselves: what headers say, rates, and the window of requests on their way."""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from types import SimpleNamespace

import pytest
from chat_server import Bucket, most_within

from laurel.llm.limits import LearnedRate, Limits, Rate, Window, retry_after, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("6m0s", 360), ("20ms", 0.02), ("1h2m3.5s", 3723.5), ("12", 12), ("0.5", 0.5), ("2m59.56s", 179.56)],
)
def test_durations_in_headers(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


def test_dates_and_nonsense_in_headers() -> None:
    from email.utils import formatdate

    assert seconds_of(formatdate(time.time() + 3000, usegmt=True)) == pytest.approx(3000, abs=100)
    assert seconds_of(formatdate(time.time() - 30, usegmt=True)) == 0
    assert [seconds_of(text) for text in (None, "", "soon", "-1", "1x", "1760000000000")] == [None] * 6
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25


def test_a_rate_lets_no_more_through_within_any_time() -> None:
    async def takes() -> list[float]:
        rate, times = Rate(100, 5), []
        for _ in range(50):
            await rate.take(1)
            times.append(time.monotonic())
        return times

    times = asyncio.run(takes())
    assert most_within(times, 0.1) <= 5 + 10 + 1


@pytest.mark.parametrize(("used", "reset"), [(1, 0.02), (2500, 50.0), (2999, 59.98)])
def test_the_rate_of_a_bucket_is_found(used: int, reset: float) -> None:
    told = LearnedRate()
    told.learn(3000, 3000 - used, reset)
    told.learn(3000, 500, 50.0)
    assert told._rate == pytest.approx(50, rel=0.01)


def test_a_rate_that_is_told_anew_is_no_new_allowance() -> None:
    async def takes() -> list[float]:
        told, times = LearnedRate(), [time.monotonic()]
        for i in range(40):
            told.learn(100, 10, 0.9 if i % 2 else 0.95)  # a hundred a second, or a little less
            told._rate = None
            await told.take(1)
            times.append(time.monotonic())
        return times

    times = asyncio.run(takes())
    assert times[-1] - times[0] > 0.3


class Idle(selectors.SelectSelector):
    """Lets time pass at once where a loop would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nobody would ever go on"
        self.now += max(timeout, 1e-6)  # work takes some, too
        return super().select(0)


def test_what_a_bucket_tells_is_kept_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """In time that is made up: whatever the machine, nothing is late."""
    idle = Idle()
    clock = SimpleNamespace(monotonic=lambda: idle.now)
    monkeypatch.setattr("laurel.llm.limits.time", clock)
    monkeypatch.setattr("chat_server.time", clock)
    bucket, told, rng = Bucket(50, 50), Limits(64, None, None), random.Random(0)
    refused: list[float] = []

    async def ask() -> None:
        while True:
            async with told.window.place():
                await told.turn(1)
                sent = idle.now
                admitted, headers = bucket.admit()
                await asyncio.sleep(0.2)
                told.learn(headers)
                if admitted:
                    told.window.grow()
                    return
                refused.append(idle.now)
                told.window.shrink(sent)
            await asyncio.sleep(0.02 * rng.random())

    async def ask_all() -> None:
        await asyncio.gather(*(ask() for _ in range(200)))

    loop = asyncio.SelectorEventLoop(idle)
    monkeypatch.setattr(loop, "time", clock.monotonic)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(ask_all())
    assert all(when < 1000 + 1.5 for when in refused)
    assert idle.now - 1000 < 200 / 50 * 1.1


def test_the_window_opens_fast_shuts_fast_and_reopens_slowly() -> None:
    window = Window(100)
    for _ in range(200):
        window.grow()
    assert window.size == 100
    sent = time.monotonic()
    for _ in range(10):
        window.shrink(sent)  # one event, ten witnesses
    assert window.size == 50
    for _ in range(50):
        window.grow()
    assert 50.9 < window.size < 51.1
