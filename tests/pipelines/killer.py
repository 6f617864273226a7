"""Kills work at each of its steps on the file system, and lets it be done again: a program for tests.

Whatever a process does to files shows as an audit event (https://docs.python.org/3/library/audit_events.html);
just before the n-th one that concerns a folder the process kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}


def killed_at(n: int, work: Callable[[], None], folder: Path) -> bool:
    """Do work in a process that is killed before its n-th step in a folder; return False if it had fewer."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            sys.addaudithook(_Killer(n, folder))
            work()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0, "the work itself failed; see above"
    return False


def done(work: Callable[[], None]) -> None:
    """Do work in a process that is not killed."""
    assert not killed_at(0, work, Path("/"))


class _Killer:
    def __init__(self, n: int, folder: Path) -> None:
        self._n = n
        self._folder = str(folder)
        self._seen = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS or (event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
        if str(arguments[0]).startswith(self._folder):
            self._seen += 1
            if self._seen == self._n:
                os.kill(os.getpid(), signal.SIGKILL)
