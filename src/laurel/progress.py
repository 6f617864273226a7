"""Progress of long work: a bar on a terminal, otherwise a line every few seconds.

Everything is written to standard error; standard output is for results.
"""

from __future__ import annotations

import heapq
import math
import sys
import time
from collections import deque
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol

LINE_EVERY = 10.0
"""Seconds between two lines without a terminal."""
A_WHILE = 60.0
"""Seconds without a result after which a line says so."""


class Advance(Protocol):
    """A function that takes progress reports."""

    def __call__(self, n: int, *, free: bool = False, left: float | None = None) -> None:
        """Count `n` more units.

        Args:
            n: may be 0.
            free: an earlier run did them, so the rate leaves them out.
            left: the seconds that the caller expects the rest to take; None: estimate them from the rate.
        """


@contextmanager
def progress(total: int, description: str, unit: str) -> Iterator[Advance]:
    """Yield a function that is called with the number of further units done.

    >>> with progress(100, "collect", "steps") as advance:
    ...     advance(100)
    """
    if sys.stderr.isatty():
        from tqdm import tqdm

        class Bar(tqdm):  # type: ignore[type-arg]  # generic in its stubs alone
            """A bar that shows the rate and time left of a `Pace`."""

            @property
            def format_dict(self) -> MutableMapping[str, Any]:
                left = pace.seconds_left(total - int(self.n))
                time_left = "?" if left is None else tqdm.format_interval(left)
                return {**super().format_dict, "rate": pace.rate() or None, "time_left": time_left}

        pace = Pace()
        shown = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{time_left}, {rate_fmt}]"
        look: dict[str, Any] = {"bar_format": shown, "unit_scale": True, "dynamic_ncols": True}
        with Bar(total=total, desc=description, unit=f" {unit}", **look) as bar:

            def advance(n: int, *, free: bool = False, left: float | None = None) -> None:
                pace.add(n, free=free, left=left)
                bar.update(n)

            yield advance
        return
    lines = _Lines(total, description, unit)
    yield lines.advance
    lines.close()


