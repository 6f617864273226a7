"""Jobs in worker processes: results, failures and cleanup."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from laurel import pool
from laurel.errors import DataError, LaurelError, WorkerError
from laurel.pool import Job, run_jobs, usable_cpus
from pool_jobs import (
    GUARD,
    Told,
    count,
    die,
    exit_at_once,
    fail,
    fail_as_a_plug_in,
    ignore,
    linger,
    meet,
    read_pids,
    tell_and_wait,
    wait_until_gone,
)


# -- work -------------------------------------------------------------------------------------------------------
def test_all_jobs_are_done_and_their_progress_adds_up(tmp_path: Path) -> None:
    steps = [[1, 2, 3], [], [10], [100] * 5]
    jobs = [
        Job(f"job {i}", count, (tmp_path / str(i), of_job), units=sum(of_job), before=i, kind="ab"[i // 2])
        for i, of_job in enumerate(steps)
    ]
    reported, begun = Told(), list[Job]()
    run_jobs(jobs, 2, reported, begun=begun.append)
    assert sum(reported) == sum(map(sum, steps))
    assert reported.free == 2 + 3, "the first job did nothing before, and the second has nothing to report"
    assert begun == [jobs[0], jobs[2], jobs[1], jobs[3]], "kinds take turns"
    assert all((tmp_path / str(i)).exists() for i in range(4))
    pids = {(tmp_path / str(i)).read_text() for i in range(4)}
    assert len(pids) == 4, "a process each"
    assert str(os.getpid()) not in pids


def test_no_jobs() -> None:
    run_jobs([], 2, ignore)


def test_progress_is_reported_while_it_is_made(tmp_path: Path) -> None:
    told = list[int]()

    def advance(n: int, *, free: bool = False, left: float | None = None) -> None:
        told.append(n)
        if sum(told) == 3:
            (tmp_path / "heard").touch()

    run_jobs([Job("waits to be heard", tell_and_wait, (tmp_path / "heard",))], 1, advance)


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_as_many_at_a_time_as_there_are_workers_and_in_order(workers: int, tmp_path: Path) -> None:
    together = min(workers, 4)
    run_jobs([Job(f"job {i}", meet, (tmp_path, i, together)) for i in range(4)], workers, ignore)
    times = [[float((tmp_path / f"{kind}-{i}").read_text()) for kind in ("begin", "end")] for i in range(4)]
    at_once = [sum(begin <= moment < end for begin, end in times) for moment, _ in times]
    assert max(at_once) <= together  # fewer where a busy machine lets one end before another begins
    assert max(at_once) >= min(together, 2)
    if workers == 1:
        assert times == sorted(times)


def test_left_open_as_many_at_a_time_as_there_are_cpus_to_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "usable_cpus", lambda: 1)
    run_jobs([Job(f"job {i}", meet, (tmp_path, i, 1)) for i in range(3)], None, ignore)
    times = [[float((tmp_path / f"{kind}-{i}").read_text()) for kind in ("begin", "end")] for i in range(3)]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(times))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to CPUs")
def test_usable_cpus_are_those_of_the_process_and_not_of_the_machine() -> None:
    cpus = os.sched_getaffinity(0)
    assert 1 <= usable_cpus() <= len(cpus)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        assert usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, cpus)


def test_a_job_may_report_more_than_a_pipe_holds(tmp_path: Path) -> None:
    reported = Told()
    run_jobs([Job("chatty", count, (tmp_path / "done", [1] * 20_000))], 1, reported)
    assert sum(reported) == 20_000


# -- failure ----------------------------------------------------------------------------------------------------
def test_a_user_error_is_one_sentence_and_stops_the_other_jobs(tmp_path: Path) -> None:
    jobs = [Job("long", linger, (tmp_path / "pid",)), Job("bad", fail, (DataError("x.parquet: cannot be read."),))]
    started = time.monotonic()
    with pytest.raises(LaurelError, match=r"^x\.parquet: cannot be read\.$"):
        run_jobs(jobs, 2, ignore)
    assert time.monotonic() - started < GUARD
    if (tmp_path / "pid").exists():
        wait_until_gone(read_pids([tmp_path / "pid"]))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("left"), "raised KeyError in fail_as_a_plug_in: 'left'"),
        (SystemExit(0), r"called sys\.exit\(\) in fail_as_a_plug_in: 0"),
    ],
)
def test_an_exception_in_a_plug_in_is_a_sentence(error: BaseException, said: str) -> None:
    """`sys.exit(0)`, too, which would look like a job that has ended."""
    with pytest.raises(LaurelError, match=rf"The colour \"teal\" \(pool_jobs\) of another package {said}"):
        run_jobs([Job("theirs", fail_as_a_plug_in, (error,))], 1, ignore)


def test_a_full_disk_is_no_bug() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "policy.safetensors")
    with pytest.raises(WorkerError, match=r"^ours: the disk is full\. Free some space and run again"):
        run_jobs([Job("ours", fail, (error,))], 1, ignore)


def test_a_sentence_of_any_length() -> None:
    sentence = "It is a long story. " * 50_000  # more than a pipe holds
    with pytest.raises(LaurelError) as caught:
        run_jobs([Job("bad", fail, (DataError(sentence),))], 1, ignore)
    assert str(caught.value) == sentence
    assert "in fail" in str(caught.value.__cause__), "the job's own traceback, for --debug"


@pytest.mark.parametrize(
    ("work", "argument", "how"),
    [
        (exit_at_once, 3, r"exit code 3, see its traceback above"),
        (die, signal.SIGKILL, r"killed by signal 9 \(out of memory\?\)"),
        (die, signal.SIGABRT, r"killed by signal 6 \(SIGABRT\)"),
    ],
)
def test_a_process_that_dies_is_named(work: Any, argument: int, how: str, tmp_path: Path) -> None:
    jobs = [Job("job 1", count, (tmp_path / "done", [1])), Job("job 2", work, (argument,))]
    with pytest.raises(WorkerError, match=rf"^job 2: its process died \({how}.*run the same command again") as caught:
        run_jobs(jobs, 1, ignore)
    assert (tmp_path / "done").exists(), "what was finished is kept"
    assert caught.value.__context__ is None


FAILING = """
import sys
sys.path.insert(0, sys.argv[1])
from laurel import pool
from laurel.pool import Job, run_jobs, usable_cpus
from laurel.errors import DataError, LaurelError
from pool_jobs import fail, ignore

