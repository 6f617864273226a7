"""Limits by themselves: what headers say, rates, and the window of requests on their way."""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from types import SimpleNamespace

import pytest
from chat_server import Bucket, most_within

from laurel.llm.chat import Failure, RefusedError
from laurel.llm.limits import LearnedRate, Limits, Rate, Window, retry_after, seconds_of
from laurel.llm.retries import Breaker, TransientError, persistently


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


def test_a_rate_limit_holds_over_any_interval() -> None:
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


def test_more_than_a_burst_waits_for_all_of_it() -> None:
    async def take() -> float:
        rate, began = Rate(1000, 10), time.monotonic()
        await rate.take(110)
        return time.monotonic() - began

    assert asyncio.run(take()) > 0.09


@pytest.mark.parametrize("amount", [1, 50, 100, 3000])
def test_a_minute_has_no_more_than_its_amount_with_the_burst(amount: int) -> None:
    limiter = Rate.per_minute(amount)._limiter
    burst = limiter.max_rate if limiter.max_rate > 1 else 0  # a single request is no burst
    assert burst + 60 * limiter.max_rate / limiter.time_period == pytest.approx(amount)


def test_a_rate_is_raised_slowly_and_no_further_than_what_is_seen() -> None:
    told = LearnedRate()
    rates = []
    for limit, remaining in ((3000, 2400), (3000, 2700), (3000, 2406), (3000, 2430), (100, 90)):
        told._updated -= 1
        told.learn(limit, remaining, 60.0)
        rates.append(told._rate)
    assert rates == pytest.approx([40, 40 * 1.05, 40.1, 40.5, 1.5], rel=1e-3), "and is anew for another limit"


def test_a_server_that_resets_once_a_period_is_used_for_all_that_it_has_left() -> None:
    told = LearnedRate()
    told.learn(3000, 2400, 60.0)
    assert told._pace == pytest.approx(40)
    told.learn(3000, 240, 6.0)
    assert told._pace == pytest.approx(20), "little is left, so others use it, too"


def test_a_repeated_rate_limit_is_no_new_allowance() -> None:
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
        assert timeout is not None, "no request would ever continue"
        self.now += max(timeout, 1e-6)  # work takes some, too
        return super().select(0)


def test_reported_rate_limits_are_stored_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """In simulated time, independent of the machine's speed."""
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
    assert 52.9 < window.size < 53.3, "a round of answers opens a 16th of it"


def virtual(monkeypatch: pytest.MonkeyPatch) -> tuple[Idle, asyncio.SelectorEventLoop]:
    idle = Idle()
    monkeypatch.setattr("laurel.llm.limits.time", SimpleNamespace(monotonic=lambda: idle.now))
    loop = asyncio.SelectorEventLoop(idle)
    monkeypatch.setattr(loop, "time", lambda: idle.now)
    return idle, loop


@pytest.mark.parametrize("after", [0.0, 1.0])
def test_a_server_with_some_faults_takes_at_most_twice_as_long(monkeypatch: pytest.MonkeyPatch, after: float) -> None:
    """6% refusals, which may ask for a second's pause, and 3% answers that take twenty times as long."""
    idle, loop = virtual(monkeypatch)
    took = []
    most = 0

    async def ask_all(faulty: bool) -> None:
        told, numbers, now = Limits(32, None, None), iter(range(100_000)), 0

        async def ask() -> None:
            nonlocal now, most
            while True:
                async with told.window.place() as place:
                    await told.turn(1)
                    told.window.sent(place)
                    number, sent, now = next(numbers), idle.now, now + 1
                    most = max(most, now)
                    refused = faulty and number % 17 == 16
                    await asyncio.sleep(0.01 if refused else 2.0 if faulty and number % 33 == 1 else 0.1)
                    now -= 1
                    if not refused:
                        told.window.grow(idle.now - sent)
                        return
                    told.window.shrink(sent)
                    if after:
                        told.pause(after)
                await asyncio.sleep(after + 0.25)

        began = idle.now
        await asyncio.gather(*(ask() for _ in range(4000)))
        took.append(idle.now - began)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(ask_all(False))
        runner.run(ask_all(True))
    assert took[1] < 1.9 * took[0]
    assert most <= 32


