"""Garbage collection is put off, and nothing of a training stays in memory."""

from __future__ import annotations

import gc
import weakref

from laurel.heap import heap_frozen


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_existed_before_is_not_looked_at() -> None:
    lost = Node()
    seen = weakref.ref(lost)
    with heap_frozen():
        del lost
        gc.collect()
        assert seen() is not None
    gc.collect()
    assert seen() is None
    assert gc.get_freeze_count() == 0


def test_cycles_of_a_function_are_collected_when_it_returns() -> None:
    seen = []

    @heap_frozen(cleared=True)
    def work() -> None:
        node = Node()
        seen.append(weakref.ref(node))

    gc.disable()
    try:
        work()
        assert seen[0]() is None
    finally:
        gc.enable()