if __name__ == "__main__":
    error = {"defect": ZeroDivisionError("by naught"), "data": DataError("x.parquet: cannot be read.")}[sys.argv[2]]
    try:
        run_jobs([Job("job 7", fail, (error,))], 1, ignore)
    except LaurelError as error:
        print(error)
"""


@pytest.mark.parametrize("kind", ["defect", "data"])
def test_only_bugs_have_a_traceback(kind: str, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    command = [sys.executable, "failing.py", str(Path(__file__).parent), kind]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    if kind == "data":
        assert (done.stdout, done.stderr) == ("x.parquet: cannot be read.\n", "")
    else:
        assert done.stdout.startswith("job 7: its process died (exit code 1, see its traceback above)")
        assert "Traceback" in done.stderr
        assert "ZeroDivisionError: by naught" in done.stderr


def test_a_job_that_exits_without_an_error_is_done() -> None:
    run_jobs([Job("quiet", exit_at_once, (0,))], 1, ignore)


def test_progress_before_a_failure_is_reported() -> None:
    """A job may tell how far it came and fail right after."""
    told = Told()
    jobs = [Job("good", count, (Path(os.devnull), [5])), Job("bad", exit_at_once, (3,))]
    with pytest.raises(WorkerError):
        run_jobs(jobs, 1, told)
    assert sum(told) == 5


def test_an_error_of_the_caller_stops_the_jobs(tmp_path: Path) -> None:
    """As when the progress bar cannot be drawn."""

    def broken(n: int, *, free: bool = False, left: float | None = None) -> None:
        if n:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_jobs([Job("long", linger, (tmp_path / "pid",))], 1, broken)
    wait_until_gone(read_pids([tmp_path / "pid"]))
