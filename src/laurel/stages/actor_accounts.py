"""What the actors of arms asked language models in evaluation, for the report and the page of the run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from laurel.data.directory import Output
from laurel.data.json_file import read_json
from laurel.evaluation.play import Played, account_of


def asked(agents: Iterable[Played], tables: Path, out: Output) -> dict[str, dict[str, Any]]:
    """Return for each arm whose actor asks a language model what that took, and note it."""
    found: dict[str, dict[str, Any]] = {}
    for arm, seed, _ in agents:
        file = account_of(tables / f"{arm.name}-{seed}.parquet")
        if file.exists():
            account, sums = read_json(file), found.setdefault(arm.name, {})
            for key, value in account.items():
                number = isinstance(value, int | float) and isinstance(sums.get(key, 0), int | float)
                sums[key] = sums.get(key, 0) + value if number else value
    for name, sums in found.items():
        sums["parse_rate"] = 1 - sums["unread"] / max(sums["states"], 1)
        out.notes.append(
            f"The arm {name} asked {sums['model']} about {sums['states']:,} states (distinct ones of each of its "
            f"agents), and {sums['parse_rate']:.1%} of them had an answer that could be read; in the others all "
            "choices were equally likely."
        )
        out.run_notes.append(
            f"The arm {name} took {sums.get('calls', 0):,} calls of {sums['model']} and {sums.get('cached', 0):,} "
            "answers from the store."
        )
    kept = ("model", "states", "unread", "parse_rate")  # what a run with a full store repeats
    return {name: {key: sums[key] for key in kept} for name, sums in found.items()}
