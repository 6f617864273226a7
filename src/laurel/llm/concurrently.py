"""Work on many items at once behind a plain generator: a bounded number of coroutines on an event loop of its own.

The loop runs in a thread, so that calls go on (and their deadlines are true) while the caller is busy with an answer.
Items are drawn and results handed over in the caller's thread. Knows nothing of models or networks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

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
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="laurel-concurrently", daemon=True)
    thread.start()
    finished: SimpleQueue[tuple[int, Future[Result]]] = SimpleQueue()
    numbered = enumerate(items)
    running, exhausted = 0, False
    try:
        while True:
            if running < window and not exhausted:
                drawn = next(numbered, None)
                if drawn is None:
                    exhausted = True
                else:
                    running += 1
                    future = asyncio.run_coroutine_threadsafe(work(drawn[1]), loop)
                    future.add_done_callback(partial(_put, finished, drawn[0]))
            if exhausted and not running:
                return
            try:
                number, future = finished.get(block=exhausted or running == window)
            except Empty:
                continue
            running -= 1
            yield number, future.result()
    finally:
        asyncio.run_coroutine_threadsafe(_finish(close), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _put(finished: SimpleQueue[tuple[int, Future[Result]]], number: int, future: Future[Result]) -> None:
    finished.put((number, future))


async def _finish(close: Callable[[], Awaitable[None]]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await close()
    await asyncio.get_running_loop().shutdown_asyncgens()
