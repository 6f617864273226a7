"""What is in memory already, kept from being looked through again and again for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def settled() -> Iterator[None]:
    """Spare the garbage collector all that is there now, until the end.

    For loops that make many short-lived objects: with the libraries imported, a full collection costs tens of
    milliseconds, and there are dozens in a million labels.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
