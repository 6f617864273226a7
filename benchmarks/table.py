"""Writes benchmarks/README.md: every record in benchmarks/results as a row of one table.

    python benchmarks/table.py

Knows the records; measures nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
HEAD = """# Benchmarks

`make bench` runs them all and writes this table from the records in `results/`. Peers and limits are measured in the
same run on the same machine; the figures of one machine say little about another.

| benchmark | value | unit | target | met | peer or limit | its value | command | machine, date |
|---|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Write the table, and print it."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((HERE / "results").glob("*.json"))]
    text = HEAD + "\n".join(map(_row, records)) + "\n"
    (HERE / "README.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def _row(record: dict[str, Any]) -> str:
    met = {True: "yes", False: "**no**", None: "-"}[record["met"]]
    shown = [record["benchmark"], _shown(record["value"]), record["unit"], record["target"], met, record["peer"]]
    shown += [_shown(record["peer_value"]), f"`{record['command']}`", f"{record['machine']}, {record['date']}"]
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in shown) + " |"


def _shown(value: Any) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:,.4g}"
        case _:
            return str(value)


if __name__ == "__main__":
    main()
