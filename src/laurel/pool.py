"""Worker processes: one job per process, as many at a time as there are CPUs. A process that dies loses only its own
work.

They are forked from a server process that has imported what they need, so that a job starts in milliseconds.
Each reports its progress, or why it failed, to its parent through a pipe. When either side ends, so does the pipe, and
the other side notices at once. Their matrix products are the same on every x86-64 CPU with AVX2.
"""

from __future__ import annotations

import errno
import gc
import importlib.metadata
import logging
import multiprocessing
import os
import signal
import sqlite3
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from laurel.data.disk import FULL, is_full
from laurel.errors import LaurelError, WorkerError
from laurel.interrupt import ctrl_c_held_back, ignore_terminal, stopped_by_sigterm
from laurel.machine import common_kernels
from laurel.plugins import blame
from laurel.progress import Advance, Schedule

POLL_SECONDS = 0.05
"""Interval in seconds at which the progress of jobs is polled; the end of a job is noticed at once."""
DISK_FULL = errno.ENOSPC
"""Exit code of a job that found the disk full."""
STOP_SECONDS = 10.0
"""Seconds that a process has to end after SIGTERM."""


@dataclass(frozen=True)
class Job:
    """A call of `work(*args, advance)` in a separate process."""

    name: str
    work: Callable[..., None]
    args: tuple[Any, ...]
    units: int = 1
    """Units of work, in which it reports progress."""
    before: int = 0
    """Units that an earlier run did; the job reports them first."""
    kind: str = ""
    """Jobs of the same kind take about the same time per unit."""


@dataclass(frozen=True)
class _Worker:
    """A running job and the receiving end of its pipe."""

    job: Job
    process: Any
    receiver: Connection


@dataclass(frozen=True)
class JobReport:
    """The progress of a job since the last report."""

    job: Job
    done: int
    ended: bool


def start_server(preload: Sequence[str] = ()) -> Any:
    """Start the server that worker processes are forked from, unless it runs; it imports modules in the background.

    Returns:
        The context that makes such processes; they are spawned where they cannot be forked.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["laurel.worker_kernels", "laurel.pool", *preload])
        resource_tracker.ensure_running()  # before the block below, since it unblocks SIGINT
        with ctrl_c_held_back(), _kernels(context):
            forkserver.ensure_running()
    return context


def _kernels(context: Any) -> AbstractContextManager[None]:
    """Return the block in which processes are started: it sets their kernels unless `laurel.worker_kernels` does.

    The server imports that module by itself only if this package is installed, not on the path of this process alone.
    """
    if context.get_start_method() == "forkserver" and _installed():
        return nullcontext()
    return common_kernels()


@cache
def _installed() -> bool:
    try:
        return bool(importlib.metadata.version("laurel-rl"))
    except importlib.metadata.PackageNotFoundError:
        return False


class Workers:
    """Worker processes, for a caller that decides while they run which jobs to start and which to stop."""

    def __init__(self, at_once: int | None, preload: Sequence[str] = ()) -> None:
        """Args: at_once as `workers`, and preload, of `run_jobs`."""
        self._context = start_server(preload)
        self._at_once = at_once or usable_cpus()
        self._running: list[_Worker] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop([worker.job for worker in self._running])

    @property
    def free(self) -> int:
        """How many more jobs may be started now."""
        return self._at_once - len(self._running)

    def start(self, job: Job) -> None:
        with ctrl_c_held_back(), _kernels(self._context):  # between fork and append, Ctrl-C would leave an orphan
            self._running.append(_start(self._context, job))

    def wait(self) -> None:
        """Wait until a process ends, and no longer than POLL_SECONDS."""
        wait([worker.process.sentinel for worker in self._running], POLL_SECONDS)

    def poll(self) -> list[JobReport]:
        """Return what each running job has done since the last call.

        Raises:
            LaurelError: a job raised it.
            WorkerError: a process died.
        """
        reports = []
        for worker in self._running:
            done = _poll(worker)
            reports.append(JobReport(worker.job, done, ended=worker.receiver.closed))
        self._running = [worker for worker in self._running if not worker.receiver.closed]
        return reports

    def stop(self, jobs: Sequence[Job]) -> None:
        """End the processes of jobs, and wait until they are gone."""
        stopped = [worker for worker in self._running if any(worker.job is job for job in jobs)]
        self._running = [worker for worker in self._running if not any(worker is ended for ended in stopped)]
        for worker in stopped:
            worker.process.terminate()
        for worker in stopped:
            worker.process.join(STOP_SECONDS)
            if worker.process.is_alive():  # it is suspended, or ignores SIGTERM
                worker.process.kill()
                worker.process.join()
            worker.receiver.close()


def run_jobs(
    jobs: Sequence[Job],
    workers: int | None,
    advance: Advance,
    preload: Sequence[str] = (),
    begun: Callable[[Job], None] = lambda _: None,
) -> None:
    """Run jobs, at most `workers` at a time, in order; kinds alternate, so that the speed of each is known early.

    Args:
        jobs: what to run; arguments and `work` must be picklable.
        workers: processes at a time; None for the number of CPUs that this process may use, also in a container.
        advance: called with the number of further units that the jobs report as done, and with the time left.
        preload: modules that are imported before the processes are forked.
        begun: called with each job when it starts.

    Raises:
        LaurelError: a job raised it; the others are stopped.
        WorkerError: a process died, e.g. because memory ran out.
    """
    order = _taking_turns(jobs)
    places = {id(job): place for place, job in enumerate(order)}
    schedule = Schedule([(job.kind, job.units - job.before) for job in order], workers or usable_cpus())
    n_before = [job.before for job in order]
    begin = ended = 0
    with Workers(workers, preload) as processes:
        while ended < len(order):
            while begin < len(order) and processes.free:
                processes.start(order[begin])
                schedule.begin(begin)
                begun(order[begin])
                begin += 1
            processes.wait()
            done = free = 0
            for report in processes.poll():
                place = places[id(report.job)]
                own_free = min(report.done, n_before[place])
                n_before[place] -= own_free
                schedule.add(place, report.done - own_free, ended=report.ended)
                done, free, ended = done + report.done - own_free, free + own_free, ended + report.ended
            if free:
                advance(free, free=True)
            advance(done, left=schedule.seconds_left())


@contextmanager
def running_beside(job: Job, preload: Sequence[str] = ()) -> Iterator[Callable[[], None]]:
    """Run a job in a process of its own while the caller continues; yields what waits for its end.

    Raises:
        LaurelError, WorkerError: from that function, as `run_jobs`.
    """
    with Workers(1, preload) as workers:
        workers.start(job)

        def finish() -> None:
            while not any(report.ended for report in workers.poll()):
                workers.wait()

        yield finish


def _taking_turns(jobs: Sequence[Job]) -> list[Job]:
    """Order jobs: the first of each kind, then the second of each, and so on."""
    nth, turns = Counter[str](), []
    for job in jobs:
        turns.append((nth[job.kind], job))
        nth[job.kind] += 1
    return [job for _, job in sorted(turns, key=lambda turn: turn[0])]


class _InWorkerError(Exception):
    """The traceback of a worker process, as text, for `--debug`."""


def prepare_worker() -> None:
    """Compute in one thread, since workers share the cores and sums keep their order then, and leave warnings of
    environments to the stage, which has logged them.
    """
    import torch

    torch.set_num_threads(1)
    logging.getLogger("laurel.envs").setLevel(logging.ERROR)


def usable_cpus() -> int:
    """Count the CPUs that this process may use, given its affinity and its container's quota."""
    import joblib

    return joblib.cpu_count()


