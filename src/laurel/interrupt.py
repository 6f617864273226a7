"""Ctrl-C that is neither lost nor in the way.

Pressed while a compiled library is imported, it is an error of that library, or nothing at all; pressed while a process
is started, it leaves one behind of which nobody knows. Knows nothing about what goes on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c_held_back() -> Iterator[None]:
    """Let Ctrl-C take effect after the block; a process that is started here never hears of it.

    Ending such a process is its parent's business.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone hears of it
        yield
        return
    pressed: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    masks = hasattr(signal, "pthread_sigmask")  # which Windows lacks, and a new process inherits
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else ()
    try:
        yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if pressed:
            signal.raise_signal(signal.SIGINT)