class Pace:
    """Rate over the most recent half of the work, which leaves out start-up."""

    ROUNDS, SHARE = 4, 10
    """The rate has settled after ROUNDS times the duration of the first unit, or once one unit in SHARE is done: if
    units run concurrently, such as calls to a server, the first one arrives long before the rate is stable."""

    def __init__(self) -> None:
        self._done = 0
        self._marks = deque([(time.monotonic(), 0)])
        self._started, self._first = time.monotonic(), math.inf
        self._left: float | None = None

    @property
    def so_far(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self._started

    def seconds_left(self, left: int) -> float | None:
        """Return how long the remaining units will take; None while the rate has not settled."""
        if self._left is not None:
            return self._left
        first = self._first - self._started
        settled = self.so_far >= self.ROUNDS * first or self._done * self.SHARE >= self._done + left
        return left / rate if settled and (rate := self.rate()) else None

    def add(self, n: int, *, free: bool = False, left: float | None = None) -> None:
        """Count units that were done now, as `Advance` does."""
        self._left = left
        if n and not free:
            self._done += n
            self._first = min(self._first, time.monotonic())
            self._marks.append((time.monotonic(), self._done))
            while 2 * self._marks[1][1] <= self._done:
                self._marks.popleft()

    def rate(self) -> float:
        """Return units per second; 0 before any is done."""
        began, done = self._marks[0]
        return (self._done - done) / max(time.monotonic() - began, 1e-9)


class Schedule:
    """Time left for jobs of which a few run at a time, estimated from each job's own pace and that of its kind.

    The overall rate is a poor estimate: kinds differ in speed, and the last jobs leave workers idle.
    """

    def __init__(self, jobs: Sequence[tuple[str, int]], at_once: int) -> None:
        """Args: jobs: kind and units of each, in the order in which they begin; at_once: how many run at a time."""
        self._jobs = [_JobProgress(kind, max(1, units)) for kind, units in jobs]
        self._at_once = at_once

    def begin(self, job: int) -> None:
        """Record that a job begins now, by its index in the order."""
        self._jobs[job].pace = Pace()

    def add(self, job: int, done: int, *, ended: bool = False) -> None:
        """Add units of a job that were just done."""
        self._jobs[job].add(done, ended=ended)

    def seconds_left(self) -> float | None:
        """Return the seconds until all jobs are done; None before the speed of any job is known."""
        took: dict[str, list[float]] = {}
        for job in self._jobs:
            if job.whole is not None:
                took.setdefault(job.kind, []).append(job.whole / job.units)
        if not took:
            return None
        a_unit = {kind: fmean(seconds) for kind, seconds in took.items()}
        average = fmean(a_unit.values())
        ends = [0.0] * self._at_once  # when each worker will be free
        for job in self._jobs:
            if not job.ended:  # running jobs come first, and are no more than the workers
                left = job.left(job.units * a_unit.get(job.kind, average))
                heapq.heapreplace(ends, ends[0] + left)
        return max(ends)


@dataclass
class _JobProgress:
    """Progress of one job."""

    kind: str
    units: int
    done: int = 0
    reports: int = 0
    pace: Pace | None = None
    """None before it begins."""
    whole: float | None = None
    """Its estimated duration in seconds as of its last report.

    None before its second report, since the time to the first one includes start-up."""
    ended: bool = False

    def add(self, done: int, *, ended: bool) -> None:
        assert self.pace is not None, "it has begun"
        self.pace.add(done)
        self.done, self.reports, self.ended = self.done + done, self.reports + bool(done), ended
        if ended:
            self.whole = self.pace.so_far
        elif done and self.reports > 1:
            self.whole = self.pace.so_far + max(0, self.units - self.done) / self.pace.rate()

    def left(self, expected: float) -> float:
        """Return the seconds to its end, where jobs of its kind take `expected` in all.

        Its own pace gets more weight the further it has progressed. One that has taken longer already is expected to
        take as much time for each unit as so far, or as long again before its second report.
        """
        if self.pace is None:
            return expected
        share, so_far = min(1.0, self.done / self.units), self.pace.so_far
        total = expected if self.whole is None else share * self.whole + (1 - share) * expected
        if total > so_far:
            return total - so_far
        return so_far if self.whole is None else so_far * (1 - share) / share


class _Lines:
    """Counts, rate and time left as a line every few seconds, and a last line if the work took at least a second."""

    def __init__(self, total: int, description: str, unit: str) -> None:
        self._total, self._description, self._unit = total, description, unit
        self._done = self._free = 0
        self._pace = Pace()
        self._started = self._written = time.monotonic()

    def advance(self, n: int, *, free: bool = False, left: float | None = None) -> None:
        self._done += n
        self._free += n if free else 0
        self._pace.add(n, free=free, left=left)
        if time.monotonic() - self._written >= LINE_EVERY and self._done < self._total:  # `close` writes the last line
            self._written = time.monotonic()
            self._write()

    def close(self) -> None:
        if time.monotonic() - self._started >= 1.0:
            self._write(ended=True)

    def _write(self, *, ended: bool = False) -> None:
        seconds = time.monotonic() - self._started
        if ended:  # also if there were fewer units than announced
            rate = (self._done - self._free) / max(seconds, 1e-9)
            ending = f"{seconds:.0f} s"
        else:
            rate, left = self._pace.rate(), self._pace.seconds_left(self._total - self._done)
            if left is not None:
                ending = f"{left:.0f} s left"
            else:
                ending = "just begun" if self._done or seconds < A_WHILE else f"none in {seconds:.0f} s"
        sys.stderr.write(
            f"{self._description}: {self._done:,}/{self._total:,} {self._unit} ({_shown(rate)}/s, {ending})\n"
        )
        sys.stderr.flush()


def _shown(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 9.5 else f"{rate:.2g}"
