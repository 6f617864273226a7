"""Ctrl-C, and SIGTERM treated alike, held back where it would do harm.

Pressed while a compiled library is imported, Ctrl-C becomes an error of that library or is lost; pressed while a
process is started, it leaves an orphan behind.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminated_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM, which Docker, Kubernetes and systemd stop with, do in the block what Ctrl-C does.

    So what is open is closed, temporary folders go, and worker processes end. Only the main thread can hear signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: object) -> None:
        if _stopping_signal() == signal.SIGTERM:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)  # the present handler of Ctrl-C, such as asyncio, handles this, too

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def ctrl_c_held_back() -> Iterator[None]:
    """Let Ctrl-C take effect after the block. A process that is started here ignores it: its parent has to end it."""
    if threading.current_thread() is not threading.main_thread():  # the only one that gets signals
        yield
        return
    pressed: list[int] = []
    stopping = _stopping_signal()
    handler = signal.signal(stopping, lambda number, _: pressed.append(number))
    masks = hasattr(signal, "pthread_sigmask")  # which Windows lacks, and a new process inherits
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else ()
    try:
        yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(stopping, handler)
        if pressed:
            signal.raise_signal(stopping)


@contextmanager
def ctrl_c_noted(wake: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Note Ctrl-C rather than let it raise; pressed again, or when the block ends, it takes effect.

    Args:
        wake: is called when it is pressed, in the signal's handler.

    Yields:
        A function that says whether it was pressed.
    """
    stopping = _stopping_signal()
    before = signal.getsignal(stopping)
    if threading.current_thread() is not threading.main_thread() or not callable(
        before
    ):  # signals go to the main thread, or are ignored
        yield lambda: False
        return
    pressed = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1:
            before(number, frame)
        wake()

    signal.signal(stopping, note)
    try:
        yield lambda: pressed > 0
    finally:
        signal.signal(stopping, before)
        if pressed == 1:  # a second one was raised
            signal.raise_signal(stopping)


def _stopping_signal() -> signal.Signals:
    """Return the signal that stops this process: SIGTERM where Ctrl-C is ignored, as in a shell's background."""
    return signal.SIGTERM if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None) else signal.SIGINT
