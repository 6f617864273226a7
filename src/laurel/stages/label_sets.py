"""The label sets of a run: `annotate.feedback_seeds` sets for each judge that its arms need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laurel.data.json_file import read_json
from laurel.data.preferences import labels_of
from laurel.data.quality import QUALITY
from laurel.params.annotation import MAIN, AnnotateParams


@dataclass(frozen=True, slots=True)
class LabelSet:
    """One judge's labels of pairs that were drawn together."""

    judge: str
    """MAIN, or one of annotate.judges."""
    number: int
    """Number among the judge's sets, from 0."""

    def place(self, preferences: Path) -> Path:
        """Return its directory in the output of annotate."""
        return labels_of(preferences, self.judge, self.number)


def label_sets(annotate: AnnotateParams, judges: Iterable[str]) -> list[LabelSet]:
    """List the label sets of judges, the main judge's first."""
    ordered = sorted(judges, key=lambda judge: (judge != MAIN, judge))
    return [LabelSet(judge, number) for judge in ordered for number in range(annotate.feedback_seeds)]


def title(judge: str, numbers: Sequence[int], annotate: AnnotateParams) -> str:
    """Return a title of a judge's label sets; for all of its sets, only the judge is named.

    >>> annotate = AnnotateParams(feedback_seeds=2)
    >>> title("teacher", (1,), annotate), title("teacher", (0, 1), annotate)
    ('Judge teacher, label set 1', 'Judge teacher')
    """
    if len(numbers) == annotate.feedback_seeds:
        return f"Judge {judge}"
    return f"Judge {judge}, label set{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def titled(notes: Mapping[LabelSet, Sequence[str]], annotate: AnnotateParams) -> Iterator[str]:
    """Yield the notes on label sets, each once per judge, with the sets it applies to.

    Those on the main judge's first label set are left out: they are among the stage's notes, without a title.
    """
    numbers_by_note: dict[tuple[str, str], list[int]] = {}
    for label_set, lines in notes.items():
        for note in lines:
            numbers_by_note.setdefault((label_set.judge, note), []).append(label_set.number)
    for (judge, note), numbers in numbers_by_note.items():
        if (judge, numbers[0]) != (MAIN, 0):
            yield f"{title(judge, numbers, annotate)}: {note}"


def measured(preferences: Path, sets: Sequence[LabelSet]) -> list[dict[str, Any]]:
    """Return the quality of the labels of each label set, with its judge and number.

    Raises:
        DataError: one is missing or damaged.
    """
    return [
        {"judge": label_set.judge, "label_set": label_set.number, **read_json(label_set.place(preferences) / QUALITY)}
        for label_set in sets
    ]
