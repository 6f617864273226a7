"""Progress of long work: a bar on a terminal, a line now and then elsewhere.

Everything goes to standard error, so that standard output stays for results.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol

LINE_EVERY = 10.0
"""Seconds between two lines where there is no terminal."""


class Advance(Protocol):
    """A function that takes progress reports."""

    def __call__(self, n: int, *, free: bool = False) -> None:
        """Count `n` more units; `free`: an earlier run did them, so the rate leaves them out."""


@contextmanager
def progress(total: int, description: str, unit: str) -> Iterator[Advance]:
    """Yield a function that is called with the number of further units done.

    >>> with progress(100, "collect", "steps") as advance:
    ...     advance(100)
    """
    if sys.stderr.isatty():
        from tqdm import tqdm

        class Bar(tqdm):  # type: ignore[type-arg]  # generic in its stubs alone
            """A bar whose rate, and so the time left, is the pace's."""

            @property
            def format_dict(self) -> MutableMapping[str, Any]:
                shown: MutableMapping[str, Any] = super().format_dict
                known = pace.seconds_left(total - int(self.n)) is not None
                return {**shown, "rate": pace.rate() if known else 0.0}  # of 0 it shows a question mark

        pace = Pace()
        with Bar(total=total, desc=description, unit=f" {unit}", unit_scale=True, dynamic_ncols=True) as bar:

            def advance(n: int, *, free: bool = False) -> None:
                pace.add(n, free=free)
                bar.update(n)

            yield advance
        return
    lines = _Lines(total, description, unit)
    yield lines.advance
    lines.close()


class Pace:
    """How fast work goes on, by its latest half: the time before, in which processes start, says little of it."""

    ROUNDS, SHARE = 4, 10
    """The rate has settled after this multiple of the time that the first unit took, or with one part in so many done:
    of work that goes on side by side, such as calls to a server, the first unit comes long before its neighbours."""

    def __init__(self) -> None:
        self._done = 0
        self._marks = deque([(time.monotonic(), 0)])
        self._started, self._first = time.monotonic(), math.inf

    def seconds_left(self, left: int) -> float | None:
        """Return how long the units that are left will take; None while the rate has not settled."""
        first, so_far = self._first - self._started, time.monotonic() - self._started
        settled = so_far >= self.ROUNDS * first or self._done * self.SHARE >= self._done + left
        return left / rate if settled and (rate := self.rate()) else None

    def add(self, n: int, *, free: bool = False) -> None:
        """Count units that were done now; those that are `free` took no time."""
        if n and not free:
            self._done += n
            self._first = min(self._first, time.monotonic())
            self._marks.append((time.monotonic(), self._done))
            while 2 * self._marks[1][1] <= self._done:
                self._marks.popleft()

    def rate(self) -> float:
        """Return units a second; 0 before any is done."""
        began, before = self._marks[0]
        return (self._done - before) / max(time.monotonic() - began, 1e-9)


class _Lines:
    """Counts, rate and time left as a line every few seconds, and one at the end of work that took a second."""

    def __init__(self, total: int, description: str, unit: str) -> None:
        self._total, self._description, self._unit = total, description, unit
        self._done = self._free = 0
        self._pace = Pace()
        self._started = self._written = time.monotonic()

    def advance(self, n: int, *, free: bool = False) -> None:
        self._done += n
        self._free += n if free else 0
        self._pace.add(n, free=free)
        if time.monotonic() - self._written >= LINE_EVERY and self._done != self._total:  # `close` writes the last line
            self._written = time.monotonic()
            self._write()

    def close(self) -> None:
        if time.monotonic() - self._started >= 1.0:
            self._write()

    def _write(self) -> None:
        seconds = time.monotonic() - self._started
        if self._done >= self._total:
            rate = (self._done - self._free) / max(seconds, 1e-9)
            ending = f"{seconds:.0f} s"
        else:
            rate, left = self._pace.rate(), self._pace.seconds_left(self._total - self._done)
            ending = "just begun" if left is None else f"{left:.0f} s left"
        sys.stderr.write(
            f"{self._description}: {self._done:,}/{self._total:,} {self._unit} ({_shown(rate)}/s, {ending})\n"
        )
        sys.stderr.flush()


def _shown(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 9.5 else f"{rate:.2g}"
