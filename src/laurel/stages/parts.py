"""Parts of a stage's output made on several machines: a merger needs each of them exactly once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from pathlib import Path
from typing import TypeVar

from laurel.errors import DataError

Key = TypeVar("Key", bound=Hashable)


def check_each_once(
    held: Iterable[tuple[Path, Iterable[Key]]], wanted: Collection[Key], name: Callable[[Key], str]
) -> None:
    """Check that the parts together contain everything that is wanted exactly once.

    Args:
        held: directory of each part -> its keys.
        wanted: all keys, in order.
        name: returns a key's name for messages.

    Raises:
        DataError: a part has an unexpected key, two parts have the same key, or a key is missing.
    """
    paths_of: dict[Key, Path] = {}
    for path, keys in held:
        for key in keys:
            if key not in wanted:
                raise DataError(f"{path}: holds {name(key)}, which these parameters do not ask for.")
            if key in paths_of:
                raise DataError(f"{path}: holds {name(key)}, and so does {paths_of[key]}: give only one of the two.")
            paths_of[key] = path
    if missing := [name(key) for key in wanted if key not in paths_of]:
        raise DataError(f"Missing: {', '.join(missing)}. Make what is missing, then merge again.")
