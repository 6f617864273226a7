"""Jobs in processes of their own: what they do, how they fail, and that nothing is left of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from laurel import pool
from laurel.errors import DataError, LaurelError, WorkerError
from laurel.pool import Job, run_jobs, usable_cpus

Advance = Callable[[int], None]
GUARD = 120.0
"""Seconds, however busy the machine is; jobs that nobody stops go on for longer."""


# -- jobs, which other processes import from here ---------------------------------------------------------------
def count(path: Path, steps: list[int], advance: Advance) -> None:
    """Report steps one by one, and leave behind which process this is."""
    for step in steps:
        advance(step)
    path.write_text(str(os.getpid()))


def meet(folder: Path, number: int, together: int, advance: Advance) -> None:
    """Stay until as many have begun as are to work at once."""
    (folder / f"begin-{number}").write_text(str(time.monotonic()))
    deadline = time.monotonic() + GUARD
    while len(list(folder.glob("begin-*"))) < together and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    (folder / f"end-{number}").write_text(str(time.monotonic()))


def fail(error: Exception, advance: Advance) -> None:
    advance(1)
    raise error


def exit_at_once(code: int, advance: Advance) -> None:
    os._exit(code)


def die(number: int, advance: Advance) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def linger(path: Path, advance: Advance) -> None:
    """Work for ten minutes, in steps."""
    say_pid(path)
    for _ in range(60_000):
        time.sleep(0.01)
        advance(1)


def sleep(path: Path, advance: Advance) -> None:
    """Say nothing for ten minutes."""
    say_pid(path)
    time.sleep(600)


def tell_and_wait(heard: Path, advance: Advance) -> None:
    """Report three steps, and end once they were heard."""
    for _ in range(3):
        advance(1)
    deadline = time.monotonic() + GUARD
    while not heard.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    sys.exit(not heard.exists())


def say_pid(path: Path) -> None:
    """Write which process this is: whole or not at all, since it may be stopped at any time."""
    partial = path.with_suffix(".partial")
    partial.write_text(str(os.getpid()))
    partial.rename(path)


def read_pids(files: list[Path]) -> list[int]:
    """Wait until jobs have said which process they are."""
    deadline = time.monotonic() + GUARD
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline, "the jobs did not begin"
        time.sleep(0.02)
    return [int(file.read_text()) for file in files]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return "State:\tZ" not in state


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + GUARD
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.02)


def ignore(_: int) -> None:
    """Nobody looks at the progress."""


# -- work -------------------------------------------------------------------------------------------------------
def test_all_jobs_are_done_and_their_progress_adds_up(tmp_path: Path) -> None:
    steps = [[1, 2, 3], [], [10], [100] * 5]
    jobs = [Job(f"job {i}", count, (tmp_path / str(i), of_job)) for i, of_job in enumerate(steps)]
    reported: list[int] = []
    run_jobs(jobs, 2, reported.append)
    assert sum(reported) == sum(map(sum, steps))
    assert all((tmp_path / str(i)).exists() for i in range(4))
    pids = {(tmp_path / str(i)).read_text() for i in range(4)}
    assert len(pids) == 4, "a process each"
    assert str(os.getpid()) not in pids


def test_no_jobs() -> None:
    run_jobs([], 2, ignore)


def test_progress_is_told_while_it_is_made(tmp_path: Path) -> None:
    told: list[int] = []

    def advance(n: int) -> None:
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
    reported: list[int] = []
    run_jobs([Job("chatty", count, (tmp_path / "done", [1] * 20_000))], 1, reported.append)
    assert sum(reported) == 20_000


# -- failure ----------------------------------------------------------------------------------------------------
def test_an_error_that_can_be_mended_says_its_sentence_and_stops_the_others(tmp_path: Path) -> None:
    jobs = [Job("long", linger, (tmp_path / "pid",)), Job("bad", fail, (DataError("x.parquet: cannot be read."),))]
    started = time.monotonic()
    with pytest.raises(LaurelError, match=r"^x\.parquet: cannot be read\.$"):
        run_jobs(jobs, 2, ignore)
    assert time.monotonic() - started < GUARD
    if (tmp_path / "pid").exists():
        wait_until_gone(read_pids([tmp_path / "pid"]))


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
from test_pool import fail

if __name__ == "__main__":
    error = {"defect": ZeroDivisionError("by naught"), "data": DataError("x.parquet: cannot be read.")}[sys.argv[2]]
    try:
        run_jobs([Job("job 7", fail, (error,))], 1, lambda n: None)
    except LaurelError as error:
        print(error)
"""


