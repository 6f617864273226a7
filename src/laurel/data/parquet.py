"""Parquet files of a declared schema: the same content gives the same bytes, and reading checks the schema.

Pages have checksums, so that damage is detected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from laurel.data.digests import digest_file
from laurel.errors import DataError, first_line

EXPORT = "export"
"""Where rows may come from that another program wrote, too."""
BESIDE = b"laurel.beside"
"""Metadata of a file beside others: their digests."""


class ParquetWriter:
    """Writes tables one after the other into one file.

    Args:
        schema: of every table, including its metadata.
        plain: columns stored without a dictionary, for which building one costs more than it saves.
        group_rows: rows of a row group, so that the bytes do not depend on how the rows are divided into tables;
            None makes each table a row group.
    """

    def __init__(
        self, path: Path, schema: pa.Schema, plain: tuple[str, ...] = (), group_rows: int | None = None
    ) -> None:
        self._group_rows = group_rows
        self._waiting: list[pa.Table] = []
        self._rows = 0
        columns = [name for name in schema.names if name not in plain]
        self._stream: IO[bytes] = path.open("wb")  # Python's file, so that a full disk raises an OSError with errno
        self._writer = pq.ParquetWriter(
            self._stream,
            schema,
            compression="zstd",
            use_dictionary=columns,
            write_statistics=columns,
            write_page_checksum=True,
        )

    def write(self, table: pa.Table) -> None:
        if self._group_rows is None:
            self._write_group(table)
            return
        self._waiting.append(table)
        self._rows += table.num_rows
        if self._rows < self._group_rows:
            return
        combined, start = pa.concat_tables(self._waiting), 0
        while self._rows >= self._group_rows:
            self._write_group(combined.slice(start, self._group_rows).combine_chunks())
            start += self._group_rows
            self._rows -= self._group_rows
        self._waiting = [combined.slice(start)] if self._rows else []

    def _write_group(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        """Write the remaining rows and the footer, without which the file cannot be read."""
        if self._waiting:
            self._write_group(pa.concat_tables(self._waiting).combine_chunks())
            self._waiting = []
        self._writer.close()
        self._stream.close()

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def abandon(self) -> None:
        """Close an unfinished file without writing any more."""
        self._writer.is_open = False
        self._stream.close()


def write_table(path: Path, table: pa.Table) -> None:
    """Write one table as a file."""
    with ParquetWriter(path, table.schema) as writer:
        writer.write(table)


def write_beside(path: Path, rows: list[dict[str, Any]], files: Sequence[Path]) -> None:
    """Write further fields of the rows that other files hold, in their order, with the digests of these files."""
    table = pa.Table.from_pylist(rows)
    write_table(path, table.replace_schema_metadata({BESIDE: _digests(files)}))


def read_beside(path: Path, files: Sequence[Path]) -> list[dict[str, Any]]:
    """Read what `write_beside` wrote.

    Raises:
        DataError: it is damaged, or the files have changed since: their rows may have another order.
    """
    with opened(path, None, "export") as file:
        noted = (file.schema_arrow.metadata or {}).get(BESIDE)
        rows: list[dict[str, Any]] = file.read().to_pylist()
    if noted is not None and noted != _digests(files):
        raise DataError(f"{path}: does not belong to the rows of {files[0]}. Remove it, or write both again.")
    return rows


def _digests(files: Sequence[Path]) -> bytes:
    return " ".join(map(digest_file, files)).encode()


def read_table(path: Path, schema: pa.Schema, stage: str) -> pa.Table:
    """Read a whole file.

    Args:
        schema: the required columns; others are ignored.
        stage: the stage that writes such files, for the error.

    Raises:
        DataError: the file is missing, damaged or of another schema.
    """
    with opened(path, schema, stage) as file, readable(path, stage):
        table = file.read(columns=schema.names).select(schema.names)
    for column, field in zip(table.columns, schema, strict=True):
        _check_nulls(path, column, field, stage)
    return table


@contextmanager
def opened(path: Path, schema: pa.Schema | None, stage: str) -> Iterator[pq.ParquetFile]:
    """Open a file and check its schema, if one is given; errors as `read_table`."""
    with readable(path, stage):
        file = pq.ParquetFile(path, page_checksum_verification=True)
    with file:
        if schema is not None:
            with readable(path, stage):
                actual = file.schema_arrow
            _check_schema(path, actual, schema, stage)
        yield file


@contextmanager
def readable(path: Path, stage: str) -> Iterator[None]:
    """Convert exceptions from reading a missing or damaged file to DataError."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Run laurel {stage} again.") from None
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = first_line(error)
        advice = f"Run laurel {stage} again" if stage != EXPORT else "Write it again; laurel export does, if it made it"
        raise DataError(f"{path}: not a complete Parquet file ({reason}). {advice}.") from None


def _check_schema(path: Path, actual: pa.Schema, expected: pa.Schema, stage: str) -> None:
    missing = [name for name in expected.names if name not in actual.names]
    if missing:
        raise DataError(
            f'{path}: column "{missing[0]}" is missing; there are {", ".join(actual.names) or "none"}. '
            f"Run laurel {stage} again."
        )
    for field in expected:
        kind = actual.field(field.name).type
        if kind != field.type:
            raise DataError(
                f'{path}: column "{field.name}" holds {kind}, but must hold {field.type}. Run laurel {stage} again.'
            )


def _check_nulls(path: Path, column: pa.Array | pa.ChunkedArray, field: pa.Field, stage: str) -> None:
    if column.null_count and not field.nullable:
        raise DataError(f'{path}: column "{field.name}" has empty entries. Run laurel {stage} again.')
