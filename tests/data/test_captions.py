from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laurel.data.captions import (
    Segments,
    Vocabulary,
    read_captions,
    read_segments,
    read_vocabulary,
    write_captions,
    write_segments,
    write_vocabulary,
)
from laurel.data.directory import output_directory
from laurel.data.trajectories import Position
from laurel.errors import DataError

VOCABULARY = Vocabulary(
    ["You turn.", "Ünïcode ✓", "never met"], np.array([3, 1, 0]), np.array([0, 2, -1]), np.array([1, 0, -1], np.int32)
)
SEGMENTS = Segments(["a (x2)", "b"], np.array([2, 1]), np.array([[0, 0, 1], [1, -1, -1]]))
IDS = [np.array([0, -1, 0]), np.array([1, -1])]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    with output_directory(tmp_path / "c", stage="caption", params={}) as out:
        for number, ids in enumerate(IDS):
            t = np.arange(len(ids), dtype=np.int32)
            write_captions(out.path, number, Position(np.full(len(ids), number), t), ids)
        write_vocabulary(out.path, VOCABULARY)
        write_segments(out.path, SEGMENTS)
        out.counts = {"shards": len(IDS)}
    return tmp_path / "c"


def test_round_trip(written: Path) -> None:
    for read, ids in zip(read_captions(written), IDS, strict=True):
        assert (read.dtype, read.tolist()) == (np.int64, ids.tolist())
    vocabulary, segments = read_vocabulary(written), read_segments(written)
    assert list(vocabulary.texts) == list(VOCABULARY.texts)
    assert list(segments.texts) == list(SEGMENTS.texts)
    for name in ("counts", "first_episode", "first_t"):
        np.testing.assert_array_equal(getattr(vocabulary, name), getattr(VOCABULARY, name))
    for name in ("counts", "members"):
        np.testing.assert_array_equal(getattr(segments, name), getattr(SEGMENTS, name))
    assert (len(vocabulary), len(segments)) == (3, 2)


def test_missing_captions_are_null_on_disk(written: Path) -> None:
    assert pq.read_table(written / "captions-00000.parquet")["caption"].to_pylist() == [0, None, 0]
    table = pq.read_table(written / "vocabulary.parquet")
    assert (table["first_episode"].to_pylist(), table["first_t"].to_pylist()) == ([0, 2, None], [1, 0, None])
    assert pq.read_table(written / "segments.parquet")["captions"].to_pylist() == [[0, 0, 1], [1]]


def test_nothing_to_list(tmp_path: Path) -> None:
    none = np.zeros(0, dtype=np.int64)
    with output_directory(tmp_path / "c", stage="caption", params={}) as out:
        write_vocabulary(out.path, Vocabulary([], none, none, none.astype(np.int32)))
        write_segments(out.path, Segments([], none, np.zeros((0, 1), dtype=np.int64)))
    assert (len(read_vocabulary(tmp_path / "c")), len(read_segments(tmp_path / "c"))) == (0, 0)


def test_ids_must_be_dense(written: Path) -> None:
    table = pq.read_table(written / "vocabulary.parquet")
    pq.write_table(table.take([0, 2, 1]), written / "vocabulary.parquet")
    with pytest.raises(DataError, match=r"vocabulary\.parquet: ids are not 0, 1, 2"):
        read_vocabulary(written)


def test_damage(written: Path) -> None:
    (written / "segments.parquet").unlink()
    with pytest.raises(DataError, match=r"segments\.parquet: no such file. Run laurel caption again"):
        read_segments(written)
    pq.write_table(pa.table({"id": pa.array([0], pa.int32())}), written / "segments.parquet")
    with pytest.raises(DataError, match='column "captions" is missing; there are id'):
        read_segments(written)
    (written / "captions-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"captions-00001\.parquet: not a complete Parquet file"):
        list(read_captions(written))


def test_another_stages_directory(tmp_path: Path) -> None:
    with output_directory(tmp_path / "c", stage="collect", params={}):
        pass
    for read in (read_vocabulary, read_segments, lambda path: list(read_captions(path))):
        with pytest.raises(DataError, match='holds the output of "collect", but that of "caption"'):
            read(tmp_path / "c")
