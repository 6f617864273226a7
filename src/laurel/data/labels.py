"""Writing pairs and what was said about them as they come, so that memory does not grow with their number.

Knows nothing about who judges. The files are those that `laurel.data.preferences` reads; their bytes depend on the
rows alone, not on the shares in which they were written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

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
"""Labels that are collected before they become rows."""

_Columns = dict[str, list[Any]]


class Answer(Protocol):
    """What was said when a pair was asked about once."""

    @property
    def swapped(self) -> bool: ...
    @property
    def vote(self) -> int: ...
    @property
    def verdict(self) -> str: ...
    @property
    def p_first(self) -> float | None: ...
    @property
    def key(self) -> str: ...
    @property
    def annotator(self) -> str: ...


class Judged(Labelled, Protocol):
    """The same with the single answers, and the votes of an ensemble's members."""

    @property
    def answers(self) -> Sequence[Answer]: ...
    @property
    def members(self) -> Sequence[tuple[str, Judged]]: ...


class LabelWriter:
    """Writes the label of one pair after the other.

    Args:
        path: directory to write pairs.parquet, preferences.parquet and, if there are any, answers.parquet and
            members.parquet into.
        sampler: how the pairs are drawn.
        seed: of the draw.
        annotator: who judges.
    """

    def __init__(self, path: Path, sampler: str, seed: int, annotator: str) -> None:
        self.statuses = dict.fromkeys(STATUSES, 0)
        """How many pairs have each status, those that none has included; complete once the writer is closed."""
        self._files = _Files(path)
        self._sampler, self._seed, self._annotator = sampler, seed, annotator
        self._pairs: _Columns = {name: [] for name in ("first", "second")}
        self._labels: _Columns = {name: [] for name in ("p_first", "status", "votes", "swap_consistent")}
        self._answers: _Columns = {name: [] for name in ANSWERS_SCHEMA.names}
        self._members: _Columns = {name: [] for name in MEMBERS_SCHEMA.names}

    def add(self, first: int, second: int, judgement: Judged) -> None:
        """Write what was said about the next pair."""
        pairs, labels = self._pairs, self._labels
        number = len(pairs["first"])
        pairs["first"].append(first)
        pairs["second"].append(second)
        labels["p_first"].append(np.nan if judgement.p_first is None else judgement.p_first)
        labels["status"].append(judgement.status)
        labels["votes"].append(judgement.votes)
        labels["swap_consistent"].append(-1 if judgement.swap_consistent is None else int(judgement.swap_consistent))
        answers = self._answers
        for said in judgement.answers:
            answers["pair"].append(number)
            answers["swapped"].append(said.swapped)
            answers["vote"].append(said.vote)
            answers["verdict"].append(said.verdict)
            answers["p_first"].append(said.p_first)
            answers["response"].append(said.key)
            answers["annotator"].append(said.annotator or self._annotator)
        for name, vote in judgement.members:
            members = self._members
            members["pair"].append(number)
            members["annotator"].append(name)
            members["p_first"].append(vote.p_first)
            members["status"].append(vote.status)
            members["votes"].append(vote.votes)
            members["swap_consistent"].append(vote.swap_consistent)
        if number + 1 == AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        first, second = (np.array(numbers, dtype=np.int64) for numbers in self._pairs.values())
        preferences = Preferences(
            p_first=np.array(self._labels["p_first"], dtype=np.float64),
            status=np.array(self._labels["status"], dtype=np.str_),
            votes=np.array(self._labels["votes"], dtype=np.int32),
            swap_consistent=np.array(self._labels["swap_consistent"], dtype=np.int8),
            annotator=self._annotator,
        )
        for status, count in preferences.status_counts().items():
            self.statuses[status] += count
        answers = pa.table(self._answers, schema=ANSWERS_SCHEMA) if self._answers["pair"] else None
        members = pa.table(self._members, schema=MEMBERS_SCHEMA) if self._members["pair"] else None
        pairs = Pairs(first, second, self._sampler, self._seed)
        self._files.write(_pairs_table(pairs), _preferences_table(preferences), answers, members)
        for columns in (self._pairs, self._labels, self._answers, self._members):
            for column in columns.values():
                column.clear()

    def __enter__(self) -> LabelWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self._flush()
        self._files.__exit__(kind, error, tb)


def join_labels(shares: Sequence[Path], path: Path, stage: str) -> dict[str, int]:
    """Write the labels of several shares of the pairs as those of one.

    Args:
        shares: directories, in order.
        path: directory to write into.
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
        for name, schema, some in ((ANSWERS, ANSWERS_SCHEMA, answers), (MEMBERS, MEMBERS_SCHEMA, members)):
            if some is not None and name not in self._open:
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


def _repeated(text: str, times: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), times)
