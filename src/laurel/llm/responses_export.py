"""Exports the store of answers to Parquet, a row for each answer: question, model, prompt, reply, cost.

Rows are ordered by key, so that equal stores give equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from laurel.data.parquet import ParquetWriter
from laurel.data.written import written_whole
from laurel.errors import DataError
from laurel.llm.chat import Identity, Reply
from laurel.llm.prices import Price, Prices
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
        pa.field("cost_usd", pa.float64()),
        pa.field("asked_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""`sampling`, `messages` and `logprobs` are JSON; `cost_usd` is from `Costs`, null if unknown."""
_ROWS = 8192


class Costs:
    """Costs of answers: the amount that was stored with each when it was asked.

    An answer without one, because the store is older or no price was known, is priced by the day on which it was asked,
    from the user's table if it has the model, otherwise from the packaged one.
    """

    def __init__(self, table: Path | None) -> None:
        self._prices = Prices(table)
        self._known: dict[tuple[Identity, date], Price | None] = {}

    def of(self, row: Mapping[str, Any]) -> float | None:
        """Return dollars for a row of `ResponseStore.rows`; None if unknown.

        An answer that is priced now counts as part of a batch if its duration was not measured.
        """
        if row["cost_usd"] is not None:
            return float(row["cost_usd"])
        identity = Identity(row["model"], endpoint=row["endpoint"])
        dated = identity, datetime.fromtimestamp(row["asked_at"], UTC).date()
        if dated not in self._known:
            self._known[dated] = self._prices.of(*dated)
        price = self._known[dated]
        if price is not None and identity.endpoint and not row["seconds"]:
            price = price.in_batches()
        tokens = {name: row[name] for name in ("input_tokens", "output_tokens", "cached_tokens")}
        return None if price is None else price.of_reply(Reply("", **tokens))


def export_responses(responses: Path, output: Path, prices: Path | None = None) -> int:
    """Write all answers of a store as a Parquet file, atomically; return their number.

    Args:
        prices: a table of prices that is looked up before the packaged one, for answers stored without their cost.

    Raises:
        DataError: there is no such store, or the file cannot be written.
        ParamsError: the table of prices cannot be read, or is malformed.
    """
    if not responses.is_file():
        raise DataError(f"{responses}: no such store of answers. See annotate.language_model.responses in params.yaml.")
    costs, count = Costs(prices), 0
    with (
        written_whole(output, " Choose another --output.") as partial,
        ResponseStore(responses, read_only=True) as store,
        ParquetWriter(partial, RESPONSES_SCHEMA, group_rows=_ROWS) as writer,
    ):
        rows = store.rows()
        while batch := list(islice(rows, _ROWS)):
            for row in batch:
                row["cost_usd"] = costs.of(row)
                row["asked_at"] = datetime.fromtimestamp(row["asked_at"], UTC)
            writer.write(pa.Table.from_pylist(batch, RESPONSES_SCHEMA))
            count += len(batch)
    return count
