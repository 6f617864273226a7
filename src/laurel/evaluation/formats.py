"""Numbers, intervals and tables as text; imports nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

NONE = "-"
"""Shown where a number is not defined."""
ALPHA = 0.05
"""Level at which a difference is claimed, after Holm's correction for all comparisons of a run."""


def number(value: float | None) -> str:
    """Write a number with two decimals, fewer where it is large.

    >>> number(0.987), number(-0.001), number(123.45), number(12345.6), number(None)
    ('0.99', '0.00', '123.5', '12,346', '-')
    """
    if value is None:
        return NONE
    decimals = 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    return f"{value:z,.{decimals}f}"


def in_scale(value: float | None, score: Mapping[str, Any]) -> str:
    """Write a number of a score: as `number`, or with more decimals where all of the score would be 0.00 or 0.01.

    >>> tiny = {"mean": 0.00123, "ci95": [0.0, 0.0045]}
    >>> in_scale(0.00123, tiny), in_scale(0.00123, {"mean": 0.00123, "ci95": [0.0, 0.45]})
    ('0.0012', '0.00')
    """
    ends = [abs(end) for end in (score["mean"], *(score["ci95"] or ())) if end is not None]
    if value is None or not 0 < max(ends, default=0.0) < 0.01:
        return number(value)
    decimals = 1 - math.floor(math.log10(max(ends)))
    return f"{value:z.{decimals}f}"


def counted(n: int, noun: str) -> str:
    """Write a count with its noun.

    >>> counted(1, "seed"), counted(2000, "pair")
    ('1 seed', '2,000 pairs')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def interval(bounds: list[float] | None) -> str:
    """Write an interval; nothing if it is missing."""
    return f"[{number(bounds[0])}, {number(bounds[1])}]" if bounds else ""


def share(rate: Mapping[str, Any]) -> str:
    """Write a share of cases with its interval.

    >>> share({"value": 0.506, "ci95": [0.431, 0.581], "of": 1660})
    '51% [43%, 58%] of 1,660'
    """
    low, high = rate["ci95"]
    return f"{rate['value']:.0%} [{low:.0%}, {high:.0%}] of {rate['of']:,}"


def p_value(value: float | None) -> str:
    """Write a p-value, which is never 0, nor ALPHA where it is below.

    >>> p_value(0.0004), p_value(0.0312), p_value(0.0498), p_value(0.05), p_value(None)
    ('<0.001', '0.031', '<0.05', '0.050', '-')
    """
    if value is None:
        return NONE
    return "<0.001" if value < 0.001 else f"<{ALPHA}" if ALPHA - 0.0005 <= value < ALPHA else f"{value:.3f}"


def steps(value: float | None) -> str:
    """Write a number of steps.

    >>> steps(950), steps(200_000), steps(131_072), steps(1_500_000), steps(None)
    ('950', '200k', '131k', '1.5M', '-')
    """
    if value is None:
        return NONE
    if value >= 999_500:
        return f"{value / 1e6:.2f}".rstrip("0").rstrip(".") + "M"
    if value >= 10_000:
        return f"{value / 1e3:.0f}k"
    if value >= 1_000:
        return f"{value / 1e3:.1f}".removesuffix(".0") + "k"
    return f"{value:.0f}"


Table = tuple[list[str], list[list[str]]]
"""Heads and rows; the first column is text, the others are numbers."""


def aligned(table: Table) -> str:
    """Lay a table out as plain text; the first column to the left, the others to the right."""
    heads, rows = table
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in (heads, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay a table out as Markdown; the first column to the left, the others to the right."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
