"""Annotators compared on the same pairs: accuracy with intervals, and cost.

Accuracy is over all pairs: a tie or a missing answer is wrong. Differences are paired, so that the difficulty of pairs
cancels out; they are not corrected for multiple comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from laurel.arrays import BoolArray
from laurel.data.usage import UNCOUNTED, UNPRICED, Usage, bounded
from laurel.feedback.annotator import Judgement
from laurel.feedback.probe import wilson_score
from laurel.feedback.rates import Z
from laurel.params.grid import called

Row = dict[str, Any]
COLUMNS = (
    ("model", "model"),
    ("prompt", "prompt"),
    ("temperature", "temp."),
    ("accuracy", "right (95% interval)"),
    ("difference", "behind the best"),
    ("as_good_as_best", "may be as good"),
    ("parse_rate", "could be read"),
    ("first_named", "named the text shown first"),
    ("swap_consistency", "same in both orders"),
    ("ties", "ties"),
    ("unlabelled", "no answer"),
    ("calls", "calls"),
    ("cached", "stored"),
    ("tokens", "tokens in / out"),
    ("cost_usd", "cost, $"),
    ("seconds", "seconds"),
)


@dataclass(frozen=True)
class Entry:
    """An annotator's judgements of all pairs."""

    model: str
    prompt: str | None
    temperature: float | None
    simulated: bool = False
    judgements: Sequence[Judgement] = ()
    usage: Usage = field(default_factory=dict)
    seconds: float = 0.0
    failure: str | None = None
    """Why it could not be asked; empty if it was."""
    annotator: str | None = None
    """Its kind, as in annotate.annotator."""


def leaderboard(entries: Sequence[Entry], first_is_better: Sequence[bool]) -> list[Row]:
    """Return a row for each judge, the best first and failed ones last.

    Args:
        entries: the judges; each that did not fail judged all P pairs.
        first_is_better: (P,) the right answers.
    """
    rows = [_row(entry, first_is_better) for entry in entries if entry.failure is None]
    right = [_right(entry.judgements, first_is_better) for entry in entries if entry.failure is None]
    if rows:
        order = sorted(range(len(rows)), key=lambda i: -rows[i]["right"])  # stable: the grid's order among equals
        for i in order:
            rows[i] |= _behind(right[order[0]], right[i], is_best=i == order[0])
        rows = [rows[i] for i in order]
    failed = [entry for entry in entries if entry.failure is not None]
    return rows + [{**_head(entry), **_used(entry), "failure": entry.failure} for entry in failed]


def _head(entry: Entry) -> Row:
    return {
        "model": entry.model,
        "prompt": entry.prompt,
        "temperature": entry.temperature,
        "annotator": entry.annotator,
        "simulated": entry.simulated,
        "failure": None,
    }


def _used(entry: Entry) -> Row:
    always = ("calls", "cached", "input_tokens", "output_tokens", "cost_usd")
    remarks = {key: amount for key, amount in entry.usage.items() if key in (UNCOUNTED, UNPRICED)}
    return {**{key: entry.usage.get(key) for key in always}, **remarks}


def _row(entry: Entry, first_is_better: Sequence[bool]) -> Row:
    judged = entry.judgements
    score = wilson_score(int(_right(judged, first_is_better).sum()), len(judged))
    answers = [answer for judgement in judged for answer in judgement.answers]
    came = [answer for answer in answers if answer.verdict != "failed"]
    sides = [answer for answer in answers if answer.verdict in ("first", "second")]
    consistent = [judgement.swap_consistent for judgement in judged if judgement.swap_consistent is not None]
    turned = len({answer.variant for answer in answers}) == 2  # otherwise position bias and preference are confounded
    named_first = sum((answer.verdict == "first") != bool(answer.variant) for answer in sides)
    return {
        **_head(entry),
        "right": score.right,
        "pairs": score.of,
        "accuracy": score.fraction,
        "accuracy_ci95": [score.low, score.high],
        "parse_rate": _share(sum(answer.verdict != "unread" for answer in came), len(came)),
        "first_named": _share(named_first, len(sides)) if turned else None,
        "swap_consistency": _share(sum(consistent), len(consistent)),
        "ties": sum(judgement.status == "tie" for judgement in judged) / len(judged),
        "unlabelled": sum(judgement.p_first is None for judgement in judged) / len(judged),
        **_used(entry),
        "seconds": entry.seconds,
    }


