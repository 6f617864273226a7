"""Notes on labels that no language model gave, for all code that writes, finds or shows such notes."""

from __future__ import annotations

from collections.abc import Iterable

_BEGIN = "The labels are simulated"


def simulated_labels(annotator: str) -> str:
    """Return the note on labels of an annotator that is not a language model."""
    return f"{_BEGIN}, not a language model's: {annotator}."


def simulated_labels_of(arm: str, judge: str) -> str:
    """Return the note on an arm whose reward was learned from such labels during training."""
    return f"{_BEGIN}: the arm {arm} learned from {judge}, not from a language model"


def on_simulated(notes: Iterable[str]) -> list[str]:
    """Return the notes on simulated work."""
    return [note for note in notes if "simulated" in note.casefold()]


def are_simulated(notes: Iterable[str], annotator: str | None) -> bool:
    """Whether a note says that collected labels are simulated, in general or of this annotator.

    With several judges, the judge's name stands before the note. Labels given during an arm's training do not count:
    another judge may have given them.

    >>> are_simulated([f"Judge teacher: {simulated_labels('scripted')}"], "scripted"), are_simulated([], "scripted")
    (True, False)
    >>> are_simulated([simulated_labels_of("online", "scripted")], "embedding")
    False
    """
    suffix = simulated_labels(str(annotator))
    return any(note.startswith(f"{_BEGIN}, ") or note.endswith(suffix) for note in notes)
