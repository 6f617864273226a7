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

`make bench` runs all benchmarks and writes this table from the records in `results/`. Peers and limits are measured in
the same run on the same machine; figures of different machines are not comparable.

| benchmark | value | unit | target | met | peer or limit | its value | command | machine, date |
|---|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Write the table, and print it."""
    text = table()
    (HERE / "README.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def table() -> str:
    """Return the page of all records."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((HERE / "results").glob("*.json"))]
    text = HEAD + "\n".join(map(_row, records)) + "\n"
    missed = [record for record in records if record["met"] is False]
    if missed:
        text += "\n## Missed targets, and why\n" + "".join(map(_explained, missed))
    others = [
        record
        for record in records
        if record not in missed and ({"why", "profile", "cpu_seconds_of_a_start"} & set(record))
    ]
    if others:
        text += "\n## Where the rest goes\n" + "".join(map(_explained, others))
    return text


def _explained(record: dict[str, Any]) -> str:
    """Say why a figure is what it is, with the profile where the record has one: setting -> part -> numbers."""
    why = record.get("why", "Not yet explained." if record["met"] is False else "")
    text = f"\n**{record['benchmark']}.** {why}".rstrip() + "\n"
    if starts := record.get("cpu_seconds_of_a_start"):
        told = ", ".join(f"{stage} {seconds:g}" for stage, seconds in starts.items())
        text += f"\nCPU seconds to start a stage: {told}.\n"
    profile: dict[str, dict[str, list[float]]] = record.get("profile", {})
    if profile:
        parts = dict.fromkeys(part for of in profile.values() for part in of)
        text += (
            f"\n| {record.get('profile_unit', 'seconds of')} | {' | '.join(profile)} |\n|---|{'---|' * len(profile)}\n"
        )
        for part in parts:
            cells = [
                " → ".join(f"{number:.2f}" for number in of[part]) if part in of else "-" for of in profile.values()
            ]
            text += f"| {part} | {' | '.join(cells)} |\n"
    return text


def _row(record: dict[str, Any]) -> str:
    met = {True: "yes", False: "**no**", None: "-"}[record["met"]]
    shown = [record["benchmark"], _shown(record["value"]), record["unit"], record["target"], met, record["peer"] or "-"]
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
