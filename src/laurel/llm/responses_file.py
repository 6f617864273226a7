"""The SQLite file of the answers: its schema, and its version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laurel.errors import DataError

VERSION = 3
BUSY_SECONDS = 30.0
"""How long to wait for another process's write."""

_SCHEMA = """
CREATE TABLE contexts (id TEXT PRIMARY KEY, content TEXT NOT NULL, example TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE responses (
    key TEXT PRIMARY KEY,
    context TEXT NOT NULL,
    text TEXT NOT NULL,
    logprobs TEXT,
    input_tokens INTEGER,
    output_tokens INTEGER,
    finish_reason TEXT NOT NULL,
    seconds REAL NOT NULL,
    cached_tokens INTEGER,
    asked_at REAL NOT NULL,
    messages BLOB NOT NULL,
    cost_usd REAL
);
CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
"""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a block as one transaction: all of it or nothing, with one writer at a time."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:  # also Ctrl-C: an open transaction would keep all others out
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def make_ready(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file; do nothing to one that has them.

    Raises:
        DataError: the file is another program's, or of a version that is not known.
    """
    with transaction(connection):  # of several processes one does it, and the others find it done
        if connection.execute("PRAGMA user_version").fetchone()[0] != 0:
            check_version(connection, path)
            return
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise DataError(f"{path}: is another program's database. Choose another annotate.language_model.responses.")
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raise DataError for a file of another version."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version != VERSION:
        raise DataError(
            f"{path}: holds answers in version {version} of the format, but {VERSION} is needed. "
            "Choose another annotate.language_model.responses, or use the Laurel that wrote it."
        )


def read_only_address(path: Path) -> str:
    """Return how to read a file without writing beside it, as far as that goes while another process writes it."""
    log = path.with_name(f"{path.name}-wal")
    busy = log.exists() and log.stat().st_size > 0
    return f"{path.absolute().as_uri()}?{'mode=ro' if busy else 'mode=ro&immutable=1'}"
