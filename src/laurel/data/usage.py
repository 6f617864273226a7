"""Usage of language models, such as calls, tokens and money; that of stopped runs counts towards the one that ends the
work.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import reduce
from numbers import Integral, Real
from pathlib import Path
from typing import Any
from uuid import uuid4

from laurel.data.json_file import read_json, write_json
from laurel.errors import DataError

USAGE, ASKER = "usage", "asker"
"""Keys of the usage, and of who asked: agents that share an asker have the same account."""
NOTED_SECONDS = 1.0
"""Minimum time between two notes of a `UsageNote`: a killed process loses what it asked since the last one."""
SECONDS = 0.1
"""Minimum time between two notes: a killed run loses what it used since the last one."""

Usage = dict[str, float | None]
"""Resource -> amount used; None where that is unknown."""


def added(first: Usage, second: Usage) -> Usage:
    """Add two usages; a resource that is unknown in either is unknown in the sum."""
    total = dict(first)
    for key, amount in second.items():
        before = total.get(key, 0)
        total[key] = None if before is None or amount is None else before + amount
    return total


def is_amount(amount: object) -> bool:
    """Whether something can be an amount: a number from 0, NaN, or None; NumPy's numbers, too."""
    return amount is None or (isinstance(amount, Real) and not amount < 0 and not math.isinf(amount))


def own_number(amount: Any) -> float | None:
    """Return an amount as Python's own number, which JSON can hold; NaN is unknown."""
    if amount is None or math.isnan(amount):
        return None
    return int(amount) if isinstance(amount, Integral) else float(amount)


CACHED, CALLS, FAILURES = "cached", "calls", "failures"
UNCOUNTED, UNPRICED = "uncounted", "unpriced"
"""Answers without a token count, and those whose cost is unknown for that reason. Tokens and cost are those of the
others, a lower bound. Left out where there are none.
"""
MISSING_IN = {"input_tokens": UNCOUNTED, "output_tokens": UNCOUNTED, "cost_usd": UNPRICED}
RESOURCES = (CALLS, CACHED, FAILURES, "input_tokens", "output_tokens", "seconds", "cost_usd", UNCOUNTED, UNPRICED)


def is_remark(key: str) -> bool:
    """Whether a key of a usage only qualifies others, in `bounded`."""
    return key.rpartition(".")[2] in (UNCOUNTED, UNPRICED)


def bounded(key: str, usage: Mapping[str, float | None], amount: str, *, note: bool = True) -> str:
    """Return an amount of a usage in words, qualified where some answers are missing in it.

    Args:
        key: of the amount; that of an ensemble's member has a prefix.
        amount: in words.
        note: whether to say how many answers are missing.

    >>> bounded("cost_usd", {"cost_usd": 0.5, "unpriced": 14}, "$0.50")
    'at least $0.50: 14 answers came without a token count'
    >>> bounded("cost_usd", {"cost_usd": 0.0, "unpriced": 14}, "$0.00", note=False)
    'unknown'
    >>> bounded("cost_usd", {"cost_usd": 0.5}, "$0.50")
    '$0.50'
    """
    asker, _, name = key.rpartition(".")
    remark = MISSING_IN.get(name, "")
    missing = usage.get(f"{asker}.{remark}" if asker else remark)
    if not missing or usage.get(key) is None:
        return amount
    least = f"at least {amount}" if usage[key] else "unknown"
    return (
        f"{least}: {missing:,} {'answer' if missing == 1 else 'answers'} came without a token count" if note else least
    )


def together(stopped: Usage, current: Usage) -> Usage:
    """Add up the usage of stopped runs and of the run that resumes their work.

    The latter finds the answers of stopped runs in the store; these do not count as cached.

    Keys of an ensemble's members have a prefix.

    >>> together({"calls": 20, "failures": 1}, {"calls": 5, "failures": 0, "cached": 30})
    {'calls': 25, 'failures': 1, 'cached': 11}
    """
    total = added({key: amount for key, amount in stopped.items() if not key.endswith(CACHED)}, current)
    for key, amount in current.items():
        asker = key.removesuffix(CACHED)
        if key.endswith(CACHED) and amount is not None:
            answered = (stopped.get(f"{asker}{CALLS}") or 0) - (stopped.get(f"{asker}{FAILURES}") or 0)
            total[key] = max(0, amount - answered)
    return total


def new_asker() -> str:
    """Return an id for a new asker."""
    return uuid4().hex


def by_asker(accounts: Iterable[Mapping[str, Any]]) -> dict[str, Usage]:
    """Return the usage of each asker that has an account, the latest where there are several."""
    return {
        account[ASKER]: {key: account[key] for key in RESOURCES if key in account}
        for account in accounts
        if ASKER in account
    }


