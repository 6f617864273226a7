"""Work in a thread beside the caller's: in order, whole, and not silent where it fails."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.data import background
from laurel.data.background import InBackground, read_ahead


@given(st.lists(st.integers(), max_size=200))
def test_items_are_worked_on_in_order_and_all_at_the_end(items: list[int]) -> None:
    done: list[int] = []
    with InBackground(done.append) as work:
        for item in items:
            work(item)
    assert done == items
    assert list(read_ahead(items)) == items


def test_work_is_done_in_one_other_thread() -> None:
    seen: list[int] = []
    with InBackground[int](lambda _: seen.append(threading.get_ident())) as work:
        work(0)
        work(1)
    assert len(set(seen)) == 1
    assert seen[0] != threading.get_ident()


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "WAITING", 3)
    go, done = threading.Event(), []

    def slow(item: int) -> None:
        assert go.wait(60)
        done.append(item)

    with InBackground(slow) as work:
        for item in range(3):
            work(item)
        threading.Timer(0.1, go.set).start()
        work(3)  # has to wait for the first
        assert done
    assert done == [0, 1, 2, 3]


def test_an_error_of_the_work_is_the_callers() -> None:
    def fail(item: int) -> None:
        if item == 1:
            raise OSError(28, "No space left on device")

    def work_on(items: Iterable[int]) -> None:
        with InBackground(fail) as work:
            for item in items:
                work(item)

    with pytest.raises(OSError, match="No space"):
        work_on([0, 1])
    with pytest.raises(OSError, match="No space"):  # before the end of the block
        work_on(itertools.repeat(1))


def test_an_error_of_the_caller_ends_the_work() -> None:
    started, go = threading.Event(), threading.Event()
    done: list[int] = []

    def slow(item: int) -> None:
        started.set()
        assert go.wait(60)
        done.append(item)

    def interrupted() -> None:
        with InBackground(slow) as work:
            for item in range(5):
                work(item)
            assert started.wait(60)
            threading.Thread(target=go_on_when_cancelled, args=[work._waiting[-1]]).start()
            raise KeyboardInterrupt

    def go_on_when_cancelled(last: Future[None]) -> None:
        deadline = time.monotonic() + 20
        while not last.cancelled() and time.monotonic() < deadline:
            time.sleep(0.001)
        go.set()

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == [0], "what has begun is finished, what waits is not begun"


def test_reading_ahead_is_one_item_ahead_and_raises_errors() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for item in range(5):
            if item == 4:
                raise ValueError("damaged")
            made.append(item)
            yield item

    reader = read_ahead(items())
    assert next(reader) == 0
    for expected in (1, 2, 3):
        assert next(reader) == expected
        assert len(made) <= expected + 2
    with pytest.raises(ValueError, match="damaged"):
        next(reader)


def test_reading_ahead_can_be_given_up() -> None:
    before = set(threading.enumerate())
    reader = read_ahead(iter(range(10)))
    assert next(reader) == 0
    (thread,) = set(threading.enumerate()) - before
    reader.close()
    assert not thread.is_alive()
