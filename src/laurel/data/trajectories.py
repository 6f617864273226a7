"""Trajectories as Parquet shards, a row per step.

An episode of T steps is T + 1 consecutive rows of one shard; the last row has the final observation and no action or
reward. So the transition of row i ends in the observation of row i + 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.data.manifest import MANIFEST, read_manifest
from laurel.data.parquet import ParquetWriter, opened, read_table, readable
from laurel.envs.base import Transitions
from laurel.errors import DataError

STAGE = "collect"
METADATA = b"laurel"
GROUP_BYTES = 16 * 2**20
"""Buffer size at which rows are written."""
SHARD_BYTES = 256 * 2**20
"""Size in memory after which a new shard begins, however few rows it has: readers hold one shard at a time."""


INFO = "info_"
"""Prefix of the columns with fields of the environment's `info`."""


def trajectory_schema(
    dtype: np.dtype[Any], size: int, action_size: int | None = None, info: Mapping[str, Any] | None = None
) -> pa.Schema:
    """Return the columns of a shard.

    Args:
        size: D, length of a packed observation.
        action_size: A for continuous actions, None for discrete ones.
        info: name -> dtype, of the fields of the environment's `info` that are kept.
    """
    observation = pa.list_(pa.field("element", pa.from_numpy_dtype(dtype), nullable=False), size)
    # Parquet has no empty entry of a list of fixed size: if there is no action, its elements are null
    action = pa.int64() if action_size is None else pa.list_(pa.field("element", pa.float32()), action_size)
    return pa.schema(
        [
            pa.field("episode_id", pa.int64(), nullable=False),
            pa.field("t", pa.int32(), nullable=False),
            pa.field("observation", observation, nullable=False),
            pa.field("action", action, nullable=action_size is None),
            pa.field("reward", pa.float32()),
            pa.field("terminated", pa.bool_(), nullable=False),
            pa.field("truncated", pa.bool_(), nullable=False),
            pa.field("log_prob", pa.float32()),
            pa.field("value", pa.float32()),
            pa.field("policy", pa.int8(), nullable=False),
            *(pa.field(f"{INFO}{name}", pa.from_numpy_dtype(np.dtype(kind))) for name, kind in (info or {}).items()),
        ]
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """Steps and final observations in order; the other columns of a final observation have no meaning."""

    observation: Array
    """(N, D) packed."""
    action: Array
    """(N,) int64 or (N, A) float32, within its bounds."""
    reward: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    log_prob: FloatArray
    """(N,) log-probability under the policy that acted, of a continuous action as drawn, maybe beyond its bounds; NaN
    if unknown.
    """
    value: FloatArray
    """(N,) value estimate; NaN if the policy has none."""
    policy: npt.NDArray[np.int8]
    """(N,) index of the policy that acted."""
    final: BoolArray
    """(N,) True if the row is an episode's final observation."""
    info: Mapping[str, Array] = field(default_factory=dict)
    """Name -> (N,)."""

    def __len__(self) -> int:
        return len(self.final)

    def __getitem__(self, key: Any) -> Rows:
        return self._mapped(lambda column: column[key])

    def copy(self) -> Rows:
        return self._mapped(np.copy)

    def _mapped(self, change: Callable[[Array], Array]) -> Rows:
        """Apply a function to every column."""
        columns: dict[str, Any] = {name: change(getattr(self, name)) for name in self.__slots__[:-1]}
        return Rows(**columns, info={name: change(column) for name, column in self.info.items()})

    @staticmethod
    def concatenate(parts: list[Rows]) -> Rows:
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in Rows.__slots__[:-1]
        }
        info = {name: np.concatenate([part.info[name] for part in parts]) for name in parts[0].info}
        return Rows(**columns, info=info)


