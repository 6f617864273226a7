"""Progress of long work: a bar on a terminal, a line now and then elsewhere.

Everything goes to standard error, so that standard output stays for results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

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

        with tqdm(total=total, desc=description, unit=f" {unit}", unit_scale=True, dynamic_ncols=True) as bar:

            def advance(n: int, *, free: bool = False) -> None:
                bar.initial += n if free else 0  # which tqdm leaves out of the rate
                bar.update(n)

            yield advance
        return
    lines = _Lines(total, description, unit)
    yield lines.advance
    lines.close()


class _Lines:
    """Counts, rate and time left as a line every few seconds, and one at the end of work that took a second."""

    def __init__(self, total: int, description: str, unit: str) -> None:
        self._total, self._description, self._unit = total, description, unit
        self._done = self._free = 0
        self._started = self._written = time.monotonic()

    def advance(self, n: int, *, free: bool = False) -> None:
        self._done += n
        self._free += n if free else 0
        if time.monotonic() - self._written >= LINE_EVERY and self._done != self._total:  # `close` writes the last line
            self._written = time.monotonic()
            self._write()

    def close(self) -> None:
        if time.monotonic() - self._started >= 1.0:
            self._write()

    def _write(self) -> None:
        seconds = time.monotonic() - self._started
        rate = (self._done - self._free) / max(seconds, 1e-9)
        if self._done >= self._total:
            ending = f"{seconds:.0f} s"
        else:
            ending = f"{(self._total - self._done) / rate:.0f} s left" if rate else "just begun"
        sys.stderr.write(
            f"{self._description}: {self._done:,}/{self._total:,} {self._unit} ({_shown(rate)}/s, {ending})\n"
        )
        sys.stderr.flush()


def _shown(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 9.5 else f"{rate:.2g}"
