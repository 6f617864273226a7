"""The SQLite file of the answers: its schema, and its version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laurel.errors import DataError

VERSION = 3
BUSY_SECONDS = 30.0
"""Timeout for another process's write."""

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
    """Run a block as one atomic transaction, with one writer at a time."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:  # also Ctrl-C: an open transaction would block all other processes
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def make_ready(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new file; do nothing if they exist.

    Raises:
        DataError: the file is another program's, or has an unknown version.
    """
    with transaction(connection):  # one of several processes creates them, and the others find them
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
    """Return a URI for reading a file without writing beside it, as far as possible while another process writes it."""
    log = path.with_name(f"{path.name}-wal")
    busy = log.exists() and log.stat().st_size > 0
    return f"{path.absolute().as_uri()}?{'mode=ro' if busy else 'mode=ro&immutable=1'}"
