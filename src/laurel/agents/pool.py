"""Jobs over the cores, a process each: one that dies takes nothing with it but its own work.

Processes are forked from a server that has imported what they need, so that a job starts in milliseconds.
Knows nothing about what the jobs do.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from laurel.errors import LaurelError, WorkerError

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Job:
    """A call of `work(*args, advance)` in a process of its own."""

    name: str
    work: Callable[..., None]
    args: tuple[Any, ...]


def run_jobs(jobs: Sequence[Job], workers: int, advance: Advance, preload: Sequence[str] = ()) -> None:
    """Run jobs, at most `workers` at a time, in order.

    Args:
        jobs: what to run; arguments and `work` must be picklable.
        workers: processes at a time.
        advance: told how many more units the jobs report as done.
        preload: modules that the processes find imported.

    Raises:
        LaurelError: a job raised it; the others are stopped.
        WorkerError: a process died, e.g. killed for want of memory.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["laurel.agents.pool", *preload])
    done = context.Value(ctypes.c_int64, 0)
    waiting = list(reversed(jobs))
    running: list[tuple[Job, Any, Connection]] = []
    reported = 0
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.pop()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(
                    target=_main, args=(job, done, sender, os.getpid()), name=job.name, daemon=True
                )
                process.start()
                sender.close()
                running.append((job, process, receiver))
            time.sleep(0.05)
            for entry in [entry for entry in running if not entry[1].is_alive()]:
                running.remove(entry)
                _check(*entry)
            total = done.value
            advance(total - reported)
            reported = total
    finally:
        for _, process, _ in running:
            process.terminate()
        for _, process, _ in running:
            process.join()


def _check(job: Job, process: Any, receiver: Connection) -> None:
    """Raise what a finished process failed with."""
    process.join()
    with suppress(EOFError):  # nothing was sent
        raise LaurelError(receiver.recv())
    if process.exitcode != 0:
        code = process.exitcode
        how = f"killed by signal {-code} (out of memory?)" if code < 0 else f"exit code {code}, see its traceback above"
        raise WorkerError(
            f"{job.name}: its process died ({how}). What was finished is kept: run the same command again to go on."
        )


def _main(job: Job, done: Any, sender: Connection, parent: int) -> None:
    """Do a job in a child process: quiet on Ctrl-C, gone when the parent is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def advance(n: int) -> None:
        with done.get_lock():
            done.value += n
        if not _alive(parent):
            os._exit(1)

    try:
        job.work(*job.args, advance)
    except LaurelError as error:
        sender.send(str(error))
        sys.exit(2)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
