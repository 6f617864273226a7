"""The garbage collector, kept from examining the same objects again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heap_frozen() -> Iterator[None]:
    """Leave all objects that exist now out of garbage collections within the block.

    For loops that make many short-lived objects: with the libraries imported, a full collection costs tens of
    milliseconds, and there are dozens in a million labels.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
