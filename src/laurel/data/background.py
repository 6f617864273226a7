"""Background threads: one writes finished items, one reads the next item ahead.

This saves time if the work releases the GIL, as Arrow and NumPy do. The order is kept; errors are raised in the caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
WAITING = 64
"""Maximum number of items that wait for the thread, which bounds memory if the thread is slower than its caller."""


class InBackground(Generic[Item]):
    """Calls a function with one item after the other in a thread; errors are raised at the next call or at the end."""

    def __init__(self, work: Callable[[Item], None]) -> None:
        self._work = work
        self._thread = ThreadPoolExecutor(1)
        self._waiting: deque[Future[None]] = deque()

    def __call__(self, item: Item) -> None:
        while self._waiting and (self._waiting[0].done() or len(self._waiting) >= WAITING):
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(self._work, item))

    def __enter__(self) -> InBackground[Item]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._thread.shutdown(cancel_futures=error is not None)
        if error is None:
            for future in self._waiting:
                future.result()


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items in order, while a thread makes the next one.

    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    iterator = iter(items)
    end: Any = object()
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, iterator, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, iterator, end)
            yield item
