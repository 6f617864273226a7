"""Runs coroutines over many items behind a plain generator, at most a window of them at a time.

The event loop runs in a thread, so that calls continue (and their timeouts hold) while the caller handles an answer.
Items are drawn and results yielded in the caller's thread.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import parent_process
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from laurel.console import tell
from laurel.interrupt import ctrl_c_noted

GRACE = 3.0
"""Seconds to wait after Ctrl-C for pending calls, which have to be paid for anyway."""
GRACE_AFTER_ERROR = 30.0
"""The same after an error, when no user waits at the keyboard."""
SWITCH = 0.0005
"""Switch interval of the GIL in seconds: with Python's default of 5 ms, slots of the window stay empty longer."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class Idle:
    """Items that wait to be retried: each frees a slot for another item, up to the size of the window."""

    def __init__(self) -> None:
        self.now = 0
        self.wake: Callable[[], None] = lambda: None
        """Called when another item becomes idle."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._shut = False

    async def sleep(self, seconds: float) -> None:
        """Wait without occupying a slot of the window."""
        if self._shut:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        self.now += 1
        self._tasks.add(task)
        self.wake()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._tasks.remove(task)
            self.now -= 1

    def shut(self) -> None:
        """Cancel the items that wait or are about to; called in the loop."""
        self._shut = True
        for task in self._tasks:
            task.cancel()


def concurrently(
    items: Iterable[Item],
    work: Callable[[Item], Coroutine[Any, Any, Result]],
    window: int,
    close: Callable[[], Awaitable[None]],
    idle: Idle | None = None,
    shut: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, Result]]:
    """Yield (number of the item, result) as results come in.

    At most `window` items are in work at a time, besides up to as many idle ones. They are cancelled when the generator
    is closed. `close` runs last.

    After Ctrl-C or an error in `work` no more items are taken, idle ones are cancelled, and `shut` is called in the
    loop, which may cancel others that wait; results within GRACE or GRACE_AFTER_ERROR seconds are yielded, and then
    KeyboardInterrupt or the first error is raised. A second Ctrl-C raises it immediately.
    """
    idle = idle or Idle()
    loop = _LoopThread(work)
    idle.wake = loop.wake
    with _quick_switches(), ctrl_c_noted(loop.wake) as pressed:
        try:
            yield from _results(items, loop, window, idle, pressed, shut)
        finally:
            loop.stop(close)


@contextmanager
def _quick_switches() -> Iterator[None]:
    """Shorten the switch interval of threads: each answer goes from the loop to the caller, and the next request
    back.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(min(SWITCH, interval))
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def _results(
    items: Iterable[Item],
    loop: _LoopThread[Item, Result],
    window: int,
    idle: Idle,
    pressed: Callable[[], bool],
    shut: Callable[[], None],
) -> Iterator[tuple[int, Result]]:
    numbered = enumerate(items)
    ready: deque[tuple[int, asyncio.Task[Result]]] = deque()
    running, exhausted, deadline = 0, False, math.inf
    failure: BaseException | None = None

    def stop(seconds: float, reason: str) -> None:
        """Take no more items, and wait for pending ones."""
        nonlocal exhausted, deadline
        exhausted, deadline = True, min(deadline, time.monotonic() + seconds)
        loop.call(idle.shut)
        loop.call(shut)
        _say(reason, seconds)

    stopped = False
    while True:
        if pressed() and not stopped:
            stopped = True
            stop(GRACE, "Stopping: {}. Press Ctrl-C again to stop at once.")
        full = running >= window + min(idle.now, window)
        if not full and not exhausted:
            drawn = next(numbered, None)
            if drawn is None:
                exhausted = True
            else:
                running += 1
                loop.start(*drawn)
        if exhausted and not running:
            break
        ready.extend(loop.finished(deadline if not ready and (exhausted or full) else None))
        if ready:  # one result, then the next item, so that a slow caller leaves no slot empty
            number, task = ready.popleft()
            running -= 1
            if not task.cancelled() and task.exception() is None:
                yield number, task.result()
            elif failure is None and not (task.cancelled() and deadline < math.inf):
                failure = asyncio.CancelledError() if task.cancelled() else task.exception()
                reason = "An error ends this: {}. Press Ctrl-C to stop sooner." if running and not stopped else ""
                stop(GRACE_AFTER_ERROR, reason)
        elif time.monotonic() >= deadline:
            break
    if failure is not None:
        raise failure


def _say(reason: str, seconds: float) -> None:
    """Say why and how long pending answers are waited for, in the process that the user sees."""
    if reason and parent_process() is None:
        tell(reason.format(f"waiting up to {seconds:g} s for pending answers"))


class _LoopThread(Generic[Item, Result]):
    """A thread with an event loop, and the tasks that run on it."""

    def __init__(self, work: Callable[[Item], Coroutine[Any, Any, Result]]) -> None:
        self._work = work
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="laurel-concurrently", daemon=True)
        self._finished: SimpleQueue[list[tuple[int, asyncio.Task[Result]]]] = SimpleQueue()
        self._batch: list[tuple[int, asyncio.Task[Result]]] = []
        self._new: deque[tuple[int, Item]] = deque()
        self._woken = False
        self._thread.start()

    def start(self, number: int, item: Item) -> None:
        """Start work on an item. Waking the loop costs as much as a request, so one call covers all new items."""
        self._new.append((number, item))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._start_new)

    def _start_new(self) -> None:
        self._woken = False  # before looking for items: one that comes later wakes the loop again
        while self._new:
            number, item = self._new.popleft()
            self._loop.create_task(self._work(item)).add_done_callback(partial(self._hand_over, number))

    def _hand_over(self, number: int, task: asyncio.Task[Result]) -> None:
        """Collect results of the same loop iteration, since waking the caller costs more than most of the work."""
        if not self._batch:
            self._loop.call_soon(self._flush)
        self._batch.append((number, task))
        if not task.cancelled():
            task.exception()  # or asyncio warns of errors that were not retrieved: only the first is raised

    def _flush(self) -> None:
        self._finished.put(self._batch)
        self._batch = []

    def finished(self, deadline: float | None) -> list[tuple[int, asyncio.Task[Result]]]:
        """Return tasks that ended, waiting until then (monotonic) for one, or for `wake`; None does not wait."""
        try:
            if deadline is None:
                return self._finished.get_nowait()
            left = None if deadline == math.inf else max(deadline - time.monotonic(), 0.0)
            return self._finished.get(timeout=left)
        except Empty:
            return []

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the loop."""
        self._loop.call_soon_threadsafe(function)

    def wake(self) -> None:
        """End the wait for tasks, from any thread or a signal's handler."""
        self._finished.put([])

    def stop(self, close: Callable[[], Awaitable[None]]) -> None:
        asyncio.run_coroutine_threadsafe(self._finish(close), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _finish(self, close: Callable[[], Awaitable[None]]) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await close()
        await self._loop.shutdown_asyncgens()
