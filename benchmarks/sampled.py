"""A sampling profiler for Python's CPU time: stacks are sampled every few milliseconds.

    with sampled() as found:
        work()
    parts_of(found, {"environments": ("vector.py", {"step"})})

A sample counts for the CPU time since the previous one, so that a long call into C counts fully, and so does the time
of C++ threads. Unlike cProfile, it adds no overhead to a call. It is independent of the measured code.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from weakref import WeakKeyDictionary

EVERY = 0.002
"""Sampling interval in seconds. Without threads it is CPU time, and the kernel may round it to 4 or 10 ms."""
SWITCH = 1e-6
"""Python's switch interval while threads are sampled: with a longer one they would be sampled only while waiting."""
PR_SET_TIMERSLACK = 29
WRITE_EVERY = 25
"""Samples after which a process of `everywhere` writes its results, since workers exit without notice."""
INTO, COMMANDS, STAGE = "LAUREL_SAMPLED_INTO", "LAUREL_SAMPLED_COMMANDS", "LAUREL_SAMPLED_STAGE"
"""Environment variables: the folder that processes write into, the commands that are sampled, and the one that a
process belongs to."""
STAGES = ("train-reward", "train-agents", "evaluate")
"""Stages whose processes `everywhere` samples by default."""
KEPT = ("/laurel/", "importlib")
"""Paths of files: frames in other files are dropped from the output, except for the innermost."""
ELSE = "all else"
Stack = tuple[tuple[str, str], ...]
"""File and function of each frame, the innermost first."""
Seconds = defaultdict[Stack, float]
"""Processor seconds by stack."""
Parts = Mapping[str, tuple[str, set[str]]]
"""Part -> what a file's path contains, and the functions of such files that make it; none: all of them."""


@contextmanager
def sampled(*, threads: bool = False) -> Iterator[Seconds]:
    """Yield a counter of processor seconds by stack, which is filled within the block; for the main thread.

    Args:
        threads: whether other Python threads are at work, too. Sampling them takes a thread, which slightly over-counts
            code that releases the GIL, such as waits.
    """
    looks = _ThreadLooks() if threads else _SignalLooks()
    looks.start()
    try:
        yield looks.found
    finally:
        looks.stop()


def parts_of(found: Mapping[Stack, float], parts: Parts) -> dict[str, float]:
    """Return seconds by part: of the innermost frame that belongs to one, and `ELSE` where none does."""
    spent = dict.fromkeys([*parts, ELSE], 0.0)
    for stack, seconds in found.items():
        spent[_part(stack, parts)] += seconds
    return spent


def _part(stack: Stack, parts: Parts) -> str:
    for path, function in stack:
        for part, (file, functions) in parts.items():
            if file in path and (function in functions or not functions):
                return part
    return ELSE


# -- processes that a command starts ----------------------------------------------------------------------------
def everywhere(folder: Path, commands: Sequence[str] = STAGES) -> dict[str, str]:
    """Return an environment in which the processes of commands of `laurel` write their stacks into a folder."""
    (folder / "sitecustomize.py").write_text("import sampled\n\nsampled.begin_here()\n")
    shutil.copy(__file__, folder)  # a folder of its own: neighbouring files might shadow other modules
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, INTO: str(folder), COMMANDS: " ".join(commands), "PYTHONPATH": os.pathsep.join(paths)}


def written(folder: Path) -> dict[str, Seconds]:
    """Return what was written in that environment: by stage, processor seconds by stack."""
    found: dict[str, Seconds] = {}
    for file in sorted(folder.glob("*.json")):
        sample = json.loads(file.read_text())
        of_stage = found.setdefault(sample["stage"], Seconds(float))
        for stack, seconds in sample["stacks"]:
            of_stage[tuple((path, function) for path, function in stack)] += seconds
    return found


