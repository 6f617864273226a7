"""Trials: trained candidates with their scores, and tables of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from laurel.console import aligned
from laurel.data.json_file import read_json, write_json
from laurel.errors import DataError
from laurel.params.fields import as_text

State = Literal["complete", "pruned", "failed"]
TRIALS = "trials.json"


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate and its result."""

    number: int
    """In the order in which candidates were drawn."""
    values: Mapping[str, JsonValue]
    """Name of a parameter -> the value that was tried."""
    state: State
    score: float | None
    """Mean over seeds of the area under the learning curve; None where the trial is not complete."""
    seed_scores: tuple[float, ...] = ()
    last_return: float | None = None
    """Mean over seeds of the final return."""
    reports: Sequence[tuple[int, float]] = field(default_factory=tuple)
    """Tenths of the training -> the score so far."""
    note: str = ""
    """Why it has no score."""


def best(trials: Sequence[Trial]) -> Trial:
    """Return the complete trial with the highest score, of several the first.

    Raises:
        DataError: no trial has a score.
    """
    scored = [trial for trial in trials if trial.score is not None]
    if not scored:
        notes = dict.fromkeys(trial.note for trial in trials if trial.note)
        raise DataError(f"None of {len(trials)} trials has a score. {' '.join(list(notes)[:1])}".rstrip())
    return max(scored, key=lambda trial: (trial.score, -trial.number))


def write_trials(path: Path, trials: Sequence[Trial]) -> None:
    """Write trials as JSON, atomically."""
    write_json(path, [asdict(trial) for trial in trials])


def read_trials(path: Path) -> list[Trial]:
    """Read trials that `write_trials` wrote.

    Raises:
        DataError: they are missing or damaged.
    """
    try:
        return [_read(entry) for entry in read_json(path)]
    except (TypeError, KeyError, ValueError) as error:
        raise DataError(f"{path}: holds no trials ({error}). Run the stage that writes it again.") from None


def _read(entry: Mapping[str, Any]) -> Trial:
    reports = tuple((int(step), float(value)) for step, value in entry["reports"])
    return Trial(**{**entry, "seed_scores": tuple(entry["seed_scores"]), "reports": reports})


def rounded_text(value: JsonValue) -> str:
    """Format a value; a float with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else as_text(value)


def table(trials: Sequence[Trial], names: Sequence[str], top: int = 5) -> str:
    """Lay out the best trials as columns of text."""
    scored = sorted((t for t in trials if t.score is not None), key=lambda trial: (-(trial.score or 0.0), trial.number))
    rows = [("trial", "score", "last return", *names)]
    for trial in scored[:top]:
        last = "-" if trial.last_return is None else f"{trial.last_return:.3g}"
        values = [rounded_text(trial.values[name]) for name in names]
        rows.append((str(trial.number), f"{trial.score:.4g}", last, *values))
    return "\n".join(aligned(rows))
