"""Pairs of segments and an annotator's labels of them, as `laurel.data.labels` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laurel.arrays import BoolArray, DoubleArray, IntArray
from laurel.data.manifest import read_manifest
from laurel.data.parquet import opened, read_table, readable
from laurel.errors import DataError
from laurel.params.annotation import MAIN

_T = TypeVar("_T", str, int)

STAGE = "annotate"
PAIRS, PREFERENCES, ANSWERS = "pairs.parquet", "preferences.parquet", "answers.parquet"

STATUSES = ("ok", "tie", "abstain", "incomplete", "parse_failed", "api_failed")
"""ok: one is better; tie: neither; abstain: the annotator declined to choose (a chat model in all answers that can be
read, or in those of one order, with none missing); incomplete: it chose, but answers are missing, or could not be
parsed, in one of the orders or in most votes, so the label could be due to position bias or chance; the others: there
was no answer, or it could not be parsed."""
UNLABELLED = ("abstain", "incomplete", "parse_failed", "api_failed")
"""Statuses without a probability."""
FAILURES = ("incomplete", "parse_failed", "api_failed")
"""Statuses of pairs that have no label because the annotator failed; one that abstains did not fail."""

PAIRS_SCHEMA = pa.schema(
    [
        pa.field("pair", pa.int32(), nullable=False),
        pa.field("first", pa.int32(), nullable=False),
        pa.field("second", pa.int32(), nullable=False),
        pa.field("sampler", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
    ]
)
PREFERENCES_SCHEMA = pa.schema(
    [
        pa.field("pair", pa.int32(), nullable=False),
        pa.field("p_first", pa.float64()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("votes", pa.int32(), nullable=False),
        pa.field("swap_consistent", pa.bool_()),
        pa.field("annotator", pa.string(), nullable=False),
    ]
)


ANSWERS_SCHEMA = pa.schema(
    [
        pa.field("pair", pa.int32(), nullable=False),
        pa.field("swapped", pa.bool_(), nullable=False),
        pa.field("vote", pa.int32(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("p_first", pa.float64()),
        pa.field("response", pa.string(), nullable=False),
        pa.field("annotator", pa.string(), nullable=False),
    ]
)
"""The single answers behind the labels; `response` is a key of the store of responses."""


class Labelled(Protocol):
    """A label of a pair, from `laurel.feedback`."""

    @property
    def status(self) -> str: ...
    @property
    def p_first(self) -> float | None: ...
    @property
    def votes(self) -> int: ...
    @property
    def swap_consistent(self) -> bool | None: ...


@dataclass(frozen=True)
class Pairs:
    """P pairs of segments; pair i is row i."""

    first: IntArray
    second: IntArray
    sampler: str
    """How they were drawn."""
    seed: int
    """Seed of the draw."""

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class Preferences:
    """Labels of P pairs; row i is of pair i.

    Raises:
        DataError: a status is unknown, or a probability contradicts its status.
    """

    p_first: DoubleArray
    """(P,) probability that the first is better; NaN if there is no label, 1/2 for ties."""
    status: npt.NDArray[np.str_]
    """(P,) one of STATUSES."""
    votes: npt.NDArray[np.int32]
    """(P,) number of answers that the label is based on."""
    swap_consistent: npt.NDArray[np.int8]
    """(P,) 1 if asking in the other order gave the same answer, 0 if not, -1 if it was not asked."""
    annotator: str
    """The annotator, with model and settings."""

    def __post_init__(self) -> None:
        self._require(_is_one_of(self.status, STATUSES), f"has a status that is not one of {', '.join(STATUSES)}")
        unlabelled = _is_one_of(self.status, UNLABELLED)
        self._require(np.isnan(self.p_first) == unlabelled, "must have a probability if and only if it has a label")
        inside = (self.p_first >= 0) & (self.p_first <= 1)
        self._require(unlabelled | inside, "has a probability outside [0, 1]")
        self._require((self.status != "tie") | (self.p_first == 0.5), "is a tie, but its probability is not 0.5")

    def __len__(self) -> int:
        return len(self.p_first)

    @staticmethod
    def of(judgements: Iterable[Labelled], annotator: str) -> Preferences:
        """Gather judgements in the order of the pairs."""
        rows = [(j.p_first, j.status, j.votes, j.swap_consistent) for j in judgements]
        return Preferences(
            p_first=np.array([np.nan if p is None else p for p, _, _, _ in rows], dtype=np.float64),
            status=np.array([status for _, status, _, _ in rows], dtype=np.str_),
            votes=np.array([votes for _, _, votes, _ in rows], dtype=np.int32),
            swap_consistent=np.array([-1 if swap is None else int(swap) for _, _, _, swap in rows], dtype=np.int8),
            annotator=annotator,
        )

    @property
    def usable(self) -> BoolArray:
        """(P,) True if there is a label to learn from: ok and tie."""
        return ~np.isnan(self.p_first)

    def status_counts(self) -> dict[str, int]:
        """Return how many pairs have each status, zeros included."""
        return {status: int((self.status == status).sum()) for status in STATUSES}

    def _require(self, holds: BoolArray, problem: str) -> None:
        if not holds.all():
            raise DataError(f"Preferences: pair {int(np.flatnonzero(~holds)[0])} {problem}.")


def _is_one_of(texts: npt.NDArray[np.str_], allowed: Iterable[str]) -> BoolArray:
    """Like `np.isin`, but many times faster for a few allowed texts, as it does not sort."""
    return np.logical_or.reduce([texts == text for text in allowed])


def read_pairs(path: Path, stage: str = STAGE) -> Pairs:
    """Read the pairs of an annotate stage's output, or of a share of it (`stage` is then another).

    Raises:
        DataError: the directory is another stage's, or the file is missing or damaged.
    """
    table = _read(path, PAIRS, PAIRS_SCHEMA, stage)
    return Pairs(
        first=table["first"].to_numpy().astype(np.int64),
        second=table["second"].to_numpy().astype(np.int64),
        sampler=_single(path / PAIRS, table, "sampler", ""),
        seed=_single(path / PAIRS, table, "seed", 0),
    )


def read_preferences(path: Path, stage: str = STAGE) -> Preferences:
    """Read the labels of an annotate stage's output; errors as `read_pairs`, or a label is not allowed."""
    table = _read(path, PREFERENCES, PREFERENCES_SCHEMA, stage)
    annotator = _single(path / PREFERENCES, table, "annotator", "")
    try:
        return _preferences(table, table["votes"].to_numpy(), annotator)
    except DataError as error:
        raise DataError(f"{path / PREFERENCES}: {error} Run laurel {STAGE} again.") from None