class TrajectoryWriter:
    """Writes whole episodes into shards and numbers them from 0; memory holds one row group.

    Args:
        metadata: JSON values stored in every shard.
        shard_steps: rows after which, at the next end of an episode, a new shard begins.
    """

    def __init__(self, path: Path, schema: pa.Schema, metadata: Mapping[str, Any], shard_steps: int) -> None:
        self.episodes = 0
        self.shards = 0
        self._path = path
        self._schema = schema.with_metadata({METADATA: json.dumps(metadata, sort_keys=True).encode()})
        self._shard_steps = max(1, min(shard_steps, SHARD_BYTES // _row_bytes(schema)))
        self._group_rows = max(1, min(shard_steps, GROUP_BYTES // _row_bytes(schema)))
        self._shard_rows = 0
        self._writer: ParquetWriter | None = None

    def write(self, rows: Rows) -> None:
        """Add whole episodes: the last row is a final observation."""
        if not rows.final[-1]:
            raise ValueError("rows end in the middle of an episode")
        ends = np.flatnonzero(rows.final) + 1
        start = 0
        while start < len(rows):
            target = start + self._shard_steps - self._shard_rows
            first = int(np.searchsorted(ends, target))
            stop = int(ends[min(first, len(ends) - 1)])
            self._append(rows[start:stop])
            if self._shard_rows >= self._shard_steps:
                self._end_shard()
            start = stop

    def close(self) -> None:
        if self._shard_rows:
            self._end_shard()

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.close()
        elif self._writer is not None:
            self._writer.abandon()

    def _append(self, rows: Rows) -> None:
        before: IntArray = np.cumsum(rows.final) - rows.final  # number of episodes that ended before each row
        begins = np.concatenate([[0], np.flatnonzero(rows.final)[:-1] + 1])
        t: IntArray = np.arange(len(rows)) - begins[before]
        if self._writer is None:
            place = shard_path(self._path, self.shards)
            self._writer = ParquetWriter(place, self._schema, plain=("observation",), group_rows=self._group_rows)
        self._writer.write(_table(rows, before + self.episodes, t, self._schema))
        self.episodes += len(begins)
        self._shard_rows += len(rows)

    def _end_shard(self) -> None:
        assert self._writer is not None
        self._writer.close()
        self._writer = None
        self._shard_rows = 0
        self.shards += 1


def join_trajectories(parts: Sequence[tuple[Path, Mapping[str, Any]]], path: Path) -> dict[str, int]:
    """Collect the shards of several parts in one directory with renumbered shards and episodes; return the counts.

    Args:
        parts: directory and counts of each, in order.

    Raises:
        DataError: a shard is missing or damaged.
    """
    totals = {key: sum(int(counts[key]) for _, counts in parts) for key in parts[0][1]}
    number = episodes = 0
    for place, counts in parts:
        for old in range(int(counts["shards"])):
            _copy_shard(shard_path(place, old), shard_path(path, number), episodes)
            number += 1
        episodes += int(counts["episodes"])
    return totals


def _copy_shard(source: Path, target: Path, earlier: int) -> None:
    """Copy a shard; its episodes are numbered after `earlier` ones."""
    with opened(source, None, STAGE) as file:
        schema = file.schema_arrow
        with ParquetWriter(target, schema, plain=("observation",)) as writer:
            for group in range(file.num_row_groups):
                with readable(source, STAGE):
                    table = file.read_row_group(group)
                episode_id = pc.add(table["episode_id"], earlier)
                writer.write(table.set_column(0, schema.field("episode_id"), episode_id))


class Position(NamedTuple):
    """Episode and step of N transitions."""

    episode_id: IntArray
    t: npt.NDArray[np.int32]


def shard_path(path: Path, number: int) -> Path:
    """Return where a shard lies in a directory."""
    return path / f"shard-{number:05d}.parquet"


def count_of(path: Path, manifest: Mapping[str, Any], key: str) -> int:
    """Return a count in the manifest of the collect stage's output.

    Raises:
        DataError: the manifest lacks it.
    """
    count = manifest.get("counts", {}).get(key)
    if not isinstance(count, int):
        raise DataError(f"{path / MANIFEST}: lacks the number of {key}. Run laurel {STAGE} again.")
    return count


def trajectory_shards(path: Path) -> list[Path]:
    """List the shards of the collect stage's output.

    Raises:
        DataError: it is another directory, its manifest lacks their number, or a shard is missing.
    """
    shards = [shard_path(path, number) for number in range(count_of(path, read_manifest(path, STAGE), "shards"))]
    for shard in shards:
        if not shard.is_file():
            raise DataError(f"{shard}: no such file. Run laurel {STAGE} again.")
    return shards


def read_trajectories(path: Path) -> Iterator[tuple[Transitions, Position]]:
    """Yield the transitions of one shard after the other, in the order of the rows.

    Raises:
        DataError: a shard is missing, damaged or of another schema.
    """
    for shard in trajectory_shards(path):
        yield read_shard(shard)


def read_episodes(path: Path, limit: int) -> tuple[Transitions, IntArray]:
    """Return the first episodes, up to `limit` steps in total, and the episode of each step (S,), from 0.

    Includes episodes truncated by the end of collection. The first episode is returned even if it is longer; only the
    first shard is read.

    Raises:
        DataError: as `read_trajectories`.
    """
    transitions, position = next(read_trajectories(path))
    ends = np.flatnonzero(np.diff(position.episode_id, append=-1))
    last = ends[ends < limit][-1:] if ends[0] < limit else ends[:1]
    steps = transitions[: int(last[0]) + 1]
    _, episode = np.unique(position.episode_id[: len(steps)], return_inverse=True)
    return steps, episode


def finished(steps: Transitions, episode: IntArray) -> BoolArray:
    """Return which episodes have ended (E,), in the order of their numbers; the others were cut off by collection.

    Args:
        steps: S steps of whole episodes, in order.
        episode: (S,) their episodes.
    """
    last = np.flatnonzero(np.diff(episode, append=-1))
    return steps.terminated[last] | steps.truncated[last]


def read_shard(shard: Path) -> tuple[Transitions, Position]:
    """Pair each step of a shard with the next row; errors as in `read_trajectories`."""
    table = read_table(shard, _schema_of(shard), STAGE).combine_chunks()
    if len(table) == 0:
        raise DataError(f"{shard}: holds no step. Run laurel {STAGE} again.")
    columns = {name: table[name].chunk(0) for name in table.column_names}
    final = columns["reward"].is_null().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(~final)
    next_rows = rows + 1
    episode_id, t = columns["episode_id"].to_numpy(), columns["t"].to_numpy()
    complete = final[-1] and (episode_id[next_rows] == episode_id[rows]).all() and (t[next_rows] == t[rows] + 1).all()
    if not complete:
        raise DataError(f"{shard}: its rows are not whole episodes. Run laurel {STAGE} again.")
    observation = _matrix(columns["observation"])
    continuous = pa.types.is_fixed_size_list(columns["action"].type)
    action = _matrix(columns["action"]) if continuous else columns["action"].fill_null(0).to_numpy()
    transitions = Transitions(
        observation[rows],
        action[rows],
        columns["reward"].to_numpy(zero_copy_only=False)[rows],
        observation[next_rows],
        columns["terminated"].to_numpy(zero_copy_only=False)[rows],
        columns["truncated"].to_numpy(zero_copy_only=False)[rows],
        {
            name.removeprefix(INFO): column.take(pa.array(rows)).to_numpy(zero_copy_only=False)
            for name, column in columns.items()
            if name.startswith(INFO)
        },
    )
    return transitions, Position(episode_id[rows], t[rows])


def read_metadata(path: Path) -> dict[str, Any]:
    """Read the collect stage's metadata: environment, seed, policies, observation layout."""
    shard = trajectory_shards(path)[0]
    with opened(shard, None, STAGE) as file:
        content = (file.schema_arrow.metadata or {}).get(METADATA)
    if content is None:
        raise DataError(f"{shard}: has no Laurel metadata. Run laurel {STAGE} again.")
    return json.loads(content)


def _matrix(column: pa.FixedSizeListArray) -> Array:
    """Return a column of lists (N,) as an array (N, D); null elements become NaN."""
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)


def _table(rows: Rows, episode_id: IntArray, t: IntArray, schema: pa.Schema) -> pa.Table:
    final = rows.final
    if rows.action.ndim == 2:
        size = rows.action.shape[1]
        elements = pa.array(rows.action.reshape(-1), mask=np.repeat(final, size))
        action = pa.FixedSizeListArray.from_arrays(elements, type=schema.field("action").type)
    else:
        action = pa.array(rows.action, mask=final)
    observation = pa.FixedSizeListArray.from_arrays(
        pa.array(rows.observation.reshape(-1)), type=schema.field("observation").type
    )
    columns = [
        pa.array(episode_id, pa.int64()),
        pa.array(t.astype(np.int32)),
        observation,
        action,
        pa.array(rows.reward, mask=final),
        pa.array(rows.terminated & ~final),
        pa.array(rows.truncated & ~final),
        pa.array(rows.log_prob, mask=final | np.isnan(rows.log_prob)),
        pa.array(rows.value, mask=final | np.isnan(rows.value)),
        pa.array(rows.policy),
        *(pa.array(column, mask=final) for column in rows.info.values()),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _schema_of(shard: Path) -> pa.Schema:
    """Return the schema that a shard should have, given its observations and actions."""
    with opened(shard, None, STAGE) as file:
        schema = file.schema_arrow
    types = {name: schema.field(name).type for name in ("observation", "action") if name in schema.names}
    observation, action = types.get("observation"), types.get("action")
    if observation is None or not pa.types.is_fixed_size_list(observation):
        raise DataError(f"{shard}: has no column of observations. Run laurel {STAGE} again.")
    action_size = action.list_size if action is not None and pa.types.is_fixed_size_list(action) else None
    dtype = np.dtype(observation.value_type.to_pandas_dtype())
    info = {part.name: part.type.to_pandas_dtype() for part in schema if part.name.startswith(INFO)}
    return trajectory_schema(
        dtype, observation.list_size, action_size, {name.removeprefix(INFO): kind for name, kind in info.items()}
    )


def _row_bytes(schema: pa.Schema) -> int:
    """Estimate the memory of a row."""
    kind = schema.field("observation").type
    return int(kind.list_size * kind.value_type.bit_width // 8 + 64)