@pytest.mark.parametrize("kind", ["defect", "data"])
def test_a_defect_keeps_its_traceback_and_what_can_be_mended_has_none(kind: str, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    command = [sys.executable, "failing.py", str(Path(__file__).parent), kind]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    if kind == "data":
        assert (done.stdout, done.stderr) == ("x.parquet: cannot be read.\n", "")
    else:
        assert done.stdout.startswith("job 7: its process died (exit code 1, see its traceback above)")
        assert "Traceback" in done.stderr
        assert "ZeroDivisionError: by naught" in done.stderr


def test_a_job_that_exits_of_itself_without_an_error_is_done() -> None:
    run_jobs([Job("quiet", exit_at_once, (0,))], 1, ignore)


def test_progress_before_a_failure_is_told() -> None:
    """A job may tell how far it came and fail right after."""
    told: list[int] = []
    jobs = [Job("good", count, (Path(os.devnull), [5])), Job("bad", exit_at_once, (3,))]
    with pytest.raises(WorkerError):
        run_jobs(jobs, 1, told.append)
    assert sum(told) == 5


def test_an_error_of_the_caller_stops_the_jobs(tmp_path: Path) -> None:
    """As when the progress bar cannot be drawn."""

    def broken(n: int) -> None:
        if n:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_jobs([Job("long", linger, (tmp_path / "pid",))], 1, broken)
    wait_until_gone(read_pids([tmp_path / "pid"]))


# -- the end of the parent --------------------------------------------------------------------------------------
SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from laurel import pool
from laurel.pool import Job, run_jobs, usable_cpus
from test_pool import linger, sleep

if __name__ == "__main__":
    work = {"linger": linger, "sleep": sleep}[sys.argv[2]]
    jobs = [Job(f"job {i}", work, (Path(f"pid-{i}"),)) for i in range(3)]
    try:
        run_jobs(jobs, 2, lambda n: None)
    except KeyboardInterrupt:
        sys.exit(130)
"""


class Parent:
    """A process of its own, with jobs."""

    def __init__(self, path: Path, work: str) -> None:
        (path / "parent.py").write_text(SCRIPT)
        here = str(Path(__file__).parent)
        self.process = subprocess.Popen(
            [sys.executable, "parent.py", here, work],
            cwd=path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.files = [path / "pid-0", path / "pid-1"]

    def all_pids(self) -> list[int]:
        """The jobs, the server that they are forked from, and whatever else works in this session."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if os.getsid(int(entry.name)) == self.process.pid and is_alive(int(entry.name)):
                        found.append(int(entry.name))
        return found


@pytest.mark.parametrize("work", ["linger", "sleep"])
@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_ends_everything_quietly(work: str, whole_group: bool, tmp_path: Path) -> None:
    """A terminal sends it to the whole group of processes; `kill -INT` to one."""
    parent = Parent(tmp_path, work)
    read_pids(parent.files)
    pids = parent.all_pids()
    assert len(pids) >= 4, "parent, server and two jobs"
    if whole_group:
        os.killpg(parent.process.pid, signal.SIGINT)
    else:
        parent.process.send_signal(signal.SIGINT)
    assert parent.process.wait(timeout=GUARD) == 130
    wait_until_gone(pids)
    assert parent.process.communicate() == ("", "")
    assert not (tmp_path / "pid-2").exists(), "no other job is begun"


@pytest.mark.parametrize("after", [0.05, 0.2, 0.5])
def test_ctrl_c_at_any_time_is_quiet(after: float, tmp_path: Path) -> None:
    """While the parent imports, Python itself says where it was; from then on nobody does."""
    parent = Parent(tmp_path, "linger")
    deadline = time.monotonic() + GUARD
    while len(parent.all_pids()) < 3 and time.monotonic() < deadline:  # parent, resource tracker, server
        time.sleep(0.005)
    time.sleep(after)
    os.killpg(parent.process.pid, signal.SIGINT)
    out, err = parent.process.communicate(timeout=GUARD)
    assert (parent.process.returncode, out, err) == (130, "", "")
    wait_until_gone(parent.all_pids())


PRESSED = """
import os, signal, sys, time
from multiprocessing import forkserver
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from laurel.pool import Job, run_jobs
from test_pool import sleep

def pressed(work):
    def with_ctrl_c(*arguments):
        done = work(*arguments)
        if not Path("pressed").exists():
            Path("pressed").touch()
            while sys.argv[2] == "job" and not Path("pid").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        return done
    return with_ctrl_c

if __name__ == "__main__":
    if sys.argv[2] == "server":
        forkserver.ensure_running = pressed(forkserver.ensure_running)
    else:  # when a job has begun, and who started it does not know
        forkserver.read_signed = pressed(forkserver.read_signed)
    try:
        run_jobs([Job("job", sleep, (Path("pid"),))], 1, lambda n: None)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize("where", ["server", "job"])
def test_ctrl_c_is_not_lost_and_leaves_nothing_while_processes_start(where: str, tmp_path: Path) -> None:
    (tmp_path / "pressed.py").write_text(PRESSED)
    command = [sys.executable, "pressed.py", str(Path(__file__).parent), where]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=GUARD)  # all hold its ends
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_jobs_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    parent = Parent(tmp_path, "linger")
    read_pids(parent.files)
    pids = parent.all_pids()
    parent.process.kill()
    wait_until_gone([pid for pid in pids if pid != parent.process.pid])  # not waited for: a zombie is dead, too
    _, err = parent.process.communicate()
    assert err == ""


def test_what_is_preloaded_is_there(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys\n"
        "from laurel.pool import Job, run_jobs\n"
        "def work(advance):\n"
        "    advance(int('wave' in sys.modules))\n"
        "if __name__ == '__main__':\n"
        "    told = []\n"
        "    run_jobs([Job('job', work, ())], 1, told.append, ['wave'])\n"
        "    print(sum(told), 'wave' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
