"""Stream pairs and their labels to files, so that memory does not grow with their number.

`laurel.data.preferences` reads the files; their bytes depend only on the rows, not on how these were split into shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
import pyarrow as pa

from laurel.data.members import MEMBERS, MEMBERS_SCHEMA, read_members
from laurel.data.parquet import ParquetWriter
from laurel.data.preferences import (
    ANSWERS,
    ANSWERS_SCHEMA,
    PAIRS,
    PAIRS_SCHEMA,
    PREFERENCES,
    PREFERENCES_SCHEMA,
    STATUSES,
    Labelled,
    Pairs,
    Preferences,
    read_answers,
    read_pairs,
    read_preferences,
)

GROUP_ROWS = 65_536
"""Rows of a row group."""
AT_ONCE = 4096
"""Labels that are buffered before they are written."""


class Answer(Protocol):
    """A single answer about a pair."""

    @property
    def variant(self) -> int: ...  # 1 where the second text was shown first
    @property
    def vote(self) -> int: ...
    @property
    def verdict(self) -> str: ...
    @property
    def value(self) -> float | None: ...  # p(first)
    @property
    def key(self) -> str: ...
    @property
    def annotator(self) -> str: ...


class Judged(Labelled, Protocol):
    """A label with its single answers, and the votes of an ensemble's members."""

    @property
    def answers(self) -> Sequence[Answer]: ...
    @property
    def members(self) -> Sequence[tuple[str, Judged]]: ...


class LabelWriter:
    """Writes the labels of pairs one after the other.

    Args:
        path: directory to write pairs.parquet, preferences.parquet and, if there are any, answers.parquet and
            members.parquet into.
    """

    def __init__(self, path: Path, sampler: str, seed: int, annotator: str) -> None:
        self.statuses = dict.fromkeys(STATUSES, 0)
        """How many pairs have each status, zeros included; complete once the writer is closed."""
        self._files = _Files(path)
        self._sampler, self._seed, self._annotator = sampler, seed, annotator
        self._rows: list[tuple[int, int, Judged]] = []

    def add(self, first: int, second: int, judgement: Judged) -> None:
        """Write the judgement of the next pair."""
        self._rows.append((first, second, judgement))
        if len(self._rows) == AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        judgements = [judgement for _, _, judgement in self._rows]
        pairs = Pairs(
            np.array([first for first, _, _ in self._rows], dtype=np.int64),
            np.array([second for _, second, _ in self._rows], dtype=np.int64),
            self._sampler,
            self._seed,
        )
        preferences = Preferences.of(judgements, self._annotator)
        for status, count in preferences.status_counts().items():
            self.statuses[status] += count
        answers, members = self._answers_of(judgements), _members_of(judgements)
        self._files.write(_pairs_table(pairs), _preferences_table(preferences), answers, members)
        self._rows.clear()

    def _answers_of(self, judgements: Sequence[Judged]) -> pa.Table | None:
        numbers = [number for number, judgement in enumerate(judgements) for _ in judgement.answers]
        if not numbers:
            return None
        answers = [answer for judgement in judgements for answer in judgement.answers]
        columns = {
            "pair": numbers,
            "swapped": [bool(answer.variant) for answer in answers],
            "vote": [answer.vote for answer in answers],
            "verdict": [answer.verdict for answer in answers],
            "p_first": [answer.value for answer in answers],
            "response": [answer.key for answer in answers],
            "annotator": [answer.annotator or self._annotator for answer in answers],
        }
        return pa.table(columns, schema=ANSWERS_SCHEMA)

    def __enter__(self) -> LabelWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self._flush()
        self._files.__exit__(kind, error, tb)


def write_labels(path: Path, pairs: Pairs, preferences: Preferences) -> None:
    """Write existing pairs and labels into a directory, without single answers."""
    with _Files(path) as files:
        files.write(_pairs_table(pairs), _preferences_table(preferences), None, None)


def join_labels(shares: Sequence[Path], path: Path, stage: str) -> dict[str, int]:
    """Join the labels of several shares of the pairs in one directory.

    Args:
        shares: directories, in order.
        stage: that wrote the shares.

    Returns:
        How many pairs have each status.

    Raises:
        DataError: a share is another stage's, or a file of it is missing or damaged.
    """
    statuses: Counter[str] = Counter()
    with _Files(path) as files:
        for share in shares:
            preferences = read_preferences(share, stage)
            statuses.update(preferences.status_counts())
            files.write(
                _pairs_table(read_pairs(share, stage)),
                _preferences_table(preferences),
                read_answers(share, stage),
                read_members(share, stage),
            )
    return {status: statuses[status] for status in STATUSES}


class _Files:
    """The files of an annotate stage, written together; tables that number their pairs from 0 are joined."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pairs = 0
        self._open: dict[str, ParquetWriter] = {}
        self._held = ExitStack()
        for name, schema in ((PAIRS, PAIRS_SCHEMA), (PREFERENCES, PREFERENCES_SCHEMA)):
            self._add(name, schema)

    def _add(self, name: str, schema: pa.Schema) -> None:
        writer = ParquetWriter(self._path / name, schema, group_rows=GROUP_ROWS)
        self._open[name] = self._held.enter_context(writer)

    def write(self, pairs: pa.Table, preferences: pa.Table, answers: pa.Table | None, members: pa.Table | None) -> None:
        for name, schema, part in ((ANSWERS, ANSWERS_SCHEMA, answers), (MEMBERS, MEMBERS_SCHEMA, members)):
            if part is not None and name not in self._open:
                self._add(name, schema)
        for name, table in ((PAIRS, pairs), (PREFERENCES, preferences), (ANSWERS, answers), (MEMBERS, members)):
            if table is not None:
                shifted = pa.array(table["pair"].to_numpy() + np.int32(self._pairs), pa.int32())
                self._open[name].write(table.set_column(0, table.schema.field("pair"), shifted))
        self._pairs += len(pairs)

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._held.__exit__(kind, error, tb)


def _pairs_table(pairs: Pairs) -> pa.Table:
    columns = {
        "pair": np.arange(len(pairs), dtype=np.int32),
        "first": pairs.first.astype(np.int32),
        "second": pairs.second.astype(np.int32),
        "sampler": _repeated(pairs.sampler, len(pairs)),
        "seed": np.full(len(pairs), pairs.seed, dtype=np.int64),
    }
    return pa.table(columns, schema=PAIRS_SCHEMA)


def _preferences_table(preferences: Preferences) -> pa.Table:
    columns = {
        "pair": np.arange(len(preferences), dtype=np.int32),
        "p_first": pa.array(preferences.p_first, mask=~preferences.usable),
        "status": pa.array(preferences.status.tolist(), pa.string()),
        "votes": preferences.votes,
        "swap_consistent": pa.array(preferences.swap_consistent == 1, mask=preferences.swap_consistent < 0),
        "annotator": _repeated(preferences.annotator, len(preferences)),
    }
    return pa.table(columns, schema=PREFERENCES_SCHEMA)


def _members_of(judgements: Sequence[Judged]) -> pa.Table | None:
    numbers = [number for number, judgement in enumerate(judgements) for _ in judgement.members]
    if not numbers:
        return None
    names, votes = zip(*[member for judgement in judgements for member in judgement.members], strict=True)
    columns = {
        "pair": numbers,
        "annotator": names,
        "p_first": [vote.p_first for vote in votes],
        "status": [vote.status for vote in votes],
        "votes": [vote.votes for vote in votes],
        "swap_consistent": [vote.swap_consistent for vote in votes],
    }
    return pa.table(columns, schema=MEMBERS_SCHEMA)


def _repeated(text: str, times: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), times)