def resumed_usage(stopped: Mapping[str, Usage], current: Mapping[str, Usage]) -> dict[str, Usage]:
    """Return the usage by asker of stopped processes and of the one that resumes their work; as in `together`, their
    answers that it finds in the store do not count as cached.

    >>> resumed_usage({"a": {"calls": 20, "failures": 1}}, {"b": {"calls": 5, "cached": 30}})
    {'a': {'calls': 20, 'failures': 1}, 'b': {'calls': 5, 'cached': 11}}
    """
    before = [usage for asker, usage in stopped.items() if asker not in current]
    answered = sum((usage.get(CALLS) or 0) - (usage.get(FAILURES) or 0) for usage in before)
    by_asker = dict(stopped)
    for asker, usage in current.items():
        cached = usage.get(CACHED) or 0
        repeated = min(cached, answered)
        answered -= repeated
        by_asker[asker] = {**usage, CACHED: cached - repeated} if CACHED in usage else usage
    return by_asker


def with_stopped(account: Mapping[str, Any], usage: Mapping[str, Usage]) -> dict[str, Any]:
    """Return an account in which the answers that stopped processes were paid for count as calls.

    Args:
        usage: what `resumed_usage` returns of the account and of stopped processes.

    >>> with_stopped({"asker": "b", "calls": 5, "cached": 30}, {"b": {"calls": 5, "cached": 11}})
    {'asker': 'b', 'calls': 24, 'cached': 11}
    """
    used = usage.get(account.get(ASKER, ""), {})
    repeated = (account.get(CACHED) or 0) - (used.get(CACHED, account.get(CACHED)) or 0)
    changes = {CALLS: repeated, CACHED: -repeated}
    known = {key: change for key, change in changes.items() if account.get(key) is not None}
    return {**account, **{key: account[key] + change for key, change in known.items()}}


def latest(askers: Iterable[Mapping[str, Usage]]) -> dict[str, Usage]:
    """Return one usage per asker: of several, the one with the most answers, which is the latest."""
    best: dict[str, Usage] = {}
    for asker, usage in (item for usages in askers for item in usages.items()):
        if asker not in best or _answers(usage) >= _answers(best[asker]):
            best[asker] = usage
    return best


def of_all(askers: Iterable[Mapping[str, Usage]]) -> Usage:
    """Add up the usage of askers, each of which counts once."""
    return reduce(added, latest(askers).values(), Usage())


def _answers(usage: Usage) -> float:
    return (usage.get(CALLS) or 0) + (usage.get(CACHED) or 0)


class UsageNote:
    """Notes what a process asks of language models while it works: it may end before its work is stored.

    Args:
        file: of the note.
        before: usage by asker that is known besides; None: that in the file.
    """

    def __init__(self, file: Path, before: Callable[[], dict[str, Usage]] | None = None) -> None:
        self._file, self._noted = file, -math.inf
        self._before = before or self.read

    def read(self) -> dict[str, Usage]:
        """Return the noted usage by asker; empty without a note, or if the process was killed while it wrote."""
        with suppress(DataError):
            return dict(read_json(self._file))
        return {}

    def write(self, accounts: Iterable[Mapping[str, Any]]) -> None:
        """Note the usage of accounts, if anything was asked."""
        if usage := by_asker(accounts):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._file, resumed_usage(self._before(), usage))

    def write_if_due(self, accounts: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        """Note it if the last note is NOTED_SECONDS old."""
        if time.monotonic() - self._noted >= NOTED_SECONDS:
            self._noted = time.monotonic()
            self.write(accounts())


class Spent:
    """Seconds and usage of stopped runs of the same work, and of the current one until it ends.

    Args:
        file: where they are noted.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            noted: dict[str, Any] = read_json(file) if file.exists() else {}
            self.seconds, self.usage = float(noted.get("seconds", 0.0)), dict(noted.get("usage", {}))
        except (DataError, AttributeError, TypeError, ValueError):
            self.seconds, self.usage = 0.0, {}
        self._noted = -math.inf
        self._alone = threading.Lock()
        self._later: dict[str, Any] | None = None
        """Totals that a thread is about to note."""

    def note(self, seconds: float, usage: Usage) -> None:
        """Record totals; where that fails, a stopped run counts for less."""
        with self._alone:
            self._later = None
            self._write({"seconds": seconds, "usage": usage})

    def note_soon(self, seconds: float, usage: Usage) -> None:
        """Record totals once the last note is SECONDS old, by a thread: after a burst of answers a run may wait."""
        with self._alone:
            waiting, self._later = self._later is not None, {"seconds": seconds, "usage": usage}
            left = self._noted + SECONDS - time.monotonic()
            if left <= 0:
                self._write_later()
            elif not waiting:
                timer = threading.Timer(left, self._write_in_time)
                timer.daemon = True
                timer.start()

    def _write_in_time(self) -> None:
        with self._alone:
            self._write_later()

    def _write_later(self) -> None:
        if self._later is not None:
            self._write(self._later)
            self._later = None

    def _write(self, totals: Mapping[str, Any]) -> None:
        with suppress(OSError):
            write_json(self.file, totals)
        self._noted = time.monotonic()

    def forget(self) -> None:
        """Remove the file: the work is done."""
        with self._alone:
            self._later = None
            self.file.unlink(missing_ok=True)
