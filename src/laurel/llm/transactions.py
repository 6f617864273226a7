"""A SQLite transaction: all or nothing, one writer at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a block as one transaction, with one writer at a time."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:  # also Ctrl-C: an open transaction would keep all others out
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
