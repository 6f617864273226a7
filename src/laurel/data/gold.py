"""Gold labels: a person's answers to pairs of texts, one JSON line each, keyed by the texts.

A label belongs to one task: an environment and a goal. The file is append-only: the last answer to a pair counts, and
null retracts an answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from filelock import FileLock

from laurel.errors import DataError
from laurel.textfile import UnfitFileError, read_bytes

MOST_BYTES = 100_000_000

Side = Literal["first", "second", "tie"]
Selection = Literal["uniform", "uncertain"]
P_FIRST: dict[Side, float] = {"first": 1.0, "second": 0.0, "tie": 0.5}


@dataclass(frozen=True, slots=True)
class Task:
    """The task that a label was given for."""

    env: str
    goal: str
    """The goal in words."""


@dataclass(frozen=True, slots=True)
class Gold:
    """A person's answer to a pair."""

    env: str
    goal: str
    first: str
    second: str
    answer: Side | None
    """The person's answer; None: retracted."""
    chosen: Selection
    """Why the pair was shown. uniform: drawn at random; uncertain: because its label was in doubt, so it is not
    representative."""

    @property
    def pair(self) -> frozenset[str]:
        """The two texts, in either order."""
        return frozenset((self.first, self.second))


class GoldFile:
    """The answers in a file, for one task.

    Raises:
        DataError: the file cannot be read, or a line is not a gold label.
    """

    def __init__(self, path: Path, task: Task) -> None:
        self.path = path
        self.task = task
        self.labels: dict[frozenset[str], Gold] = {}
        """The last answer to each pair, in the order in which they were given."""
        self.others = 0
        """Lines that are for another task."""
        for gold in _read(path):
            self._take(gold)

    def add(self, first: str, second: str, answer: Side | None, chosen: Selection) -> None:
        """Append an answer; it is on disk when this returns. None retracts an earlier one."""
        gold = Gold(self.task.env, self.task.goal, first, second, answer, chosen)
        line = json.dumps(asdict(gold), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path.with_name(f".{self.path.name}.lock")), self.path.open("ab+") as file:
                file.seek(0)
                content = file.read()
                kept = _kept(content)
                file.truncate(min(len(kept), len(content)))
                file.write(kept[len(content) :] + line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(f"{self.path}: cannot be written ({error.strerror}). Choose another gold file.") from None
        self._take(gold)

    def _take(self, gold: Gold) -> None:
        if Task(gold.env, gold.goal) != self.task:
            self.others += 1
            return
        self.labels.pop(gold.pair, None)
        if gold.answer is not None:
            self.labels[gold.pair] = gold


def require_gold(path: Path) -> None:
    """Raise DataError if there is no such gold file."""
    if not path.is_file():
        problem = "a directory" if path.is_dir() else "no such file"
        raise DataError(
            f"{path}: {problem}, but annotate.gold names it. Label some pairs with `laurel annotate review`, or "
            "set annotate.gold to null."
        )


def _read(path: Path) -> Iterator[Gold]:
    """Yield the lines of a file, if it exists; an incomplete last line is left out."""
    if not path.exists():
        return
    try:
        content = read_bytes(path, MOST_BYTES)
    except UnfitFileError as error:
        raise DataError(f"{path}: {error} Choose another gold file.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Choose another gold file.") from None
    for number, line in enumerate(_kept(content).splitlines(), 1):
        if line.strip():
            yield _gold(path, number, line)


def _gold(path: Path, number: int, line: bytes) -> Gold:
    try:
        gold = Gold(**json.loads(line))
        texts = (gold.env, gold.goal, gold.first, gold.second)
        good = all(isinstance(text, str) for text in texts) and gold.first != gold.second
    except (ValueError, TypeError):
        good = False
    if not good or gold.answer not in (*get_args(Side), None) or gold.chosen not in get_args(Selection):
        raise DataError(
            f"{path}: line {number} is not a gold label, such as "
            '{"env": "...", "goal": "...", "first": "...", "second": "...", "answer": "first", "chosen": "uniform"}. '
            "Fix or remove it."
        )
    return gold


def _kept(content: bytes) -> bytes:
    """Return the complete lines of a file: a crash may have cut off the last one, or an editor its line break."""
    last = content.rpartition(b"\n")[2]
    try:
        return content + b"\n" if last and json.loads(last) else content
    except ValueError:
        return content[: len(content) - len(last)]