def read_labels(path: Path) -> tuple[Pairs, Preferences]:
    """Read pairs and labels of an output that is still being written, without sampler, seed, annotator and votes.

    All rows share these fields, or no statistic needs them; for a million pairs they would take most of the memory.
    """
    pairs = read_table(path / PAIRS, _columns(PAIRS_SCHEMA, "first", "second"), STAGE)
    labels = read_table(path / PREFERENCES, _columns(PREFERENCES_SCHEMA, "p_first", "status", "swap_consistent"), STAGE)
    return (
        Pairs(pairs["first"].to_numpy().astype(np.int64), pairs["second"].to_numpy().astype(np.int64), "", 0),
        _preferences(labels, np.zeros(len(labels), dtype=np.int32), ""),
    )


def _preferences(table: pa.Table, votes: npt.NDArray[np.int32], annotator: str) -> Preferences:
    return Preferences(
        p_first=table["p_first"].to_numpy(),
        status=_texts(table["status"].combine_chunks()),
        votes=votes,
        swap_consistent=table["swap_consistent"].cast(pa.int8()).fill_null(-1).to_numpy(),
        annotator=annotator,
    )


def labels_of(preferences: Path, judge: str, number: int) -> Path:
    """Return where a label set of a judge is in the output of annotate."""
    return set_of(preferences if judge == MAIN else preferences / "judges" / judge, number)


def set_of(place: Path, number: int) -> Path:
    """Return the directory of a label set: the first is `place` itself, the others are subfolders."""
    return place if number == 0 else place / f"set-{number}"


def set_number(place: Path) -> int:
    """Return the number of the label set whose directory this is, or that a reward in it was made from."""
    match = re.fullmatch(r"set-(\d+)", place.name)
    return int(match[1]) if match else 0


def read_annotator(path: Path) -> str:
    """Return the annotator, with model and settings, also for an output still being written; empty without pairs."""
    with opened(path / PREFERENCES, PREFERENCES_SCHEMA, STAGE) as file, readable(path / PREFERENCES, STAGE):
        first = next(file.iter_batches(batch_size=1, columns=["annotator"]), None)
    return "" if first is None or not len(first) else str(first["annotator"][0])


def _columns(schema: pa.Schema, *names: str) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def read_answers(path: Path, stage: str = STAGE) -> pa.Table | None:
    """Read the single answers; None where the annotator keeps none. Errors as `read_pairs`."""
    read_manifest(path, stage)
    return read_table(path / ANSWERS, ANSWERS_SCHEMA, STAGE) if (path / ANSWERS).exists() else None


def _texts(column: pa.Array) -> npt.NDArray[np.str_]:
    """Return a column with few distinct texts as an array, without creating an object per row."""
    coded = column.dictionary_encode()
    return np.array(coded.dictionary.to_pylist() or [""], dtype=np.str_)[coded.indices.to_numpy()]


def _read(path: Path, name: str, schema: pa.Schema, stage: str) -> pa.Table:
    read_manifest(path, stage)
    table = read_table(path / name, schema, STAGE)
    if not np.array_equal(table["pair"].to_numpy(), np.arange(len(table))):
        raise DataError(f"{path / name}: pairs are not 0, 1, 2 and so on. Run laurel {STAGE} again.")
    return table


def _single(file: Path, table: pa.Table, column: str, empty: _T) -> _T:
    """Return the value that all rows share."""
    values = table[column].unique().to_pylist()
    if len(values) > 1:
        raise DataError(f'{file}: column "{column}" holds {len(values)} values, but must hold one. Run laurel {STAGE}.')
    return values[0] if values else empty
