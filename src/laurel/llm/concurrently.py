"""Work on many items at once behind a plain generator: a bounded number of coroutines on an event loop of its own.

The loop runs in a thread, so that calls go on (and their deadlines are true) while the caller is busy with an answer.
Items are drawn and results handed over in the caller's thread. Knows nothing of models or networks.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def concurrently(
    items: Iterable[Item],
    work: Callable[[Item], Coroutine[Any, Any, Result]],
    window: int,
    close: Callable[[], Awaitable[None]],
) -> Iterator[tuple[int, Result]]:
    """Yield (number of the item, result) as results come in.

    Of the items at most `window` are drawn beyond those whose results were yielded. An error in `work` is raised
    here; then, and when the generator is closed or interrupted, the others are cancelled. `close` runs last.
    """
    crew = _Crew(work)
    numbered = enumerate(items)
    ready: deque[tuple[int, asyncio.Task[Result]]] = deque()
    running, exhausted = 0, False
    try:
        while True:
            if running < window and not exhausted:
                drawn = next(numbered, None)
                if drawn is None:
                    exhausted = True
                else:
                    running += 1
                    crew.start(*drawn)
            if exhausted and not running:
                return
            ready.extend(crew.finished(wait=not ready and (exhausted or running == window)))
            if ready:  # one, and then the next item: a slow caller keeps no place empty
                number, task = ready.popleft()
                running -= 1
                yield number, task.result()
    finally:
        crew.stop(close)


class _Crew(Generic[Item, Result]):
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
        """Have an item worked on. To wake the loop costs as much as a request, so that one call is for all items."""
        self._new.append((number, item))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._start_new)

    def _start_new(self) -> None:
        self._woken = False  # before the last look: what comes after that wakes the loop again
        while self._new:
            number, item = self._new.popleft()
            self._loop.create_task(self._work(item)).add_done_callback(partial(self._hand_over, number))

    def _hand_over(self, number: int, task: asyncio.Task[Result]) -> None:
        """Collect what ends in the same turn of the loop: to wake the caller costs more than most of the work."""
        if not self._batch:
            self._loop.call_soon(self._flush)
        self._batch.append((number, task))
        if not task.cancelled():
            task.exception()  # has been seen, as far as asyncio is concerned: not all are handed on after the first

    def _flush(self) -> None:
        self._finished.put(self._batch)
        self._batch = []

    def finished(self, wait: bool) -> list[tuple[int, asyncio.Task[Result]]]:
        """Return tasks that ended, waiting for one if need be."""
        try:
            return self._finished.get(block=wait)
        except Empty:
            return []

    def stop(self, close: Callable[[], Awaitable[None]]) -> None:
        asyncio.run_coroutine_threadsafe(self._finish(close), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _finish(self, close: Callable[[], Awaitable[None]]) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await close()
        await self._loop.shutdown_asyncgens()
