import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.data.directory import output_directory
from laurel.data.manifest import read_manifest
from laurel.data.trajectories import (
    Rows,
    TrajectoryWriter,
    read_metadata,
    read_trajectories,
    trajectory_schema,
)
from laurel.errors import DataError


def make_rows(lengths: list[int], dtype: Any = np.uint8, size: int = 3, action_size: int | None = None) -> Rows:
    """Rows of episodes of so many steps, every number different."""
    n = sum(lengths) + len(lengths)
    ends = np.cumsum(np.array(lengths) + 1) - 1
    final = np.zeros(n, dtype=np.bool_)
    final[ends] = True
    rng = np.random.default_rng(n)
    terminated = np.zeros(n, dtype=np.bool_)
    terminated[ends - 1] = rng.random(len(ends)) < 0.5
    terminated[ends] = True  # means nothing there
    action = rng.integers(0, 7, n) if action_size is None else rng.random((n, action_size), dtype=np.float32)
    return Rows(
        observation=(rng.random((n, size)) * 250).astype(dtype),
        action=action,
        reward=rng.random(n, dtype=np.float32),
        terminated=terminated,
        truncated=final | (np.roll(final, -1) & ~terminated & (rng.random(n) < 0.5)),
        log_prob=np.where(rng.random(n) < 0.2, np.nan, rng.random(n)).astype(np.float32),
        value=np.where(rng.random(n) < 0.2, np.nan, rng.random(n)).astype(np.float32),
        policy=rng.integers(0, 3, n).astype(np.int8),
        final=final,
    )


