"""Comparison tables of the report: members of an ensemble, judges, learned rewards.

Where a judge has several label sets, a cell is the range over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laurel.data.quality import Figure, figures
from laurel.evaluation.words import flat, in_words

NONE = "-"
LONG = ("calibration",)
"""Entries of a reward's quality that are too long for a table."""
Cell = tuple[str, str]
"""A value and, maybe empty, its 95% interval."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """A table that compares several items of one kind."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    """Measure, and the cell of each."""


def members(annotation: Mapping[str, Any]) -> SideBySide | None:
    """Return the table of an ensemble's annotators; None without an ensemble."""
    return _table({str(member["annotator"]): _measured([member]) for member in annotation.get("by", ())})


def judges(annotation: Mapping[str, Any]) -> SideBySide | None:
    """Return the table of label quality by judge; None for a single label set."""
    sets = annotation.get("label_sets_by", ())
    by_judge: dict[str, list[Mapping[str, Any]]] = {}
    for label_set in sets:
        by_judge.setdefault(f"{label_set['judge']}: {label_set.get('annotator', NONE)}", []).append(label_set)
    return _table({name: _measured(quality) for name, quality in by_judge.items()})


def learned_rewards(reward: Mapping[str, Any]) -> SideBySide | None:
    """Return the table of the learned rewards' quality; None for a single one."""
    by_name: dict[str, list[Mapping[str, str]]] = {}
    for entry in reward.get("by", ()):
        by_name.setdefault(entry["reward"], []).append(entry)
    return _table({name: _flattened(quality) for name, quality in by_name.items()})


def _table(columns: Mapping[str, Mapping[str, Cell]]) -> SideBySide | None:
    measures = list(dict.fromkeys(measure for column in columns.values() for measure in column))
    rows = tuple((name, tuple(column.get(name, (NONE, "")) for column in columns.values())) for name in measures)
    return SideBySide(tuple(columns), rows) if columns else None


def _measured(sets: Sequence[Mapping[str, Any]]) -> dict[str, Cell]:
    """Return the figures of label sets: of a single one with its interval, of several their range."""
    by_measure: dict[str, list[Figure]] = {}
    for label_set in sets:
        for figure in figures(label_set):
            by_measure.setdefault(figure.measure, []).append(figure)
    cells = {}
    for measure, values in by_measure.items():
        values.sort(key=lambda figure: figure.value)
        shown = _range([figure.shown for figure in values]) + _lacking(len(values), len(sets))
        cells[measure] = shown, values[0].shown_interval * (len(values) == 1)
    return cells


def _lacking(known: int, sets: int) -> str:
    """Say of how many label sets a figure is known, if not of all."""
    return f" ({known} of {sets} label sets)" if known < sets else ""


def _flattened(sets: Sequence[Mapping[str, Any]]) -> dict[str, Cell]:
    """Return the quality of a reward's several label sets, as ranges."""
    values_by_key: dict[str, list[Any]] = {}
    for entry in sets:
        for key, value in flat(entry, leave_out=("reward", "label_set", *LONG)):
            values_by_key.setdefault(key, []).append(value)
    cells = {"label sets": (str(len(sets)), "")} if len(sets) > 1 else {}
    for key, values in values_by_key.items():
        known = [value for value in values if value is not None]
        if not known:
            cells[key] = NONE, ""
            continue
        numbers = all(isinstance(value, int | float) for value in known)
        shown = _range([in_words(value) for value in (sorted(known) if numbers else known)])
        cells[key] = shown + _lacking(len(known), len(sets)), ""
    return cells


def _range(ordered: Iterable[str]) -> str:
    """Return the range of values in words.

    >>> _range(["0.70", "0.74", "0.80"]), _range(["15", "15"])
    ('0.70 to 0.80', '15')
    """
    distinct = list(dict.fromkeys(ordered))
    return distinct[0] if len(distinct) == 1 else f"{distinct[0]} to {distinct[-1]}"