def test_a_server_that_has_too_much_to_do_is_asked_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """It bears 20 at once, and says so by refusing alone."""
    idle, loop = virtual(monkeypatch)
    statuses = []

    async def ask_all() -> None:
        told, now = Limits(200, None, None), 0

        async def ask() -> None:
            nonlocal now
            while True:
                async with told.window.place() as place:
                    told.window.sent(place)
                    sent, now = idle.now, now + 1
                    refused = now > 20
                    await asyncio.sleep(0.01 if refused else 0.2)
                    now -= 1
                    statuses.append(refused)
                    if not refused:
                        told.window.grow(idle.now - sent)
                        return
                    told.window.shrink(sent)
                await asyncio.sleep(0.25)

        await asyncio.gather(*(ask() for _ in range(4000)))

    began = idle.now
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(ask_all())
    assert idle.now - began < 2 * 4000 * 0.2 / 20
    assert sum(statuses) < len(statuses) / 5


def test_a_pause_is_everyones_only_where_most_requests_are_refused() -> None:
    told = Limits(8, None, None)
    told.pause(0.0)
    assert told.window.refused == 1.0
    for _ in range(50):
        told.window.grow(0.1)
    told.pause(60.0)
    assert told._resume < time.monotonic()
    for _ in range(50):
        told.window.shrink(time.monotonic())
    told.pause(60.0)
    told.pause(1.0)
    assert told._resume > time.monotonic() + 30


def test_a_turn_counts_against_the_servers_limits_of_requests_and_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []

    async def take(self: LearnedRate, amount: float) -> None:
        taken.append(amount)

    monkeypatch.setattr(LearnedRate, "take", take)
    asyncio.run(Limits(8, None, None).turn(300.0))
    assert taken == [1.0, 300.0]


def test_only_requests_that_were_given_up_in_a_row_stop_a_run() -> None:
    breaker, busy = Breaker("here"), Failure("busy")
    for other in (breaker.answered, lambda: breaker.refused(Failure("too long"))):
        for _ in range(Breaker.EXHAUSTED - 1):
            breaker.exhausted(busy)
        other()
    for _ in range(Breaker.EXHAUSTED - 1):
        breaker.exhausted(busy)
    with pytest.raises(RefusedError, match="5 requests in a row failed, the last busy"):
        breaker.exhausted(busy)


def test_a_place_that_was_waited_for_in_vain_is_free_again() -> None:
    async def ask() -> tuple[int, int]:
        window = Window(1)

        async def hold(seconds: float) -> None:
            async with window.place():
                await asyncio.sleep(seconds)

        first = asyncio.create_task(hold(0.05))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(hold(0)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.gather(first, *waiting, return_exceptions=True)
        return window._quick, len(window._waiters)

    assert asyncio.run(ask()) == (0, 0)


def test_waits_double_up_to_a_bound_and_the_own_ones_count_towards_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("laurel.llm.retries.uniform", lambda low, high: high)
    slept: list[float] = []

    async def attempt() -> None:
        raise TransientError("busy", wait=100.0)

    async def sleep(seconds: float) -> None:
        slept.append(seconds - 100.0)

    with pytest.raises(TransientError, match="after 9 attempts: busy"):
        asyncio.run(persistently(attempt, 99, lambda: 0.0, 120.0, 1.0, sleep))
    assert slept == [1, 2, 4, 8, 16, 30, 30, 30]
    with pytest.raises(TransientError, match="after 3 attempts: busy"):
        asyncio.run(persistently(attempt, 3, lambda: 0.0, 120.0, 1.0, sleep))


def test_a_wait_that_a_server_asks_for_comes_on_top_of_the_own() -> None:
    slept: list[float] = []

    async def attempt() -> str:
        if not slept:
            raise TransientError("busy", wait=7.0)
        return "answer"

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    assert asyncio.run(persistently(attempt, 2, lambda: 0.0, 60.0, 0.5, sleep)) == "answer"
    assert 7.0 <= slept[0] <= 7.5
