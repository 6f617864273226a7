"""Files of preference rows: JSON lines, CSV, Parquet, and directories of Hugging Face `datasets`.

The suffix determines a file's format, the columns its layout. Fields that the Gemini layout lacks are stored beside the
file, in NAME.laurel.parquet.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from laurel.data.parquet import opened, read_beside, write_beside, write_table
from laurel.data.preference_rows import (
    EXTRAS,
    LAYOUTS,
    Layout,
    PreferenceRows,
    Row,
    RowError,
    extras_of,
    layout_of,
    with_extras,
)
from laurel.data.written import written_whole
from laurel.errors import DataError, first_line
from laurel.extras import need

SUFFIXES = (".jsonl", ".csv", ".parquet")
LONGEST_LINE = 50_000_000
"""Bytes of a line of JSON, and characters of a cell of CSV."""
COLUMNS = tuple(f"laurel_{name}" for name in EXTRAS)
_Numbered = Iterator[tuple[int, Mapping[str, Any]]]


def read_file(path: Path) -> PreferenceRows:
    """Read a file of rows, or a directory of Hugging Face `datasets`.

    Raises:
        DataError: it is missing or of another kind, or a row cannot be read; named by line and column.
        MissingPackageError: it is a directory, and `datasets` is not installed.
    """
    word = "line"
    if path.is_dir():
        numbered, word = _datasets_rows(path), "row"
    elif not path.is_file():
        raise DataError(f"{path}: there is no such file or directory.")
    elif path.suffix == ".jsonl":
        numbered = _json_rows(path)
    elif path.suffix == ".csv":
        numbered = _csv_rows(path)
    elif path.suffix == ".parquet":
        numbered, word = _parquet_rows(path), "row"
    else:
        raise DataError(f"{path}: is not a file of rows. Name one that ends with {', '.join(SUFFIXES)}.")
    return _gathered(path, numbered, word)


def _gathered(path: Path, numbered: _Numbered, word: str) -> PreferenceRows:
    layout: Layout | None = None
    rows: list[Row] = []
    columns_met: dict[str, None] = {}
    sidecar = _sidecar_rows(path)
    try:
        for number, columns in numbered:
            layout = layout or layout_of([*columns], str(path))
            try:
                extras = columns if sidecar is None else sidecar[len(rows)] if len(rows) < len(sidecar) else {}
                rows.append(with_extras(layout.read(columns), extras))
            except RowError as error:
                raise DataError(f"{path}: {word} {number}, column {error.column}: {error.says}.") from None
            columns_met |= dict.fromkeys(columns)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not text in UTF-8 (invalid at byte {error.start} of a block).") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    if layout is None:
        raise DataError(f"{path}: holds no row.")
    if sidecar is not None and len(sidecar) != len(rows):
        raise DataError(f"{_sidecar(path)}: does not belong to the rows of {path}. Remove it, or write both again.")
    known = {*layout.columns, *layout.optional, *COLUMNS, "margin", "weight"}
    return PreferenceRows.of(rows, str(path), tuple(str(name) for name in columns_met if name not in known))


def _json_rows(path: Path) -> _Numbered:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise DataError(f"{path}: line {number} is longer than {LONGEST_LINE:,} bytes.")
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except UnicodeDecodeError:
                raise DataError(f"{path}: line {number} is not text in UTF-8.") from None
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}: line {number} is not JSON ({error}).") from None
            if not isinstance(row, dict):
                raise DataError(f'{path}: line {number} is not a JSON object, such as {{"chosen": "...", ...}}.')
            yield number, row


def _csv_rows(path: Path) -> _Numbered:
    before = csv.field_size_limit(LONGEST_LINE)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            head = _distinct(path, next(reader, []))
            while True:
                number = reader.line_num + 1
                cells = next(reader, None)
                if cells is None:
                    return
                if len(cells) != len(head):
                    if not cells:
                        continue
                    raise DataError(f"{path}: line {number} has {len(cells)} columns, but the first has {len(head)}.")
                yield number, dict(zip(head, cells, strict=True))
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num} is not CSV ({error}).") from None
    finally:
        csv.field_size_limit(before)


def _parquet_rows(path: Path) -> _Numbered:
    with opened(path, None, "export") as file:
        _distinct(path, file.schema_arrow.names)
        number = 0
        for batch in file.iter_batches(8192):
            for row in batch.to_pylist():
                number += 1
                yield number, row


def _distinct(path: Path, columns: list[str]) -> list[str]:
    """Refuse a file with two columns of one name, since only one would be read."""
    duplicate = next((name for place, name in enumerate(columns) if name in columns[:place]), None)
    if duplicate is not None:
        raise DataError(f'{path}: has two columns "{duplicate}". Rename or remove one.')
    return columns


def _datasets_rows(path: Path) -> _Numbered:
    need("datasets", "A directory of Hugging Face datasets")
    from datasets import Dataset, load_from_disk
    from datasets.utils.logging import disable_progress_bar

    disable_progress_bar()
    try:
        dataset = load_from_disk(str(path))
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        reason = first_line(error)
        raise DataError(f"{path}: is not a directory that `datasets` wrote with save_to_disk ({reason}).") from None
    if not isinstance(dataset, Dataset):
        raise DataError(f"{path}: holds several splits. Name one of them: {', '.join(f'{path}/{s}' for s in dataset)}.")
    yield from enumerate(dataset, 1)


def write_file(rows: PreferenceRows, layout: Layout, path: Path) -> None:
    """Write decided rows atomically.

    Args:
        path: a file with one of SUFFIXES, or a directory, which is written in the format of Hugging Face `datasets`.

    Raises:
        DataError: a row has no preferred text, the layout cannot store it, or the file cannot be written.
        MissingPackageError: a directory is wanted, and `datasets` is not installed.
    """
    if layout is LAYOUTS["gemini"] and path.suffix != ".jsonl":
        raise DataError(f"{path}: Gemini takes JSON lines. Name a file that ends with .jsonl.")
    row_list = rows.rows()
    undecided = sum(not row.decided for row in row_list)
    if undecided:
        raise DataError(
            f"{undecided:,} of {len(row_list):,} pairs are ties or have no label, and rows of the layout {layout.name} "
            "name the better text. Leave them out with --drop-undecided, or export motif, which keeps them."
        )
    written = []
    for number, row in enumerate(row_list, 1):
        try:
            laid_out = layout.write(row)
        except RowError as error:
            raise DataError(f"pair {number}, column {error.column}: {error.says}.") from None
        written.append({**laid_out, **(extras_of(row) if layout.takes_extras else {})})
    if path.suffix not in SUFFIXES:
        need("datasets", "A directory of Hugging Face datasets")
        if path.exists() and not (path / "dataset_info.json").exists() and any(path.iterdir()):
            raise DataError(f"{path}: holds something other than a data set. Name another directory.")
    with written_whole(path) as partial:
        _write(written, partial, path.suffix)
    if not layout.takes_extras:
        with written_whole(_sidecar(path)) as partial:
            write_beside(partial, [extras_of(row) for row in row_list], [path])


def _write(rows: list[dict[str, Any]], path: Path, suffix: str) -> None:
    match suffix:
        case ".jsonl":
            with path.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        case ".csv":
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]) if rows else [])
                writer.writeheader()
                writer.writerows(rows)
        case ".parquet":
            write_table(path, pa.Table.from_pylist(rows))
        case _:
            from datasets import Dataset
            from datasets.utils.logging import disable_progress_bar

            disable_progress_bar()
            Dataset.from_list(rows).save_to_disk(str(path))


def _sidecar(path: Path) -> Path:
    return path.with_suffix(".laurel.parquet")


def _sidecar_rows(path: Path) -> list[dict[str, Any]] | None:
    if path.suffix != ".jsonl" or not _sidecar(path).is_file():
        return None
    return read_beside(_sidecar(path), [path])
