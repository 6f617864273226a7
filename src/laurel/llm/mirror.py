"""Copies of the answers in a folder that outlives the machine: a run loads all copies at its start and writes its own.

For pipeline steps, whose disk is discarded. The folder may be a mounted bucket without locks: databases in it are only
copied, never opened, and each file is written by only one run.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from laurel.data.replacing import sync_directory
from laurel.errors import DataError
from laurel.llm.batch_ledger import BatchLedger
from laurel.llm.replies import is_damaged
from laurel.llm.responses import ResponseStore

SECONDS = 60.0
"""Interval between copies during a run, and so the maximum loss if the machine fails."""
PATTERN = "responses-*.db"

logger = logging.getLogger(__name__)


@contextmanager
def mirrored(path: Path, folder: Path | None, seconds: float = SECONDS) -> Iterator[None]:
    """Add the folder's answers to a store; copy answers that are added within the block to the folder.

    Args:
        folder: created if necessary; None: do nothing.

    Raises:
        DataError: the folder cannot be read, or has a store that is damaged or of another version; or new answers
            cannot be copied.
    """
    if folder is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="laurel-") as scratch:
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _absorb(path, folder, Path(scratch))
            copy = _Copy(path, folder / f"responses-{uuid.uuid4().hex}.db", Path(scratch))
        ended = threading.Event()

        def copy_periodically() -> None:
            while not ended.wait(seconds):
                try:
                    copy.write()
                except (OSError, sqlite3.Error) as error:  # the last copy, which must succeed, reports the error
                    logger.warning("%s: answers could not be copied there (%s).", folder, error)

        copying = threading.Thread(target=copy_periodically, name="copy answers", daemon=True)
        copying.start()
        try:
            yield
        finally:
            ended.set()
            copying.join()
            with _explained(folder):
                copy.write()


def _absorb(path: Path, folder: Path, scratch: Path) -> None:
    """Add the answers of all stores in the folder, and the batches without stored answers."""
    ResponseStore(path).close()
    BatchLedger(path).close()
    for file in sorted(folder.glob(PATTERN)):
        copy = shutil.copyfile(file, scratch / file.name)
        ResponseStore(copy).close()  # raises if it is damaged
        BatchLedger(copy).close()
        with closing(sqlite3.connect(path)) as store:
            store.create_function("is_damaged", 2, is_damaged, deterministic=True)
            store.execute("ATTACH ? AS other", (str(copy),))
            with store:
                store.execute("INSERT OR IGNORE INTO contexts SELECT * FROM other.contexts")
                usable = "SELECT key FROM main.responses WHERE NOT is_damaged(text, logprobs)"
                wanted = f"SELECT * FROM other.responses WHERE key NOT IN ({usable})"  # noqa: S608
                store.execute(f"INSERT OR REPLACE INTO main.responses {wanted}")
                store.execute("INSERT OR IGNORE INTO batches SELECT * FROM other.batches")
                store.execute("INSERT OR IGNORE INTO batch_lines SELECT * FROM other.batch_lines")
        copy.unlink()
    with closing(sqlite3.connect(path)) as store, store:
        store.execute("DELETE FROM batch_lines WHERE key IN (SELECT key FROM responses)")
        store.execute("DELETE FROM batches WHERE token NOT IN (SELECT token FROM batch_lines)")


class _Copy:
    """Copies the new answers of a store, and its pending batches."""

    def __init__(self, path: Path, target: Path, scratch: Path) -> None:
        self._path, self._target = path, target
        self._before, self._new = scratch / "before.db", scratch / "new.db"
        with closing(sqlite3.connect(path)) as store, closing(sqlite3.connect(self._before)) as before:
            store.backup(before)
            self._written = 0, _batches(before)

    def write(self) -> None:
        """Replace the last copy by a store of the new answers; do nothing if there are none."""
        self._new.unlink(missing_ok=True)
        ResponseStore(self._new).close()
        BatchLedger(self._new).close()
        with closing(sqlite3.connect(self._new)) as new:
            new.execute("PRAGMA journal_mode = DELETE")  # a copied file must be whole without a log beside it
            new.execute("ATTACH ? AS store", (str(self._path),))
            new.execute("ATTACH ? AS before", (str(self._before),))
            with new:
                unchanged = "old.key = new.key AND old.text IS new.text AND old.logprobs IS new.logprobs"
                wanted = f"NOT EXISTS (SELECT 1 FROM before.responses AS old WHERE {unchanged})"  # noqa: S608
                new.execute("INSERT INTO contexts SELECT * FROM store.contexts")
                new.execute(f"INSERT INTO responses SELECT * FROM store.responses AS new WHERE {wanted}")  # noqa: S608
                new.execute("INSERT INTO batches SELECT * FROM store.batches")
                new.execute("INSERT INTO batch_lines SELECT * FROM store.batch_lines")
            (count,) = new.execute("SELECT count(*) FROM main.responses").fetchone()
            content = count, _batches(new)
        if content != self._written:
            partial = self._target.with_name(f".{self._target.name}.partial")
            shutil.copyfile(self._new, partial)
            with partial.open("rb") as stream:
                os.fsync(stream.fileno())
            partial.replace(self._target)
            sync_directory(self._target.parent)
            self._written = content


def _batches(store: sqlite3.Connection) -> list[tuple[str, str | None]]:
    return store.execute("SELECT token, batch FROM main.batches ORDER BY token").fetchall()


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise DataError(
            f"{folder}: answers cannot be stored there ({error}). Make the folder writable, or name another one."
        ) from None
