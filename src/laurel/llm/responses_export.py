"""The store of answers as one Parquet file: what was asked, of whom, for what, and what was said, a row an answer.

Knows nothing about what an answer means. Rows come in the order of their keys, so that equal stores give equal bytes.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pyarrow as pa

from laurel.data.parquet import ParquetWriter
from laurel.errors import DataError
from laurel.llm.responses import ResponseStore

RESPONSES_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("model", pa.string(), nullable=False),
        pa.field("revision", pa.string(), nullable=False),
        pa.field("endpoint", pa.string(), nullable=False),
        pa.field("prompt", pa.string(), nullable=False),
        pa.field("prompt_digest", pa.string(), nullable=False),
        pa.field("sampling", pa.string(), nullable=False),
        pa.field("messages", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("logprobs", pa.string()),
        pa.field("input_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("cached_tokens", pa.int64()),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("asked_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""`sampling`, `messages` and `logprobs` are JSON."""
_ROWS = 8192


def export_responses(responses: Path, output: Path) -> int:
    """Write all answers of a store as a Parquet file, whole or not at all; return how many.

    Raises:
        DataError: there is no such store, or the file cannot be written.
    """
    if not responses.is_file():
        raise DataError(f"{responses}: no such store of answers. See annotate.language_model.responses in params.yaml.")
    partial = output.with_name(f".{output.name}.partial")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with ResponseStore(responses) as store, ParquetWriter(partial, RESPONSES_SCHEMA, group_rows=_ROWS) as writer:
            rows, count = store.rows(), 0
            while some := list(islice(rows, _ROWS)):
                for row in some:
                    row["asked_at"] = datetime.fromtimestamp(row["asked_at"], UTC)
                writer.write(pa.Table.from_pylist(some, RESPONSES_SCHEMA))
                count += len(some)
        partial.replace(output)
    except OSError as error:
        raise DataError(f"{output}: cannot be written ({error.strerror or error}). Choose another --output.") from None
    finally:
        with suppress(OSError):
            partial.unlink()
    return count
