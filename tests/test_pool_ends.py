"""Worker processes whose parent is interrupted or killed: none is left running."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pool_jobs import (
    GUARD,
    is_alive,
    read_pids,
    wait_until_gone,
)

SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from laurel import pool
from laurel.pool import Job, run_jobs, usable_cpus
import pool_jobs
from pool_jobs import ignore

if __name__ == "__main__":
    work = getattr(pool_jobs, sys.argv[2])
    jobs = [Job(f"job {i}", work, (Path(f"pid-{i}"),)) for i in range(3)]
    try:
        run_jobs(jobs, 2, ignore)
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


@pytest.mark.parametrize("work", ["linger", "linger_in_folder", "linger_with_finalizer", "sleep"])
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
    assert not list(tmp_path.glob("scratch-*")), "temporary folders of jobs are removed"


@pytest.mark.parametrize("after", [0.05, 0.2, 0.5])
def test_ctrl_c_at_any_time_is_quiet(after: float, tmp_path: Path) -> None:
    """During the parent's imports Python itself prints where it was; afterwards nothing is printed."""
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
from pool_jobs import ignore, sleep

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
        run_jobs([Job("job", sleep, (Path("pid"),))], 1, ignore)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize("where", ["server", "job"])
def test_ctrl_c_while_processes_start_is_not_lost_and_leaves_no_process(where: str, tmp_path: Path) -> None:
    (tmp_path / "pressed.py").write_text(PRESSED)
    command = [sys.executable, "pressed.py", str(Path(__file__).parent), where]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=GUARD)  # all hold its ends
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("work", ["linger", "sleep"])
def test_jobs_end_when_their_parent_is_killed(work: str, tmp_path: Path) -> None:
    """Also one that waits: it must not go on to write a checkpoint, when the work may have been taken up again."""
    parent = Parent(tmp_path, work)
    read_pids(parent.files)
    pids = parent.all_pids()
    parent.process.kill()
    wait_until_gone([pid for pid in pids if pid != parent.process.pid])  # not waited for: a zombie is dead, too
    _, err = parent.process.communicate()
    assert err == ""


@pytest.mark.parametrize(("early", "late"), [("", ["wave"]), ("start_server(['wave'])", [])])
def test_what_is_preloaded_is_there(early: str, late: list[str], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys\n"
        "from laurel.pool import Job, run_jobs, start_server\n"
        "def work(advance):\n"
        "    advance(int('wave' in sys.modules))\n"
        "if __name__ == '__main__':\n"
        "    told = []\n"
        f"    {early}\n"
        f"    run_jobs([Job('job', work, ())], 1, lambda n, **_: told.append(n), {late})\n"
        "    print(sum(told), 'wave' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
