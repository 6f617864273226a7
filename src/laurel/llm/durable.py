"""A file whose changes are synced to disk soon, many at once.

Waiting for the disk after every answer (SQLite's `synchronous = FULL`) takes about 2 ms each, and would make a fast
server wait. So a thread syncs the write-ahead log, again and again while there is something new: a loss of power
loses only what came since the last sync began. `flush` waits until all is on disk; costs are reported after it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path


class Durable:
    """Syncs a file in the background; errors are raised at the next change, or at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = threading.Event()
        self._ended = False
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None

    def changed(self) -> None:
        """Have the file synced soon.

        Raises:
            OSError: an earlier sync failed.
        """
        self._raise()
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._sync_until_the_end, name="sync answers", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Wait until everything is on disk; raises as `changed`."""
        if self._thread is not None:
            self._sync()
        self._raise()

    def close(self) -> None:
        """Wait until everything is on disk, and end the thread; raises as `changed`."""
        if self._thread is not None:
            self._ended = True
            self._changed.set()
            self._thread.join()
            self._thread = None
            self._sync()
        self._raise()

    def _sync_until_the_end(self) -> None:
        while not self._ended:
            self._changed.wait()
            self._changed.clear()  # before, so that what changes meanwhile is synced the next time
            self._sync()

    def _sync(self) -> None:
        try:
            opened = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:  # SQLite has moved it into the database, and synced that itself
            return
        try:
            os.fsync(opened)
        except OSError as error:
            self._error = error
        finally:
            os.close(opened)

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