def spans(folder: Path) -> dict[str, float]:
    """Return the seconds from the start of the first process of a stage to the last sample of any of them, by stage."""
    found: dict[str, list[tuple[float, float]]] = {}
    for file in sorted(folder.glob("*.json")):
        sample = json.loads(file.read_text())
        found.setdefault(sample["stage"], []).append((sample["began"], sample["ended"]))
    return {stage: max(end for _, end in times) - min(begin for begin, _ in times) for stage, times in found.items()}


def begin_here() -> None:
    """Write the stacks of this process and of those that it forks, if it is a command's, or was started by one."""
    words = sys.orig_argv[3:] if sys.orig_argv[1:3] == ["-m", "laurel"] else sys.orig_argv[2:]
    if words and words[0] in os.environ[COMMANDS].split():
        os.environ[STAGE] = words[0]
    if STAGE in os.environ:
        _write_own()
        os.register_at_fork(after_in_child=_write_own)


def _write_own() -> None:
    looks = _SignalLooks(Path(os.environ[INTO], f"{os.getpid()}.json"))
    atexit.register(looks.stop)
    looks.start()


# -- looks ------------------------------------------------------------------------------------------------------
class _SignalLooks:
    """Samples the main thread by a signal; writes to a file, if there is one."""

    def __init__(self, place: Path | None = None) -> None:
        self.found = Seconds(float)
        self._place, self._made, self._last = place, 0, time.process_time()
        self._began = time.time()
        self._writing = False

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        if self._place:
            self._write(self._place)

    def _look(self, _signal: int, frame: FrameType | None) -> None:
        if self._writing:  # a sample that arrives while the previous one writes
            return
        moment = time.process_time()
        self.found[_stack(frame)] += moment - self._last
        self._made += 1
        if self._place and self._made % WRITE_EVERY == 0:
            self._writing = True
            self._write(self._place)
            self._writing = False
            moment = time.process_time()  # writing is not timed
        self._last = moment

    def _write(self, place: Path) -> None:
        stacks = Seconds(float)
        for stack, seconds in self.found.items():
            stacks[stack[:1] + tuple(call for call in stack[1:] if any(kept in call[0] for kept in KEPT))] += seconds
        self.found = stacks
        partial = place.with_suffix(".partial")
        span = {"began": self._began, "ended": time.time()}
        partial.write_text(json.dumps({"stage": os.environ[STAGE], "stacks": list(stacks.items()), **span}))
        partial.replace(place)


class _ThreadLooks(threading.Thread):
    """Samples all threads but its own."""

    def __init__(self) -> None:
        super().__init__(name="looks", daemon=True)
        self.found = Seconds(float)
        self._over, self._whole = threading.Event(), time.process_time()
        self._of_thread = WeakKeyDictionary({thread: _spent(thread) for thread in threading.enumerate()})
        self._switch = sys.getswitchinterval()

    def run(self) -> None:
        sys.setswitchinterval(SWITCH)
        if sys.platform == "linux":  # whose timers are 50 microseconds late otherwise
            ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
        while not self._over.wait(EVERY):
            self._look()
        self._look()

    def stop(self) -> None:
        self._over.set()
        self.join()
        sys.setswitchinterval(self._switch)

    def _look(self) -> None:
        previous, self._whole = self._whole, time.process_time()
        left, frames, main = self._whole - previous, sys._current_frames(), threading.main_thread()
        for thread in threading.enumerate():
            if thread.ident not in frames or thread is main:
                continue
            try:
                before, current = self._of_thread.get(thread, 0.0), _spent(thread)
            except ProcessLookupError:  # it has ended since the frames were taken
                continue
            self._of_thread[thread] = current
            left -= current - before
            if current > before and thread is not self:
                self.found[_stack(frames[thread.ident])] += current - before
        if left > 0 and main.ident in frames:
            self.found[_stack(frames[main.ident])] += left


def _spent(thread: threading.Thread) -> float:
    """Return the processor seconds of a thread.

    Raises:
        ProcessLookupError: it has ended.
    """
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))


def _stack(frame: FrameType | None) -> Stack:
    stack = []
    while frame is not None:
        stack.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(stack)
