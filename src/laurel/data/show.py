"""Describe a stage's output for a terminal: its manifest, files, schemas and sample rows.

The description depends on the file type (Parquet, safetensors, JSON); captions with rewards, the quality of labels and
agents' curves have separate tables.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open

from laurel.data.digests import files_in
from laurel.data.json_file import read_json
from laurel.data.manifest import MANIFEST, RUN, checked_manifest
from laurel.data.missing import listed, times
from laurel.data.parquet import opened, readable
from laurel.data.quality import QUALITY, figures
from laurel.data.sample import SAMPLE
from laurel.data.usage import bounded, is_remark
from laurel.errors import DataError

WIDTH = 100
SAMPLES = 5
"""Rows shown of a table; of one with texts, four times as many."""
CAPTIONS = 12
"""Captions shown at either end of the list by reward."""
SAMPLE_COLUMNS = ("pair", "status", "p_first", "first", "second", "answer")
"""Columns shown of the sample of labelled pairs, which has too many for a line."""
COLUMNS = 14
"""Columns shown of a table."""
VALUES = 40
"""Values shown of a JSON file."""

_Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class _Group:
    """Files that differ in numbers only, such as shards."""

    name: str
    """Its name; for several files, `*` replaces the part that differs."""
    files: tuple[Path, ...]

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)


def describe_directory(path: Path) -> str:
    """Describe a stage's output in lines of at most WIDTH columns.

    Raises:
        DataError: the directory is not a stage's output, or a file in it is damaged.
    """
    _check_is_output(path)
    manifest = checked_manifest(path)
    stage = manifest["stage"]
    groups = _groups(path)
    agents = _agent_rows(path, stage)
    manifest["counts"] = _counts(manifest, agents)
    lines = [f"{path}: output of laurel {stage}", "", *_manifest_lines(manifest)]
    rows = [[group.name, len(group.files), _row_count(group, stage), _size(group.bytes)] for group in groups]
    lines += ["", *_table(["file", "files", "rows", "size"], rows), *_agent_lines(agents)]
    shown = set()
    for group in groups:
        if "/" in group.name:  # one agent's files represent all
            if group.files[0].name in shown:
                continue
            shown.add(group.files[0].name)
        match group.files[0].suffix:
            case ".parquet":
                body = _parquet_lines(group.files[0], stage)
            case ".safetensors":
                body = _safetensors_lines(group.files[0], stage)
            case ".json" if group.name == QUALITY and stage in ("annotate", "annotate-refused"):
                body = _quality_lines(group.files[0])
            case ".json":
                body = _json_lines(group.files[0])
            case _:
                continue
        lines += ["", group.name, *body]
    return "\n".join(line.rstrip() for line in lines)


def _check_is_output(path: Path) -> None:
    """Refuse anything that is not the complete output of a stage, and say what can be shown instead."""
    if path.is_file():
        raise DataError(
            f"{path}: is a file, but laurel show needs a directory that a stage wrote, such as data/captions. laurel "
            f"params lists parameters."
        )
    if path.is_dir() and not (path / MANIFEST).exists():
        output = next((parent for parent in path.absolute().parents if (parent / MANIFEST).exists()), None)
        if output is not None:
            root = path.parents[path.absolute().parents.index(output)] if not path.is_absolute() else output
            raise DataError(
                f"{path}: is a part of a stage's output, which can only be shown as a whole: laurel show {root}"
            )
        raise DataError(
            f"{path}: is not the output of a stage, which has a {MANIFEST}. laurel show accepts data/trajectories, "
            "data/captions, data/preferences, data/reward, data/agents and reports."
        )


def _groups(path: Path) -> list[_Group]:
    by_pattern: dict[str, list[Path]] = {}
    for file in (file for file in files_in(path) if file != path / MANIFEST):
        name = file.relative_to(path).as_posix()
        by_pattern.setdefault(re.sub(r"\d+", "*", name), []).append(file)
    return [
        _Group(name if len(files) > 1 else files[0].relative_to(path).as_posix(), tuple(files))
        for name, files in by_pattern.items()
    ]


def _manifest_lines(manifest: dict[str, Any]) -> list[str]:
    pairs = [("version", manifest.get("version")), ("digest", str(manifest["digest"])[:12])]
    pairs += [(f"input {name}", str(digest)[:12]) for name, digest in manifest.get("inputs", {}).items()]
    pairs += list(manifest.get("counts", {}).items())
    usage = manifest.get("usage", {})
    pairs += [
        (f"used {name}", bounded(name, usage, "unknown" if amount is None else _cell(amount)))
        for name, amount in usage.items()
        if not is_remark(name)
    ]
    seconds = manifest["seconds"]
    pairs += [
        ("seconds", "unknown" if seconds is None else seconds),
        ("mlflow run", manifest["mlflow_run_id"] or "none"),
    ]
    lines = [f"  {key:<22} {_fit(_cell(value), WIDTH - 25)}" for key, value in pairs]
    for note in [*manifest.get("notes", []), *manifest["run_notes"]]:
        lines += textwrap.wrap(f"note: {note}", WIDTH - 2, initial_indent="  ", subsequent_indent="        ")
    return lines


def _counts(manifest: dict[str, Any], agents: _Rows) -> dict[str, Any]:
    """Return the counts, with a range for steps_each if agents differ: the manifest has the most of any arm."""
    counts: dict[str, Any] = manifest.get("counts", {})
    reached = [row[2] for row in agents if row[2] is not None]
    if "steps_each" in counts and reached and min(reached) < max(reached):
        return {**counts, "steps_each": f"{min(reached):,} to {max(reached):,}"}
    return counts


def _agent_rows(path: Path, stage: str) -> list[list[Any]]:
    """Return the end of each agent's learning curve."""
    rows = []
    for curve in sorted(path.glob("*/seed-*/curve.parquet")):
        with opened(curve, None, stage) as file, readable(curve, stage):
            table = file.read()
        last = table.slice(max(0, len(table) - 1)).to_pylist()[0] if len(table) else {}
        measured = [last.get(key) for key in ("env_steps", "return_mean", "success_rate", "shaped_reward")]
        run = curve.with_name(RUN)
        measured.append(read_json(run)["seconds"] if run.exists() else None)
        rows.append([curve.parent.parent.name, curve.parent.name, *measured])
    return rows


