"""Spending on language models, and the spending of several processes that share a budget."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from filelock import FileLock

from laurel.params.annotation import AnnotateParams

BUSY_SECONDS = 60.0
"""How long one process waits until others have written."""
_TABLE = """
CREATE TABLE IF NOT EXISTS spending (
    account TEXT PRIMARY KEY, pid INTEGER,
    calls REAL, tokens REAL, cost REAL, way_calls REAL, way_tokens REAL, way_cost REAL
)"""


@dataclass(frozen=True, slots=True)
class Spending:
    """An amount spent or reserved."""

    calls: float = 0
    tokens: float = 0.0
    cost: float = 0.0

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.calls + other.calls, self.tokens + other.tokens, self.cost + other.cost)

    def __sub__(self, other: Spending) -> Spending:
        return Spending(self.calls - other.calls, self.tokens - other.tokens, self.cost - other.cost)


class Ledger:
    """What each process of a stage has spent and reserved, in a file.

    Args:
        account: whose spending this process continues; None: a new one.
    """

    def __init__(self, file: Path, account: str | None = None) -> None:
        self._file, self._account = file, account or uuid4().hex

    def __reduce__(self) -> tuple[type[Ledger], tuple[Path]]:
        """Start from zero in another process, whose spending is counted separately."""
        return Ledger, (self._file,)

    def alone(self) -> FileLock:
        """Return the lock under which a process compares the sum with a limit, and reserves."""
        return FileLock(f"{self._file}.lock")

    def note(self, spent: Spending, on_its_way: Spending) -> None:
        """Replace what this account has spent and reserved."""
        with self._opened() as file:
            row = (self._account, os.getpid(), *astuple(spent), *astuple(on_its_way))
            file.execute("INSERT OR REPLACE INTO spending VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def others(self) -> tuple[Spending, Spending, Spending]:
        """Return what all other accounts have spent; what they have reserved in other processes; and in this one."""
        way = ("way_calls", "way_tokens", "way_cost")
        sums = [
            *(f"coalesce(sum({column}), 0)" for column in ("calls", "tokens", "cost")),
            *(f"coalesce(sum({column}) FILTER (WHERE pid != :pid), 0)" for column in way),
            *(f"coalesce(sum({column}) FILTER (WHERE pid = :pid), 0)" for column in way),
        ]
        query = f"SELECT {', '.join(sums)} FROM spending WHERE account != :account"  # noqa: S608
        with self._opened() as file:
            row = file.execute(query, {"pid": os.getpid(), "account": self._account}).fetchone()
            return Spending(*row[:3]), Spending(*row[3:6]), Spending(*row[6:])

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._file, timeout=BUSY_SECONDS)) as file, file:
            file.execute("PRAGMA synchronous = OFF")  # a killed stage begins a new file
            file.execute(_TABLE)
            yield file


@contextmanager
def shared_budget(annotate: AnnotateParams) -> Iterator[AnnotateParams]:
    """Yield the same params, whose budget all processes that get them share within the block."""
    if not annotate.budget.limited:
        yield annotate
        return
    with TemporaryDirectory(prefix="laurel-") as folder:
        yield annotate.model_copy(update={"budget": annotate.budget.kept_in(Path(folder) / "spending.db")})