def _right(judgements: Sequence[Judgement], first_is_better: Sequence[bool]) -> BoolArray:
    return np.array(
        [j.p_first is not None and j.p_first != 0.5 and (j.p_first > 0.5) == better
         for j, better in zip(judgements, first_is_better, strict=True)],
        dtype=np.bool_,
    )  # fmt: skip


def _behind(best: BoolArray, judge: BoolArray, *, is_best: bool) -> Row:
    """Return how far a judge is behind the best, with a 95% interval of paired proportions.

    With x pairs that only the best judge has right, y that only the other one has right, and n in all, it is Bonett and
    Price's (2012, J. Educ. Behav. Stat. 37) adjusted Wald interval, where p = (x + 1) / (n + 2), q = (y + 1) / (n + 2):

        p - q +- z sqrt((p + q - (p - q)^2) / (n + 2))

    Its coverage holds even if few or no pairs distinguish the judges, where a bootstrap interval has width 0.
    """
    n = len(best)
    p, q = ((int(wins.sum()) + 1) / (n + 2) for wins in (best & ~judge, judge & ~best))
    half = Z * math.sqrt((p + q - (p - q) ** 2) / (n + 2))
    low, high = (0.0, 0.0) if is_best else (p - q - half, min(1.0, p - q + half))
    return {
        "difference": float(best.mean() - judge.mean()),
        "difference_ci95": [low, high],
        "as_good_as_best": low <= 0,
    }


def _share(part: int, total: int) -> float | None:
    return part / total if total else None


def title(row: Row) -> str:
    """Return the title of an annotator: model, prompt, temperature."""
    return called(row["model"], row["prompt"], row["temperature"])


def markdown(rows: Sequence[Row]) -> str:
    """Return the leaderboard as a Markdown table without its empty columns."""
    cells = [[_cell(row, key) for key, _ in COLUMNS] for row in rows]
    kept = [i for i in range(len(COLUMNS)) if any(row[i] for row in cells) or i == 0]
    table = [[COLUMNS[i][1] for i in kept], *([row[i] for i in kept] for row in cells)]
    return aligned(table)


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Return a table, whose first row is its head, as Markdown with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rows = [table[0], ["-" * width for width in widths], *table[1:]]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows)


def _cell(row: Row, key: str) -> str:
    if key == "model":
        return plain(row["model"] + (" (simulated)" if row["simulated"] else ""))
    if key == "accuracy" and row["failure"] is not None:
        return "failed"
    value = row.get(key)
    if key in ("tokens", "cost_usd") and row.get("calls") is not None:
        return _amount(row, key)
    if value is None:
        return ""
    match key:
        case "accuracy" | "difference":
            low, high = row[f"{key}_ci95"]
            return f"{value:z.1%} ({low:z.1%} to {high:z.1%})"
        case "as_good_as_best":
            return "yes" if value else "no"
        case "parse_rate" | "first_named" | "swap_consistency" | "ties" | "unlabelled":
            return f"{value:.1%}"
        case "temperature":
            return f"{value:g}"
        case "seconds":
            return f"{value:.1f}"
        case "calls" | "cached":
            return f"{value:,}"
        case _:
            return plain(str(value))


def _amount(row: Row, key: str) -> str:
    """Return the tokens or dollars of a judge that is asked in calls."""
    if key == "cost_usd":
        return "unknown" if row[key] is None else bounded(key, row, f"{row[key]:.4g}", note=False)
    tokens = {name: row[name] for name in ("input_tokens", "output_tokens")}
    return " / ".join(
        "unknown" if amount is None else bounded(name, row, f"{amount:,}", note=False)
        for name, amount in tokens.items()
    )


def plain(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
