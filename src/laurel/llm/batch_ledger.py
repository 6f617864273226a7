"""The ledger of sent batches and their questions, in the file of the answers.

A batch is recorded with its questions before anything is uploaded, and the server's ids once they are known, so that a
resumed run finds its batches again.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from laurel.data.disk import FULL, is_full
from laurel.errors import DataError
from laurel.llm.responses_file import BUSY_SECONDS, read_only_address, transaction

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS batches (
        token TEXT PRIMARY KEY,
        endpoint TEXT NOT NULL,
        model TEXT NOT NULL,
        made_at REAL NOT NULL,
        file TEXT,
        batch TEXT
    ) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS batch_lines (key TEXT PRIMARY KEY, token TEXT NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS batch_lines_token ON batch_lines (token)",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch."""

    token: str
    """Our own id of the batch, which the server keeps with it."""
    made_at: float
    """Seconds since 1970."""
    file: str | None
    """The server's id of the uploaded requests; None until it is known."""
    batch: str | None
    """The server's id of the batch; None until it is known."""


class BatchLedger:
    """The batches in one file of answers; its tables are created if necessary.

    Args:
        read_only: open an existing file, and write nothing, neither into it nor beside it.

    Raises:
        DataError: the file cannot be used.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        with self._explained():
            if read_only:
                self._connection = sqlite3.connect(read_only_address(path), timeout=BUSY_SECONDS, uri=True)
                return
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            for statement in _SCHEMA:
                self._connection.execute(statement)

    def sending(self) -> FileLock:
        """Return the lock that a process holds while it sends batches, so that no two send the same question."""
        return FileLock(self.path.with_name(f".{self.path.name}.batches.lock"))

    def find(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the tokens of the batches that hold questions, by the questions' keys."""
        with self._explained():
            if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'batch_lines'").fetchone():
                return {}  # read-only, and no batch was ever sent
            query = "SELECT key, token FROM batch_lines WHERE key IN (SELECT value FROM json_each(?))"
            return dict(self._connection.execute(query, (json.dumps(list(keys)),)))

    def entry(self, token: str) -> Entry | None:
        """Return a batch; None if another process has forgotten it."""
        with self._explained():
            query = "SELECT token, made_at, file, batch FROM batches WHERE token = ?"
            row = self._connection.execute(query, (token,)).fetchone()
            return Entry(*row) if row else None

    def keys(self, token: str) -> list[str]:
        """Return the keys of all questions in a batch, in order."""
        with self._explained():
            query = "SELECT key FROM batch_lines WHERE token = ? ORDER BY key"
            return [key for (key,) in self._connection.execute(query, (token,))]

    def waiting(self, endpoint: str, model: str) -> int:
        """Return how many questions to a model are in batches and have no stored answer.

        Those of a run that was killed while it received a batch may have one, and stay in the ledger.
        """
        with self._explained():
            query = (
                "SELECT count(*) FROM batch_lines JOIN batches USING (token) WHERE endpoint = ? AND model = ? "
                "AND key NOT IN (SELECT key FROM responses)"
            )
            return int(self._connection.execute(query, (endpoint, model)).fetchone()[0])

    def enter(self, token: str, endpoint: str, model: str, keys: Iterable[str]) -> None:
        """Record a batch before it is sent; on disk when this returns."""
        with self._explained(), transaction(self._connection):
            row = (token, endpoint, model, time.time(), None, None)
            self._connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)", row)
            self._connection.executemany("INSERT INTO batch_lines VALUES (?, ?)", [(key, token) for key in keys])

    def uploaded(self, token: str, file: str) -> None:
        with self._explained():
            self._connection.execute("UPDATE batches SET file = ? WHERE token = ?", (file, token))

    def created(self, token: str, batch: str) -> None:
        with self._explained():
            self._connection.execute("UPDATE batches SET batch = ? WHERE token = ?", (batch, token))

    def forget(self, keys: Iterable[str]) -> None:
        """Delete questions that are answered or will be asked again, and then empty batches."""
        with self._explained(), transaction(self._connection):
            self._connection.executemany("DELETE FROM batch_lines WHERE key = ?", [(key,) for key in keys])
            self._connection.execute("DELETE FROM batches WHERE token NOT IN (SELECT token FROM batch_lines)")

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if is_full(error):
                raise DataError(f"{self.path}: {FULL}") from None
            raise DataError(
                f"{self.path}: cannot be used to keep track of batches ({error}). Repair the file, or choose another "
                "annotate.language_model.responses; only this file knows which batches were sent."
            ) from None