def _agent_lines(rows: _Rows) -> list[str]:
    """Show the ends of learning curves."""
    headers = ["arm", "seed", "env steps", "return", "success", "shaped reward a step", "seconds"]
    title = "agents, at the end of their learning curves (return and success: of up to 100 of the last episodes)"
    return ["", title, *_table(headers, rows)] if rows else []


def _row_count(group: _Group, stage: str) -> int | None:
    if group.files[0].suffix != ".parquet":
        return None
    rows = 0
    for path in group.files:
        with opened(path, None, stage) as file:
            rows += file.metadata.num_rows
    return rows


def _parquet_lines(path: Path, stage: str) -> list[str]:
    with opened(path, None, stage) as file:
        schema = file.schema_arrow
        columns = ", ".join(f"{field.name} {_type(field.type)}" for field in schema)
        lines = textwrap.wrap(columns, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")
        with readable(path, stage):
            if {"text", "reward"} <= set(schema.names):
                return [*lines, *_reward_lines(file)]
            size = SAMPLES * 4 if {"text", "answer"} & set(schema.names) else SAMPLES
            names = [name for name in SAMPLE_COLUMNS if name in schema.names] if path.name == SAMPLE else schema.names
            batch = next(file.iter_batches(batch_size=size, columns=names), None)
    rows = [] if batch is None else [list(row.values()) for row in batch.select(names).to_pylist()]
    rest = file.metadata.num_rows - len(rows)
    return [*lines, *_table(names, rows), *([f"  and {rest:,} more"] if rest else [])]


def _reward_lines(file: pq.ParquetFile) -> list[str]:
    """Show captions from the best to the worst, the middle left out."""
    table = file.read().sort_by([("reward", "descending")])
    columns = [name for name in ("reward", "spread", "count", "id", "text") if name in table.column_names]
    rows = [[row[name] for name in columns] for row in table.select(columns).to_pylist()]
    if len(rows) <= 2 * CAPTIONS:
        return _table(columns, rows)
    shown = _table(columns, rows[:CAPTIONS] + rows[-CAPTIONS:])
    middle = f"  ... {len(rows) - 2 * CAPTIONS:,} more"
    return [*shown[: -CAPTIONS or None], middle, *shown[-CAPTIONS:]]


def _safetensors_lines(path: Path, stage: str) -> list[str]:
    try:
        with safe_open(path, framework="numpy") as file:
            parts = [(name, file.get_slice(name)) for name in file.keys()]  # noqa: SIM118  not a mapping
            rows = [[name, part.get_dtype(), part.get_shape()] for name, part in parts]
    except (SafetensorError, OSError):
        raise DataError(f"{path}: not a complete safetensors file. Run laurel {stage} again.") from None
    numbers = sum(math.prod(shape) for _, _, shape in rows)
    return [*_table(["tensor", "dtype", "shape"], rows), f"  {numbers:,} numbers in all"]


def _json_lines(path: Path) -> list[str]:
    values = list(_leaves(read_json(path), ""))
    rows = [[key, value] for key, value in values[:VALUES]]
    rest = len(values) - len(rows)
    return [*_table(["key", "value"], rows), *([f"  and {rest:,} more"] if rest else [])]


def _quality_lines(path: Path) -> list[str]:
    """Show how far labels can be trusted, and each annotator's share if there are several."""
    quality = read_json(path)
    headers = ["measure", "value", "95% interval", "of", "compare"]
    lines: list[str] = []
    for part in (quality, *quality.get("by", [])):
        lines += [f"  {_fit(part['annotator'], WIDTH - 2).rstrip()}"] if "annotator" in part else []
        shown = figures(part)
        rows = [[f.measure, f.shown, f.shown_interval or None, f.of, f.remark] for f in shown]
        lines += [*_table(headers, rows), *(f"  {f.gate}: {f.measure}" for f in shown if f.gate)]
    for entry in listed(quality.get("missing", ())):
        annotator = f"{entry.annotator}: " if "by" in quality else ""
        line = f"{annotator}{entry.what}, {times(entry.answers)}: {entry.reason}"
        lines += textwrap.wrap(line, WIDTH - 2, initial_indent="  ", subsequent_indent="    ")
    return lines


def _leaves(content: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    match content:
        case dict() if content:
            for key, value in content.items():
                yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
        case list() if any(isinstance(value, dict | list) for value in content):
            for index, value in enumerate(content):
                yield from _leaves(value, f"{prefix}[{index}]")
        case _:
            yield prefix, content


def _type(kind: pa.DataType) -> str:
    if pa.types.is_fixed_size_list(kind):
        return f"{kind.value_type}[{kind.list_size}]"
    return f"{kind.value_type}[]" if pa.types.is_list(kind) else str(kind)


def _size(n: float) -> str:
    for unit in ("B", "kB", "MB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} GB"


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}"
        case list():
            return "[" + ", ".join(_cell(item) for item in value[:16]) + (", ...]" if len(value) > 16 else "]")
        case _:
            return " ".join(str(value).split())


def _table(headers: Sequence[str], rows: _Rows) -> list[str]:
    """Align columns, numbers to the right; wide columns are shortened until a line fits, and excess columns are
    dropped.
    """
    if len(headers) > COLUMNS:
        headers, rows = [*headers[: COLUMNS - 1], "..."], [[*row[: COLUMNS - 1], ""] for row in rows]
    cells = [list(headers), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    while 2 + sum(widths) + 2 * (len(widths) - 1) > WIDTH and max(widths) > 4:
        widths[widths.index(max(widths))] -= 1
    right = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(headers))]
    return ["  " + "  ".join(_fit(*cell) for cell in zip(row, widths, right, strict=True)) for row in cells]


def _fit(text: str, width: int, right: bool = False) -> str:
    if len(text) > width:
        text = text[: max(0, width - 3)] + "..."[:width]
    return text.rjust(width) if right else text.ljust(width)
