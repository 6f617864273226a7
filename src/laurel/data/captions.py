"""Captions of collected steps: ids beside the steps, and tables of what the ids and segments say.

Ids are dense: id i is row i of its table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laurel.data.manifest import read_manifest
from laurel.data.parquet import read_table, write_table
from laurel.data.trajectories import Position
from laurel.envs.base import IntArray
from laurel.envs.captioner import NOTHING
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
    """(V,) where it was first met; -1 where it never was."""
    first_t: npt.NDArray[np.int32]
    """(V,) step of that episode; -1 where it was never met."""

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Segments:
    """S distinct segments of up to L captions."""

    texts: Sequence[str]
    """Their captions joined, repeats collapsed."""
    counts: IntArray
    """(S,) how often each occurred."""
    members: IntArray
    """(S, L) caption ids in order, filled up with -1."""

    def __len__(self) -> int:
        return len(self.texts)

    @staticmethod
    def units(vocabulary: Vocabulary) -> Segments:
        """Make each caption a segment of its own, with the same id."""
        return Segments(vocabulary.texts, vocabulary.counts, np.arange(len(vocabulary), dtype=np.int64)[:, None])


def write_captions(path: Path, number: int, position: Position, ids: IntArray) -> None:
    """Write the captions of one shard of trajectories, a row a step."""
    columns = [
        pa.array(position.episode_id),
        pa.array(position.t),
        pa.array(ids.astype(np.int32), mask=ids == NOTHING),
    ]
    write_table(_shard_path(path, number), pa.Table.from_arrays(columns, schema=CAPTIONS_SCHEMA))


def read_captions(path: Path) -> Iterator[IntArray]:
    """Yield the caption ids (N,) of one shard after the other, -1 where a step has no caption.

    Rows are those that `read_trajectories` yields for the trajectories that the captions were made of.

    Raises:
        DataError: the directory is not a caption stage's output, or a file is missing or damaged.
    """
    for number in range(int(read_manifest(path, STAGE)["counts"]["shards"])):
        table = read_table(_shard_path(path, number), CAPTIONS_SCHEMA, STAGE)
        yield table["caption"].fill_null(NOTHING).to_numpy().astype(np.int64)


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
    members = np.full((len(table), sizes.max(initial=1)), NOTHING, dtype=np.int64)
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