def write(path: Path, parts: list[Rows], shard_steps: int = 10_000) -> Path:
    first = parts[0]
    schema = trajectory_schema(first.observation.dtype, first.observation.shape[1], *first.action.shape[1:])
    with output_directory(path, stage="collect", params={}) as out:
        with TrajectoryWriter(out.path, schema, {"env": {"id": "X"}}, shard_steps) as writer:
            for part in parts:
                writer.write(part)
        out.counts = {"shards": writer.shards, "episodes": writer.episodes}
    return path


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return write(tmp_path / "t", [make_rows([4, 1, 7])])


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4),
    dtype=st.sampled_from(["uint8", "int8", "int32", "float32", "bool"]),
    size=st.integers(1, 5),
    action_size=st.sampled_from([None, 1, 3]),
    shard_steps=st.integers(1, 30),
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[list[int]],
    dtype: str,
    size: int,
    action_size: int | None,
    shard_steps: int,
) -> None:
    """What is read is what was written, whatever the shards and however it came."""
    path = tmp_path_factory.mktemp("round") / "t"
    rows = [make_rows(lengths, np.dtype(dtype), size, action_size) for lengths in parts]
    write(path, rows, shard_steps)
    batches = list(read_trajectories(path))
    assert len(batches) == read_manifest(path)["counts"]["shards"]

    whole = Rows.concatenate(rows)
    step = np.flatnonzero(~whole.final)
    lengths = np.array([length for part in parts for length in part])
    expected = {
        "observation": whole.observation[step],
        "action": whole.action[step],
        "reward": whole.reward[step],
        "next_observation": whole.observation[step + 1],
        "terminated": whole.terminated[step],
        "truncated": whole.truncated[step],
    }
    for name, values in expected.items():
        read = np.concatenate([getattr(transitions, name) for transitions, _ in batches])
        assert read.dtype == values.dtype
        np.testing.assert_array_equal(read, values)
    episode = np.concatenate([position.episode_id for _, position in batches])
    np.testing.assert_array_equal(episode, np.repeat(np.arange(len(lengths)), lengths))
    t = np.concatenate([position.t for _, position in batches])
    np.testing.assert_array_equal(t, np.concatenate([np.arange(length) for length in lengths]))

    # the columns that no transition holds
    table = pa.concat_tables([pq.read_table(file) for file in sorted(path.glob("shard-*"))])
    for name in ("log_prob", "value"):
        column = table[name].to_numpy()
        assert table[name].null_count == (np.isnan(getattr(whole, name)) | whole.final).sum()
        np.testing.assert_array_equal(column[step], getattr(whole, name)[step])
    np.testing.assert_array_equal(table["policy"].to_numpy(), whole.policy)
    np.testing.assert_array_equal(table["reward"].is_null().to_numpy(), whole.final)
    beside_final = table.filter(table["reward"].is_null())
    for name in ("terminated", "truncated"):
        assert not beside_final[name].to_numpy().any()
    action = beside_final["action"].combine_chunks()
    assert (action if action_size is None else action.flatten()).null_count == len(lengths) * (action_size or 1)


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=12), shard_steps=st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_episodes_never_span_shards(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], shard_steps: int
) -> None:
    rows = make_rows(lengths)
    ends = np.flatnonzero(rows.final) + 1
    parts = [rows[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    path = write(tmp_path_factory.mktemp("span") / "t", parts, shard_steps)
    files = sorted(path.glob("shard-*"))
    sizes = []
    for file in files:
        table = pq.read_table(file)
        assert table["t"][0].as_py() == 0
        assert table["reward"][-1].as_py() is None
        sizes.append((len(table), 1 + lengths[table["episode_id"][-1].as_py()]))
    # a shard ends with the first episode that fills it
    assert all(size >= shard_steps for size, _ in sizes[:-1])
    assert all(size - last < shard_steps for size, last in sizes)


def test_bytes_do_not_depend_on_how_rows_are_batched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.data.trajectories.GROUP_BYTES", 67 * 5)
    rows = make_rows([3, 5, 2, 8, 1, 4])
    ends = np.flatnonzero(rows.final) + 1
    single = [rows[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    digests = {
        read_manifest(write(tmp_path / str(i), parts, 12))["digest"]
        for i, parts in enumerate([[rows], single, [Rows.concatenate(single[:4]), *single[4:]]])
    }
    assert len(digests) == 1


def test_memory_limits_row_groups_and_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.data.trajectories.GROUP_BYTES", 67 * 4)
    monkeypatch.setattr("laurel.data.trajectories.SHARD_BYTES", 67 * 10)
    path = write(tmp_path / "t", [make_rows([2] * 8)])
    files = sorted(path.glob("shard-*"))
    assert [pq.ParquetFile(file).metadata.num_rows for file in files] == [12, 12]
    metadata = pq.ParquetFile(files[0]).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [4, 4, 4]
    assert sum(len(position.t) for _, position in read_trajectories(path)) == 16


def test_metadata(written: Path) -> None:
    assert read_metadata(written) == {"env": {"id": "X"}}


def test_rows_that_end_in_the_middle_of_an_episode_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="in the middle of an episode"):
        write(tmp_path / "t", [make_rows([3])[:-1]])


def shard(path: Path) -> Path:
    return path / "shard-00000.parquet"


def test_truncated_file(written: Path) -> None:
    content = shard(written).read_bytes()
    for size in (0, 3, 100, len(content) // 2, len(content) - 1):
        shard(written).write_bytes(content[:size])
        with pytest.raises(DataError, match=r"shard-00000\.parquet: .*Run laurel collect again"):
            list(read_trajectories(written))


def test_garbled_pages_never_pass_for_data(written: Path) -> None:
    good = shard(written).read_bytes()
    (reference, _), *_ = read_trajectories(written)
    footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    found = 0
    for place in range(4, footer, 3):
        shard(written).write_bytes(good[:place] + bytes([good[place] ^ 0x15]) + good[place + 1 :])
        try:
            (transitions, _), *_ = read_trajectories(written)
        except DataError as error:
            found += "shard-00000" in str(error)
        else:
            for name in transitions.__slots__:
                np.testing.assert_array_equal(getattr(transitions, name), getattr(reference, name))
    assert found > 100


def test_garbled_footers_do_not_crash(written: Path) -> None:
    good = shard(written).read_bytes()
    footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    for place in range(footer, len(good), 5):
        shard(written).write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        with suppress(DataError):
            list(read_trajectories(written))


def test_missing_shard(tmp_path: Path) -> None:
    path = write(tmp_path / "t", [make_rows([4, 4, 4])], 5)
    (path / "shard-00001.parquet").unlink()
    with pytest.raises(DataError, match=r"shard-00001\.parquet: no such file. Run laurel collect again"):
        list(read_trajectories(path))


@pytest.mark.parametrize("column", ["observation", "action", "reward", "t", "episode_id"])
def test_missing_column(written: Path, column: str) -> None:
    table = pq.read_table(shard(written))
    pq.write_table(table.drop_columns([column]), shard(written))
    with pytest.raises(DataError, match=r"shard-00000\.parquet: .*column"):
        list(read_trajectories(written))


def test_column_of_another_type(written: Path) -> None:
    table = pq.read_table(shard(written))
    changed = table.set_column(table.schema.get_field_index("t"), "t", table["t"].cast(pa.float64()))
    pq.write_table(changed, shard(written))
    with pytest.raises(DataError, match='column "t" holds double, but must hold int32'):
        list(read_trajectories(written))


def test_empty_entries(written: Path) -> None:
    table = pq.read_table(shard(written))
    changed = table.set_column(table.schema.get_field_index("t"), "t", pa.nulls(len(table), pa.int32()))
    pq.write_table(changed, shard(written))
    with pytest.raises(DataError, match='column "t" has empty entries'):
        list(read_trajectories(written))


@pytest.mark.parametrize("rows", [[1, 0, *range(2, 15)], list(range(14)), [0, *range(2, 15)], []])
def test_rows_that_are_not_whole_episodes(written: Path, rows: list[int]) -> None:
    table = pq.read_table(shard(written))
    pq.write_table(table.take(pa.array(rows, pa.int64())), shard(written))
    with pytest.raises(DataError, match=r"shard-00000\.parquet: (its rows are not whole episodes|holds no step)"):
        list(read_trajectories(written))


def test_foreign_files(written: Path) -> None:
    shard(written).write_text("episode_id,t\n0,0\n")
    with pytest.raises(DataError, match="not a complete Parquet file"):
        list(read_trajectories(written))
    pq.write_table(pa.table({"x": [1]}), shard(written))
    with pytest.raises(DataError, match="no column of observations"):
        list(read_trajectories(written))
    with pytest.raises(DataError, match="no Laurel metadata"):
        read_metadata(written)


def test_another_stages_directory(written: Path) -> None:
    manifest = json.loads((written / "manifest.json").read_text())
    (written / "manifest.json").write_text(json.dumps({**manifest, "stage": "caption"}))
    with pytest.raises(DataError, match='holds the output of "caption"'):
        list(read_trajectories(written))
