"""Jobs that worker processes import from here, and what tests ask of these processes."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from laurel import plugins

Advance = Callable[[int], None]
GUARD = 120.0
"""Seconds, enough on a busy machine; jobs that are not stopped run longer."""


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


def fail_as_a_plug_in(error: BaseException, advance: Advance) -> None:
    """Raise as another package's code does."""
    plugins._loaded[__name__] = 'colour "teal" (pool_jobs)'
    raise error


def exit_at_once(code: int, advance: Advance) -> None:
    os._exit(code)


def die(number: int, advance: Advance) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def linger_in_folder(path: Path, advance: Advance) -> None:
    """Work as `linger`, in a temporary folder, whose removal takes a while."""
    with TemporaryDirectory(prefix="scratch-", dir=path.parent):
        try:
            linger(path, advance)
        finally:
            time.sleep(0.2)


def linger_with_finalizer(path: Path, advance: Advance) -> None:
    """Work as `linger`, with a temporary folder that is removed when an object goes."""
    held = type("Held", (), {})()
    weakref.finalize(held, TemporaryDirectory(prefix="scratch-", dir=path.parent).cleanup)
    held.itself = held
    linger(path, advance)


def linger(path: Path, advance: Advance) -> None:
    """Work for ten minutes, in steps."""
    say_pid(path)
    for _ in range(60_000):
        time.sleep(0.01)
        advance(1)


def sleep(path: Path, advance: Advance) -> None:
    """Report nothing for ten minutes."""
    say_pid(path)
    time.sleep(600)


def tell_and_wait(heard: Path, advance: Advance) -> None:
    """Report three steps, and end once they were heard."""
    for _ in range(3):
        advance(1)
    deadline = time.monotonic() + GUARD
    while not heard.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    if not heard.exists():
        raise TimeoutError


def say_pid(path: Path) -> None:
    """Write which process this is: whole or not at all, since it may be stopped at any time."""
    partial = path.with_suffix(".partial")
    partial.write_text(str(os.getpid()))
    partial.rename(path)


def read_pids(files: list[Path]) -> list[int]:
    """Wait until jobs have reported their process ids."""
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


class Told(list[int]):
    """Reported progress."""

    free = 0

    def __call__(self, n: int, *, free: bool = False, left: float | None = None) -> None:
        self.append(n)
        self.free += n if free else 0


def ignore(_: int, *, free: bool = False, left: float | None = None) -> None:
    """Ignore the progress."""
