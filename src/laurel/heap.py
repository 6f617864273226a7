"""Garbage collection while libraries with hundreds of thousands of objects are imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heap_frozen(*, cleared: bool = False) -> Iterator[None]:
    """Exclude all existing objects from garbage collection within the block or the decorated function.

    For code that makes many short-lived objects, or that collects garbage itself: with PyTorch imported, a full
    collection takes tens of milliseconds, and with TRL hundreds.

    Args:
        cleared: collect in the end what was made within and is only held by reference cycles. The automatic collection
            finds it late, and the next block would exclude it.
    """
    gc.freeze()
    try:
        yield
    finally:
        if cleared:
            gc.collect()
        gc.unfreeze()