def _start(context: Any, job: Job) -> _Worker:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_main, args=(job, sender), name=job.name, daemon=True)
    process.start()
    sender.close()
    return _Worker(job, process, receiver)


def _poll(worker: _Worker) -> int:
    """Return how many more units a worker has done; close its pipe when it has ended.

    Raises:
        LaurelError: the job raised it.
        WorkerError: its process died.
    """
    done, ended = 0, False
    try:
        while worker.receiver.poll():
            message = worker.receiver.recv()
            if isinstance(message, tuple):
                text, trace = message
                raise LaurelError(text) from _InWorkerError(trace)
            done += message
    except (EOFError, OSError):  # the process has ended, perhaps in the middle of a message
        ended = True
    if ended:
        worker.receiver.close()
        worker.process.join()
        _check_exit(worker)
    return done


def _check_exit(worker: _Worker) -> None:
    code = worker.process.exitcode
    if code == DISK_FULL:
        raise WorkerError(f"{worker.job.name}: {FULL}")
    if code != 0:
        end = f"killed by {_signal(-code)}" if code < 0 else f"exit code {code}, see its traceback above"
        first = "" if code < 0 else "fix the cause, then "
        raise WorkerError(
            f"{worker.job.name}: its process died ({end}). Finished work is kept: {first}run the same command again to "
            "resume."
        )


def _signal(number: int) -> str:
    """Describe a signal; the kernel sends SIGKILL where memory runs out."""
    if number == signal.SIGKILL:
        return f"signal {number} (out of memory?)"
    known = {member.value: member.name for member in signal.Signals}
    return f"signal {number} ({known[number]})" if number in known else f"signal {number}"


def _end_with_parent() -> None:
    """End this process when its parent has ended, even while it waits: its results would not be used."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _main(job: Job, sender: Connection) -> None:
    """Do a job in a child process, which ignores Ctrl-C (its parent stops it) and ends when its parent does."""
    ignore_terminal()

    def report(message: int | tuple[str, str]) -> None:
        try:
            sender.send(message)
        except BrokenPipeError:  # the parent has ended
            os._exit(1)

    report(0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    stopped = False
    try:
        with stopped_by_sigterm():  # temporary folders are removed, and answers that are paid for are stored
            job.work(*job.args, report)
    except KeyboardInterrupt:
        stopped = True
    except (Exception, SystemExit) as error:  # a plug-in of another package may raise anything, or call sys.exit()
        if isinstance(error, OSError | sqlite3.Error) and is_full(error):
            sys.exit(DISK_FULL)
        said = error if isinstance(error, LaurelError) else blame(error)
        if said is None:
            if isinstance(error, SystemExit):
                raise RuntimeError("sys.exit() was called") from error
            raise
        report((str(said), f"\n{traceback.format_exc()}"))
        sys.exit(2)
    gc.collect()  # the process ends without it, and what the job's frames held may have temporary folders
    if stopped:
        signal.raise_signal(signal.SIGTERM)
