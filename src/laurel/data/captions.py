"""Captions of collected steps: an id per step, and tables with the texts of ids and segments.

Ids are dense: id i is row i of its table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laurel.arrays import IntArray
from laurel.data.manifest import read_manifest
from laurel.data.parquet import read_table, write_table
from laurel.data.trajectories import Position
from laurel.envs.captioner import NO_CAPTION, collapse
from laurel.errors import DataError

STAGE = "caption"
VOCABULARY, SEGMENTS = "vocabulary.parquet", "segments.parquet"

CAPTIONS_SCHEMA = pa.schema(
    [
        pa.field("episode_id", pa.int64(), nullable=False),
        pa.field("t", pa.int32(), nullable=False),
        pa.field("caption", pa.int32()),
    ]
)
VOCABULARY_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("first_episode", pa.int64()),
        pa.field("first_t", pa.int32()),
    ]
)
SEGMENTS_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("captions", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Vocabulary:
    """V distinct captions; captions that were listed but never met have count 0."""

    texts: Sequence[str]
    counts: IntArray
    """(V,) steps with this caption."""
    first_episode: IntArray
    """(V,) episode in which it was first met; -1 if never."""
    first_t: npt.NDArray[np.int32]
    """(V,) step of that episode; -1 if never met."""

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Segments:
    """S distinct segments of up to L captions."""

    texts: Sequence[str]
    """Their joined captions, with repeats collapsed."""
    counts: IntArray
    """(S,) how often each occurred."""
    members: IntArray
    """(S, L) caption ids in order, filled up with -1."""

    def __len__(self) -> int:
        return len(self.texts)

    @staticmethod
    def units(vocabulary: Vocabulary) -> Segments:
        """Make each caption a segment with the same id."""
        return Segments(vocabulary.texts, vocabulary.counts, np.arange(len(vocabulary), dtype=np.int64)[:, None])


def write_captions(path: Path, number: int, position: Position, ids: IntArray) -> None:
    """Write the captions of one shard of trajectories, a row per step."""
    columns = [
        pa.array(position.episode_id),
        pa.array(position.t),
        pa.array(ids.astype(np.int32), mask=ids == NO_CAPTION),
    ]
    write_table(_shard_path(path, number), pa.Table.from_arrays(columns, schema=CAPTIONS_SCHEMA))


def read_captions(path: Path) -> Iterator[IntArray]:
    """Yield the caption ids (N,) of one shard after the other, -1 where a step has no caption.

    Rows are aligned with those that `read_trajectories` yields for the trajectories that the captions were made from.

    Raises:
        DataError: the directory is not a caption stage's output, it was imported without steps, or a file is missing or
            damaged.
    """
    shards = int(read_manifest(path, STAGE)["counts"]["shards"])
    if not shards:
        raise DataError(
            f"{path}: was imported, and has no captions of an environment's steps, which the rewards preference and "
            "outcome need. Use the reward text, which learns from the pairs alone, or the run's own captions."
        )
    for number in range(shards):
        table = read_table(_shard_path(path, number), CAPTIONS_SCHEMA, STAGE)
        yield table["caption"].fill_null(NO_CAPTION).to_numpy().astype(np.int64)


def write_vocabulary(path: Path, vocabulary: Vocabulary) -> None:
    """Write the distinct captions into a directory."""
    unmet = vocabulary.counts == 0
    columns = [
        pa.array(np.arange(len(vocabulary), dtype=np.int32)),
        pa.array(vocabulary.texts, pa.string()),
        pa.array(vocabulary.counts),
        pa.array(vocabulary.first_episode, mask=unmet),
        pa.array(vocabulary.first_t, mask=unmet),
    ]
    write_table(path / VOCABULARY, pa.Table.from_arrays(columns, schema=VOCABULARY_SCHEMA))


def read_vocabulary(path: Path) -> Vocabulary:
    """Read the distinct captions.

    Raises:
        DataError: the directory is not a caption stage's output, or the file is missing or damaged.
    """
    read_manifest(path, STAGE)
    table = _read_dense(path / VOCABULARY, VOCABULARY_SCHEMA)
    return Vocabulary(
        texts=table["text"].to_pylist(),
        counts=table["count"].to_numpy(),
        first_episode=table["first_episode"].fill_null(-1).to_numpy(),
        first_t=table["first_t"].fill_null(-1).to_numpy(),
    )


def write_segments(path: Path, segments: Segments) -> None:
    """Write the distinct segments into a directory."""
    present = segments.members >= 0
    offsets = np.concatenate([[0], present.sum(axis=1).cumsum()]).astype(np.int32)
    captions = pa.ListArray.from_arrays(
        pa.array(offsets),
        pa.array(segments.members[present].astype(np.int32)),
        type=SEGMENTS_SCHEMA.field("captions").type,
    )
    columns = [
        pa.array(np.arange(len(segments), dtype=np.int32)),
        captions,
        pa.array(segments.texts, pa.string()),
        pa.array(segments.counts),
    ]
    write_table(path / SEGMENTS, pa.Table.from_arrays(columns, schema=SEGMENTS_SCHEMA))


def read_segments(path: Path) -> Segments:
    """Read the distinct segments; errors as `read_vocabulary`."""
    read_manifest(path, STAGE)
    table = _read_dense(path / SEGMENTS, SEGMENTS_SCHEMA)
    lists = table["captions"].combine_chunks()
    sizes = lists.value_lengths().to_numpy()
    members = np.full((len(table), sizes.max(initial=1)), NO_CAPTION, dtype=np.int64)
    members[np.arange(members.shape[1]) < sizes[:, None]] = lists.flatten().to_numpy()
    return Segments(table["text"].to_pylist(), table["count"].to_numpy(), members)


def _read_dense(file: Path, schema: pa.Schema) -> pa.Table:
    """Read a table whose row i has id i."""
    table = read_table(file, schema, STAGE)
    if not np.array_equal(table["id"].to_numpy(), np.arange(len(table))):
        raise DataError(f"{file}: ids are not 0, 1, 2 and so on. Run laurel {STAGE} again.")
    return table


def _shard_path(path: Path, number: int) -> Path:
    return path / f"captions-{number:05d}.parquet"


class CaptionTally:
    """Counts of captions and where each first occurred."""

    def __init__(self) -> None:
        self.transitions = 0
        self._counts = np.zeros(0, dtype=np.int64)
        self._first_episode = np.zeros(0, dtype=np.int64)
        self._first_t = np.zeros(0, dtype=np.int32)

    @property
    def captioned(self) -> int:
        """Number of steps that have a caption."""
        return int(self._counts.sum())

    @property
    def distinct(self) -> int:
        return int((self._counts > 0).sum())

    def update(self, position: Position, ids: IntArray) -> None:
        """Count the captions of N steps, ids (N,), which must come after the steps counted before."""
        self.transitions += len(ids)
        present = np.flatnonzero(ids != NO_CAPTION)
        seen_ids, first, counts = np.unique(ids[present], return_index=True, return_counts=True)
        self._grow(int(seen_ids.max(initial=-1)) + 1)
        new = self._counts[seen_ids] == 0
        rows = present[first[new]]
        self._first_episode[seen_ids[new]] = position.episode_id[rows]
        self._first_t[seen_ids[new]] = position.t[rows]
        self._counts[seen_ids] += counts

    def vocabulary(self, texts: Sequence[str]) -> Vocabulary:
        """Join the counts with the texts of the ids."""
        self._grow(len(texts))
        return Vocabulary(texts, self._counts, self._first_episode, self._first_t)

    def _grow(self, size: int) -> None:
        extra = size - len(self._counts)
        if extra > 0:
            self._counts = np.pad(self._counts, (0, extra))
            self._first_episode = np.pad(self._first_episode, (0, extra), constant_values=-1)
            self._first_t = np.pad(self._first_t, (0, extra), constant_values=-1)


class SegmentTally:
    """Counts of caption sequences in non-overlapping windows of an episode's steps.

    Args:
        length: L, steps of a window; an episode's last window may be shorter. Steps without a caption are left out, and
            so are windows without any caption.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self._counts: dict[bytes, int] = {}

    def update(self, position: Position, ids: IntArray) -> None:
        """Count the windows of whole episodes, ids (N,)."""
        begins = position.t % self.length == 0
        present = ids != NO_CAPTION
        window = np.cumsum(begins) - 1
        ordinal = np.cumsum(present) - 1  # index among all captions
        place = ordinal[present] - (np.cumsum(present) - present)[begins][window[present]]
        rows = np.full((int(begins.sum()), self.length), NO_CAPTION, dtype=np.int32)
        rows[window[present], place] = ids[present]
        rows = rows[rows[:, 0] != NO_CAPTION]
        distinct, first, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
        for i in np.argsort(first):  # in order of appearance, which determines ids and breaks ties
            key = distinct[i].tobytes()
            self._counts[key] = self._counts.get(key, 0) + int(counts[i])

    def segments(self, texts: Sequence[str], at_most: int) -> tuple[Segments, int]:
        """Return the most frequent segments in order of appearance, and how many were dropped."""
        counts = np.array(list(self._counts.values()), dtype=np.int64)
        kept = np.sort(np.argsort(-counts, kind="stable")[:at_most])
        keys = list(self._counts)
        members = np.frombuffer(b"".join(keys[i] for i in kept), dtype=np.int32).reshape(-1, self.length)
        joined = [collapse([texts[caption] for caption in row if caption != NO_CAPTION]) for row in members.tolist()]
        return Segments(joined, counts[kept], members.astype(np.int64)), len(counts) - len(kept)
