"""Handling of Ctrl-C, SIGTERM and SIGHUP: all stop a command in the same way, and are deferred where they would harm.

Ctrl-C during the import of a compiled library raises that library's error or is lost; while a process is being started,
it leaves an orphan process behind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from types import FrameType

HANGUP = getattr(signal, "SIGHUP", None)
"""Windows lacks it."""
PARENT = "LAUREL_PARENT"
"""Environment variable: the process id of the command that started this one and waits for it."""
WATCHED_SECONDS = 0.5
"""Interval between checks whether that process still runs."""
REPEATED_SECONDS = 0.1
"""Delay before resending a signal whose exception Python ignored."""


@contextmanager
def terminated_like_ctrl_c() -> Iterator[None]:
    """Within the block, treat SIGTERM, the stop signal of Docker, Kubernetes and systemd, like Ctrl-C; SIGHUP, which
    comes when a terminal closes or a connection is lost, too, unless it is ignored, as with nohup.

    So open files are closed, temporary folders are removed, and worker processes end. Only the main thread receives
    signals. A signal is sent again if Python ignores its exception, as it does within callbacks of the import system.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: object) -> None:
        if number == _stopping_signal():
            raise KeyboardInterrupt
        signal.raise_signal(_stopping_signal())  # handled like Ctrl-C, also by asyncio

    stopping = [signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) == signal.SIG_DFL:
        stopping.append(HANGUP)
    previous = [signal.signal(signum, stop) for signum in stopping]
    try:
        with _repeated_if_ignored():
            yield
    finally:
        for signum, handler in zip(stopping, previous, strict=True):
            signal.signal(signum, handler)


@contextmanager
def _repeated_if_ignored() -> Iterator[None]:
    """Within the block, interrupt the main thread again if a KeyboardInterrupt was raised where Python ignores all
    exceptions: in callbacks of weak references, such as the import system's, and in finalizers.
    """
    previous = sys.unraisablehook
    thread = threading.get_ident()

    def repeat(ignored: sys.UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            previous(ignored)
            return
        timer = threading.Timer(REPEATED_SECONDS, _interrupt, [thread])  # not at once, where it would be ignored, too
        timer.daemon = True
        timer.start()

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = previous


def stop_with_parent(*, through_shell: bool = False) -> None:
    """From now on, stop this process by SIGTERM once the process named by PARENT has ended: if the parent was killed,
    this process would otherwise continue to pay for answers that are not used.

    Args:
        through_shell: whether the parent has started this process through a shell.
    """
    parent = os.environ.pop(PARENT, None)  # commands that this process starts have another parent
    if parent is None:
        return

    def waits() -> bool:
        if not through_shell:
            return os.getppid() == int(parent)
        import psutil

        return any(ancestor.pid == int(parent) for ancestor in psutil.Process().parents())

    def watch() -> None:
        while waits():
            time.sleep(WATCHED_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def ignore_terminal() -> None:
    """From now on ignore Ctrl-C and a closing terminal: the parent process ends this one."""
    for signum in (signal.SIGINT, HANGUP):
        if signum is not None:
            signal.signal(signum, signal.SIG_IGN)


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Within the block, the first SIGTERM raises KeyboardInterrupt; later ones do not interrupt what that cleans up.

    For worker processes, which ignore Ctrl-C: their parent ends them by SIGTERM, and kills them if that takes long.
    """

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def ctrl_c_held_back() -> Iterator[None]:
    """Defer Ctrl-C until after the block. A process started in the block ignores it: its parent must end it."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return
    pressed: list[int] = []
    stopping = _stopping_signal()
    handler = signal.signal(stopping, lambda number, _: pressed.append(number))
    masks = hasattr(signal, "pthread_sigmask")  # Windows lacks it; a new process inherits it
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else ()
    try:
        yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        signal.signal(stopping, handler)
        if pressed:
            signal.raise_signal(stopping)


@contextmanager
def ctrl_c_noted(wake: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Record Ctrl-C instead of raising; it takes effect when the block ends, or when pressed again unless this is a
    worker, which its parent ends after some seconds.

    Args:
        wake: called from the signal handler when Ctrl-C is pressed.

    Yields:
        A function that returns whether Ctrl-C was pressed.
    """
    stopping = _stopping_signal()
    previous = signal.getsignal(stopping)
    if threading.current_thread() is not threading.main_thread() or not callable(
        previous
    ):  # signals go to the main thread, or are ignored
        yield lambda: False
        return
    pressed = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1 and parent_process() is None:  # a worker may get a signal to its group, and its parent's
            previous(number, frame)
        wake()

    signal.signal(stopping, note)
    try:
        yield lambda: pressed > 0
    finally:
        signal.signal(stopping, previous)
        if pressed and (pressed == 1 or parent_process() is not None):  # otherwise a second one was raised
            signal.raise_signal(stopping)


def _interrupt(main_thread: int) -> None:
    """Send the main thread the signal that stops this process, also if it waits."""
    if hasattr(signal, "pthread_kill"):  # Windows lacks it
        signal.pthread_kill(main_thread, _stopping_signal())
    else:
        signal.raise_signal(_stopping_signal())


def _stopping_signal() -> signal.Signals:
    """Return the signal that stops this process: SIGTERM where Ctrl-C is ignored, as in a shell's background."""
    return signal.SIGTERM if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None) else signal.SIGINT
