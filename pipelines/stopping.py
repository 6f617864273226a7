"""Ends the steps of a local run once it is stopped.

KFP waits for the steps of a loop that are running, and then starts the queued ones: these are ended, too, until it has
given up.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

EXECUTOR = "kfp.dsl.executor_main"
"""The module that a step's process runs."""
GRACE = 30.0
"""Seconds that a step has to end after SIGTERM."""


@contextmanager
def ended_once_interrupted(end: Callable[[], object], interrupted: threading.Event) -> Iterator[None]:
    """Call `end` again and again once Ctrl-C is pressed, until the block and all threads that it has started end.

    KFP does not wait for a thread if Ctrl-C was pressed while it started it, and this thread would run its step.

    Args:
        end: ends the steps that are running.
        interrupted: is set if Ctrl-C was pressed.
    """
    ended, earlier = threading.Event(), threading.enumerate()

    def end_until_ended() -> None:
        end()
        while not ended.wait(0.2):
            end()

    ending = threading.Thread(target=end_until_ended, name="end steps", daemon=True)

    def on_interrupt(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            ending.start()
        raise KeyboardInterrupt

    in_main_thread = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGINT, on_interrupt) if in_main_thread else None
    try:
        yield
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, previous)
        if interrupted.is_set():
            for thread in threading.enumerate():
                if thread not in earlier and not thread.daemon:
                    thread.join()
            ended.set()
            ending.join()


class StepProcesses:
    """The processes of a run's steps, which are descendants of this process."""

    def __init__(self) -> None:
        self._terminated: dict[Any, float] = {}
        """Process -> when it received SIGTERM, in seconds."""

    def end(self) -> None:
        """Send SIGTERM to those that are running, and kill those that still run after GRACE seconds."""
        import psutil

        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has ended
                if EXECUTOR not in process.cmdline():  # of its shell it is a part of an argument
                    continue
                if process not in self._terminated:
                    self._terminated[process] = time.monotonic()
                    process.terminate()
                elif time.monotonic() - self._terminated[process] > GRACE:
                    process.kill()

    def wait(self) -> None:
        """Wait until those that received SIGTERM have ended; kill those that still run after GRACE seconds."""
        import psutil

        _, running = psutil.wait_procs(list(self._terminated), GRACE)
        for process in running:
            with suppress(psutil.Error):
                process.kill()
