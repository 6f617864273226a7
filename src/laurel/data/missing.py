"""Counts of the reasons why answers are missing, stored beside the labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from laurel.data.json_file import read_json, write_json
from laurel.data.parquet import opened, readable
from laurel.data.preferences import ANSWERS, ANSWERS_SCHEMA, STAGE

MISSING = "missing.json"
FAILED, UNREAD = "failed", "unread"
IN_WORDS = {FAILED: "no answer", UNREAD: "the answer could not be read"}
MOST = 20
"""Maximum number of reasons listed separately."""
OTHER = "other reasons"
_NUMBERED = re.compile(r"(?<!status )\b\w*\d\w*")


@dataclass(frozen=True, slots=True)
class Missing:
    """Answers that are missing for the same reason."""

    annotator: str
    verdict: str
    """failed or unread, a key of IN_WORDS."""
    reason: str
    """One line, without secrets; it may quote a model or a server."""
    answers: int

    @property
    def what(self) -> str:
        """Description of what is missing."""
        return IN_WORDS[self.verdict]


class Reasons:
    """Counts of reasons; those that differ only in numbers and ids are counted together and shown as the first one.

    >>> reasons = Reasons()
    >>> for text in ("status 500: request a1 broke", "status 500: request b2 broke", "status 503: overloaded"):
    ...     reasons.add(text)
    >>> reasons.counts()
    {'status 500: request a1 broke': 2, 'status 503: overloaded': 1}
    """

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def add(self, reason: str, times: int = 1) -> None:
        """Count a reason."""
        kind = kind_of(reason)
        if kind not in self._said and len(self._said) >= MOST:
            kind = reason = OTHER
        self._said.setdefault(kind, reason)
        self._counts[kind] += times

    def counts(self) -> dict[str, int]:
        """Return reason -> how often, the most frequent first."""
        return {self._said[kind]: count for kind, count in self._counts.most_common()}


def kind_of(reason: str) -> str:
    """Return a reason without its numbers and ids, but with the HTTP status of a refusal."""
    return _NUMBERED.sub("0", reason)


def gather(parts: Iterable[Missing]) -> list[Missing]:
    """Add up missing answers by annotator, in order of appearance, and by verdict."""
    by_verdict: dict[tuple[str, str], Reasons] = {}
    for part in parts:
        by_verdict.setdefault((part.annotator, part.verdict), Reasons()).add(part.reason, part.answers)
    return [
        Missing(annotator, verdict, reason, count)
        for (annotator, verdict), reasons in by_verdict.items()
        for reason, count in reasons.counts().items()
    ]


def unread_keys(path: Path) -> Iterator[tuple[str, str]]:
    """Yield annotator, and key in the store of responses, of each answer that could not be read, in order."""
    file = path / ANSWERS
    if not file.exists():
        return
    with opened(file, ANSWERS_SCHEMA, STAGE) as parquet, readable(file, STAGE):
        for batch in parquet.iter_batches(columns=["verdict", "annotator", "response"]):
            rows = batch.filter(pc.equal(batch["verdict"], UNREAD))
            yield from zip(rows["annotator"].to_pylist(), rows["response"].to_pylist(), strict=True)


def write_missing(path: Path, missing: Sequence[Missing]) -> None:
    """Write the counts of missing answers into a directory; no file where none is missing."""
    if missing:
        write_json(path / MISSING, [asdict(entry) for entry in missing])


def read_missing(path: Path) -> list[Missing]:
    """Read what is missing of a directory's answers, also of one that is still being written."""
    return listed(read_json(path / MISSING)) if (path / MISSING).exists() else []


def listed(entries: Iterable[Mapping[str, Any]]) -> list[Missing]:
    """Return what is missing from the lines of missing.json, or of `missing` in quality.json."""
    return [Missing(**entry) for entry in entries]


def most_frequent(missing: Sequence[Missing], limit: int = 3) -> str:
    """Return the most frequent reasons in a line; empty where nothing is missing."""
    ordered = sorted(missing, key=lambda entry: -entry.answers)
    rest = sum(entry.answers for entry in ordered[limit:])
    lines = [f"{entry.what}, {times(entry.answers)}: {entry.reason}" for entry in ordered[:limit]]
    return "; ".join([*lines, *([f"{rest:,} for other reasons"] if rest else [])])


def times(n: int) -> str:
    """Write how often something happened.

    >>> times(1), times(1200)
    ('once', '1,200 times')
    """
    return "once" if n == 1 else f"{n:,} times"
