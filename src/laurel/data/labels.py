"""Writing pairs and what was said about them as they come, so that memory does not grow with their number.

Knows nothing about who judges. The files are those that `laurel.data.preferences` reads; their bytes depend on the
rows alone, not on the shares in which they were written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
import pyarrow as pa

from laurel.data.parquet import ParquetWriter
from laurel.data.preferences import (
    ANSWERS,
    ANSWERS_SCHEMA,
    PAIRS,
    PAIRS_SCHEMA,
    PREFERENCES,
    PREFERENCES_SCHEMA,
    STATUSES,
    Pairs,
    Preferences,
    read_answers,
    read_pairs,
    read_preferences,
)

GROUP_ROWS = 65_536
"""Rows of a row group."""
AT_ONCE = 4096
"""Judgements that are kept as objects before they become rows."""


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


class Judged(Protocol):
    """What `laurel.feedback` says about a pair."""

    @property
    def status(self) -> str: ...
    @property
    def p_first(self) -> float | None: ...
    @property
    def votes(self) -> int: ...
    @property
    def swap_consistent(self) -> bool | None: ...
    @property
    def answers(self) -> Sequence[Answer]: ...


class LabelWriter:
    """Writes the label of one pair after the other.

    Args:
        path: directory to write pairs.parquet, preferences.parquet and, if there are any, answers.parquet into.
        sampler: how the pairs are drawn.
        seed: of the draw.
        annotator: who judges.
    """

    def __init__(self, path: Path, sampler: str, seed: int, annotator: str) -> None:
        self.statuses = dict.fromkeys(STATUSES, 0)
        """How many pairs have each status, those that none has included; complete once the writer is closed."""
        self._files = _Files(path)
        self._sampler, self._seed, self._annotator = sampler, seed, annotator
        self._first: list[int] = []
        self._second: list[int] = []
        self._judgements: list[Judged] = []

    def add(self, first: int, second: int, judgement: Judged) -> None:
        """Write what was said about the next pair."""
        self._first.append(first)
        self._second.append(second)
        self._judgements.append(judgement)
        if len(self._judgements) == AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        pairs = Pairs(
            np.array(self._first, dtype=np.int64), np.array(self._second, dtype=np.int64), self._sampler, self._seed
        )
        preferences = Preferences.of(self._judgements, self._annotator)
        for status, count in preferences.status_counts().items():
            self.statuses[status] += count
        self._files.write(
            _pairs_table(pairs),
            _preferences_table(preferences),
            _answers_table([judgement.answers for judgement in self._judgements]),
        )
        self._first, self._second, self._judgements = [], [], []

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
                _pairs_table(read_pairs(share, stage)), _preferences_table(preferences), read_answers(share, stage)
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

    def write(self, pairs: pa.Table, preferences: pa.Table, answers: pa.Table | None) -> None:
        if answers is not None and ANSWERS not in self._open:
            self._add(ANSWERS, ANSWERS_SCHEMA)
        for name, table in ((PAIRS, pairs), (PREFERENCES, preferences), (ANSWERS, answers)):
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


def _answers_table(answers: Sequence[Sequence[Answer]]) -> pa.Table | None:
    """Return the single answers about each pair; None where there are none."""
    said = list(chain.from_iterable(answers))
    if not said:
        return None
    columns = {
        "pair": np.repeat(np.arange(len(answers), dtype=np.int32), [len(some) for some in answers]),
        "swapped": [one.swapped for one in said],
        "vote": pa.array([one.vote for one in said], pa.int32()),
        "verdict": [one.verdict for one in said],
        "p_first": pa.array([one.p_first for one in said], pa.float64()),
        "response": [one.key for one in said],
    }
    return pa.table(columns, schema=ANSWERS_SCHEMA)


def _repeated(text: str, times: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), times)
