"""The labels of each member of an ensemble of annotators, beside the label that they voted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laurel.data.manifest import read_manifest
from laurel.data.parquet import opened, read_table, readable
from laurel.data.preferences import STAGE, STATUSES, Preferences
from laurel.errors import DataError

MEMBERS = "members.parquet"
MEMBERS_SCHEMA = pa.schema(
    [
        pa.field("pair", pa.int32(), nullable=False),
        pa.field("annotator", pa.string(), nullable=False),
        pa.field("p_first", pa.float64()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("votes", pa.int32(), nullable=False),
        pa.field("swap_consistent", pa.bool_()),
    ]
)
"""One row per pair and member, in the members' order; none for a pair that was not asked about."""
SIDES = ("second", "tie", "first")
AT_ONCE = 8192
"""Pairs that are read at a time."""


@dataclass(frozen=True)
class Tally:
    """Counts of the members' labels; memory does not grow with the number of pairs."""

    names: tuple[str, ...]
    """Names of the members, in order."""
    statuses: tuple[dict[str, int], ...]
    """For each member, how many pairs have each status."""
    patterns: dict[tuple[str | None, ...], int]
    """The members' labels of a pair (first, second, tie or None) -> number of pairs."""


def read_members(path: Path, stage: str = STAGE) -> pa.Table | None:
    """Read the judgements of the members of an ensemble; None for other annotators. Errors as `tally_members`."""
    read_manifest(path, stage)
    return read_table(path / MEMBERS, MEMBERS_SCHEMA, STAGE) if (path / MEMBERS).exists() else None


def tally_members(path: Path) -> Tally | None:
    """Count the labels of an ensemble's members, also in a directory that is still being written.

    Returns:
        None where the annotator is not an ensemble.

    Raises:
        DataError: the file is damaged.
    """
    file = path / MEMBERS
    if not file.exists():
        return None
    names: tuple[str, ...] = ()
    statuses: list[Counter[str]] = []
    patterns: Counter[tuple[str | None, ...]] = Counter()
    for batch in _batches(file):
        if not names:
            names = tuple(batch["annotator"].slice(0, _members(batch)).to_pylist())
            statuses = [Counter() for _ in names]
        if len(batch) % len(names):
            raise DataError(f"{file}: members are missing. Run laurel {STAGE} again.")
        by_member = np.array(batch["status"].to_pylist()).reshape(-1, len(names))
        for member, column in zip(statuses, by_member.T, strict=True):
            member.update(column.tolist())
        p = batch["p_first"].fill_null(np.nan).to_numpy(zero_copy_only=False).reshape(-1, len(names))
        sides = np.where(np.isnan(p), -1, np.sign(p - 0.5) + 1).astype(np.int64)
        kinds, counts = np.unique(sides, axis=0, return_counts=True)
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
            patterns[tuple(None if side < 0 else SIDES[side] for side in kind)] += count
    counted = tuple({status: member[status] for status in STATUSES} for member in statuses)
    return Tally(names, counted, dict(patterns))


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    """Yield whole pairs."""
    with opened(file, MEMBERS_SCHEMA, STAGE) as parquet, readable(file, STAGE):
        first = next(parquet.iter_batches(batch_size=AT_ONCE), None)
        if first is not None and len(first):
            yield from parquet.iter_batches(batch_size=AT_ONCE * _members(first))


def _members(batch: pa.RecordBatch) -> int:
    """Return how many rows the first pair has."""
    return int((batch["pair"].to_numpy() == batch["pair"][0].as_py()).sum())


def read_votes(path: Path, n: int) -> dict[str, Preferences]:
    """Read each member's labels of all of n pairs, also of a directory that is still being written.

    Returns:
        Member -> its labels, in the members' order; a pair that it was not asked about is a tie with 0 votes. Empty if
        the annotator is not an ensemble.

    Raises:
        DataError: the file is damaged.
    """
    file = path / MEMBERS
    if not file.exists():
        return {}
    table = read_table(file, MEMBERS_SCHEMA, STAGE)
    names = table["annotator"].unique().to_pylist()
    by_member = {}
    for name in names:
        rows = table.filter(pc.equal(table["annotator"], name))
        pair = rows["pair"].to_numpy()
        p_first, votes = np.full(n, 0.5), np.zeros(n, dtype=np.int32)
        status = np.full(n, "tie", dtype=f"<U{max(map(len, STATUSES))}")
        consistent = np.full(n, -1, dtype=np.int8)
        p_first[pair] = rows["p_first"].fill_null(np.nan).to_numpy()
        status[pair] = rows["status"].to_pylist()
        votes[pair] = rows["votes"].to_numpy()
        consistent[pair] = rows["swap_consistent"].cast(pa.int8()).fill_null(-1).to_numpy()
        by_member[name] = Preferences(p_first, status, votes, consistent, name)
    return by_member
