"""Preferences between texts as rows, from any source, and the layouts of other libraries.

    trl     prompt, chosen, rejected (TRL's; prompt may be missing)
    choice  input_text, candidate_0, candidate_1, choice (Vertex AI's RLHF pipeline)
    gemini  contents, completions (Gemini's preference tuning)

None of these can store a probability, a tie, votes or the annotator. `trl` and `choice` accept further columns, so
Laurel adds its own as EXTRAS; ties and pairs without a label have no preferred text and are refused.
Files of rows are read and written by `laurel.data.row_files`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from laurel.data.preferences import STATUSES, UNLABELLED, Preferences
from laurel.errors import DataError
from laurel.params.file import shown

CHOICES = {0: 1.0, 1: 0.0, "0": 1.0, "1": 0.0, "candidate_0": 1.0, "candidate_1": 0.0, "tie": 0.5}
"""Value of the column choice -> probability that candidate_0 is better."""
EXTRAS = ("p_first", "status", "votes", "swap_consistent", "annotator", "sampler", "seed", "chosen_first")
"""Laurel's extra columns, each with the prefix laurel_."""
IMPORTED = "imported"
"""Sampler recorded for pairs from other sources."""


class RowError(Exception):
    """A row that cannot be read: the column, and what is wrong with it."""

    def __init__(self, column: str, says: str) -> None:
        super().__init__(column, says)
        self.column, self.says = column, says


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt, two completions, and which one is better."""

    prompt: str
    """Empty if the row has no prompt."""
    first: str
    second: str
    p_first: float | None
    """Probability that the first is better: 1/2 for a tie, None without a label."""
    status: str = ""
    """One of STATUSES; empty: derived from the probability."""
    votes: int = 1
    swap_consistent: bool | None = None
    annotator: str = ""
    """Empty if the row does not name it."""
    sampler: str = IMPORTED
    seed: int = 0

    @property
    def decided(self) -> bool:
        """Whether one of the texts is preferred."""
        return self.p_first is not None and self.p_first != 0.5


def below(prompt: str, text: str) -> str:
    """Return a text as a judge reads it: below its prompt, if there is one."""
    return f"{prompt}\n{text}" if prompt else text


@dataclass(frozen=True)
class PreferenceRows:
    """N rows, as columns."""

    prompts: Sequence[str]
    first: Sequence[str]
    second: Sequence[str]
    labels: Preferences
    sampler: str = IMPORTED
    seed: int = 0
    left_out: tuple[str, ...] = ()
    """Columns of the file that were not read."""

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def of(cls, rows: Sequence[Row], source: str, left_out: tuple[str, ...] = ()) -> PreferenceRows:
        """Gather rows.

        Args:
            source: the annotator, if the rows name none.
            left_out: columns that were not read.

        Raises:
            DataError: several annotators judged the rows, or they were drawn in several ways.
        """
        sources = {(row.annotator or source, row.sampler, row.seed) for row in rows} or {(source, IMPORTED, 0)}
        if len(sources) > 1:
            raise DataError(
                f"{source}: its rows name several annotators, samplers or seeds, but one set of labels has one of "
                "each. Divide the file."
            )
        ((annotator, sampler, seed),) = sources
        rows = [replace(row, status=row.status or ("tie" if row.p_first == 0.5 else "ok")) for row in rows]
        labels = Preferences.of(rows, annotator)
        prompts, first, second = ([getattr(row, name) for row in rows] for name in ("prompt", "first", "second"))
        return cls(prompts, first, second, labels, sampler, seed, left_out)

    def shuffled(self, seed: int) -> PreferenceRows:
        """Return the same pairs, each labelled one with the label of another one.

        Rows of other sources may all name the better text first, so that another pair's label says what their own does:
        the sides of half of them are exchanged before.
        """
        original, order, rng = self.labels, np.arange(len(self)), np.random.default_rng(seed)
        labelled = np.flatnonzero(original.usable)
        order[labelled] = rng.permutation(labelled)
        turned = (rng.random(len(self)) < 0.5) & (self.sampler == IMPORTED)  # Laurel's samplers draw which is first
        p_first = np.where(turned, 1 - original.p_first, original.p_first)[order]
        columns = {name: getattr(original, name)[order] for name in ("status", "votes", "swap_consistent")}
        pairs = [pair[::-1] if turn else pair for *pair, turn in zip(self.first, self.second, turned, strict=True)]
        first, second = ([pair[side] for pair in pairs] for side in (0, 1))
        return replace(self, first=first, second=second, labels=replace(original, p_first=p_first, **columns))

    def rows(self) -> list[Row]:
        """Return the rows one by one."""
        labels = self.labels
        chances = [None if np.isnan(value) else float(value) for value in labels.p_first]
        swaps = [None if code < 0 else bool(code) for code in labels.swap_consistent]
        statuses, all_votes = labels.status.tolist(), labels.votes.tolist()
        known = zip(self.prompts, self.first, self.second, chances, statuses, all_votes, swaps, strict=True)
        return [
            Row(prompt, first, second, p, status, votes, swap, labels.annotator, self.sampler, self.seed)
            for prompt, first, second, p, status, votes, swap in known
        ]

    def decided(self) -> PreferenceRows:
        """Return the rows in which one text is preferred."""
        return self.where(self.labels.usable & (self.labels.p_first != 0.5))

    def where(self, mask: Any) -> PreferenceRows:
        """Return the rows where a mask (N,) is true."""
        rows = [row for row, keep in zip(self.rows(), mask, strict=True) if keep]
        prompts, first, second = ([getattr(row, name) for row in rows] for name in ("prompt", "first", "second"))
        labels = Preferences.of(rows, self.labels.annotator)
        return replace(self, prompts=prompts, first=first, second=second, labels=labels)

    def judged(self) -> tuple[list[str], list[str]]:
        """Return both sides as a judge compares them: below their prompt, if they have one."""
        first, second = (
            [below(prompt, text) for prompt, text in zip(self.prompts, side, strict=True)]
            for side in (self.first, self.second)
        )
        return first, second

    def prompted(self, prompt: str) -> PreferenceRows:
        """Return the rows, with this prompt in rows without one."""
        return replace(self, prompts=[row_prompt or prompt for row_prompt in self.prompts])


def extras_of(row: Row) -> dict[str, Any]:
    """Return the extra columns of a row (EXTRAS)."""
    known = {name: getattr(row, name) for name in EXTRAS[:-1]}
    return {f"laurel_{name}": value for name, value in known.items()}


def with_extras(row: Row, columns: Mapping[str, Any]) -> Row:
    """Return a row with the values of its extra columns (see `extras_of`), if they are present.

    Raises:
        RowError: a value has another type, is not allowed, or contradicts the row.
    """
    if columns.get("laurel_status") in (None, ""):
        left = next((name for name in EXTRAS if columns.get(f"laurel_{name}") not in (None, "")), None)
        if left is not None:
            raise RowError("laurel_status", f"is missing, but laurel_{left} is present: give both or neither")
        return row
    try:
        p = columns["laurel_p_first"]
        extended = replace(
            row,
            p_first=None if p is None or p == "" else float(p),
            status=str(columns["laurel_status"]),
            votes=int(columns["laurel_votes"]),
            swap_consistent=_flag(columns["laurel_swap_consistent"]),
            annotator=str(columns["laurel_annotator"]),
            sampler=str(columns["laurel_sampler"]),
            seed=int(columns["laurel_seed"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RowError(
            "laurel_...", f"the columns that Laurel wrote are incomplete or were changed ({error})"
        ) from None
    if extended.p_first is not None and not 0 <= extended.p_first <= 1:
        raise RowError("laurel_p_first", f"is {shown(p)}, but must be a number from 0 to 1")
    for name, value, bits in (("votes", extended.votes, 31), ("seed", extended.seed, 63)):
        if not 0 <= value < 2**bits:
            raise RowError(f"laurel_{name}", f"is {shown(value)}, but must be from 0 to {2**bits - 1}")
    if extended.status not in STATUSES or (extended.p_first is None) != (extended.status in UNLABELLED):
        raise RowError("laurel_status", f"is {shown(extended.status)}, which contradicts its probability")
    if row.p_first is not None and (extended.p_first is None or (extended.p_first > 0.5) != (row.p_first > 0.5)):
        raise RowError("laurel_p_first", f"is {shown(p)}, but the row names the other text as better")
    return extended


class Layout(ABC):
    """How a row is laid out."""

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    """Required columns."""
    optional: ClassVar[tuple[str, ...]] = ()
    takes_extras: ClassVar[bool] = True
    """Whether readers of this layout accept extra columns."""

    @abstractmethod
    def read(self, columns: Mapping[str, Any]) -> Row:
        """Read a row.

        Raises:
            RowError: a column is missing or of another type.
        """

    @abstractmethod
    def write(self, row: Row) -> dict[str, Any]:
        """Return a decided row in this layout."""


class TRL(Layout):
    """TRL's preference rows; a conversation of a question and an answer is read as plain text."""

    name = "trl"
    columns = ("chosen", "rejected")
    optional = ("prompt",)

    def read(self, columns: Mapping[str, Any]) -> Row:
        for name in ("margin", "weight"):
            if columns.get(name) not in (None, "", 0, "0", "0.0") and not (name == "weight" and columns[name] == 1):
                raise RowError(
                    name, f"is {shown(columns[name])}, which Laurel's labels cannot hold: leave the column out"
                )
        asked, chosen = _turns(columns, "chosen")
        asked_again, rejected = _turns(columns, "rejected")
        if asked != asked_again:
            raise RowError("rejected", "begins with another message than column chosen")
        prompt = _text(columns, "prompt") if columns.get("prompt") is not None else asked
        if columns.get("laurel_chosen_first") in (False, "False"):
            return Row(prompt, rejected, chosen, 0.0)
        return Row(prompt, chosen, rejected, 1.0)

    def write(self, row: Row) -> dict[str, Any]:
        first = (row.p_first or 0.0) > 0.5
        chosen, rejected = (row.first, row.second) if first else (row.second, row.first)
        return {"prompt": row.prompt, "chosen": chosen, "rejected": rejected, "laurel_chosen_first": first}


class Choice(Layout):
    """The rows of Vertex AI's RLHF pipeline."""

    name = "choice"
    columns = ("candidate_0", "candidate_1", "choice")
    optional = ("input_text",)

    def read(self, columns: Mapping[str, Any]) -> Row:
        value = columns.get("choice")
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # tables store integers as floats if some are missing
        if isinstance(value, bool) or not isinstance(value, int | str) or value not in CHOICES:
            raise RowError("choice", f"is {shown(value)}, but must be 0 or 1 (or candidate_0, candidate_1, tie)")
        prompt = "" if columns.get("input_text") is None else _text(columns, "input_text")
        return Row(prompt, _text(columns, "candidate_0"), _text(columns, "candidate_1"), CHOICES[value])

    def write(self, row: Row) -> dict[str, Any]:
        choice = 0 if (row.p_first or 0.0) > 0.5 else 1
        return {"input_text": row.prompt, "candidate_0": row.first, "candidate_1": row.second, "choice": choice}


class Gemini(Layout):
    """Examples for Gemini's preference tuning: one user turn, and two completions with the scores 1 and 0."""

    name = "gemini"
    columns = ("contents", "completions")
    takes_extras = False

    def read(self, columns: Mapping[str, Any]) -> Row:
        if columns.get("system_instruction") is not None:
            raise RowError("system_instruction", "is not supported: put it into the user's turn")
        contents, completions = columns.get("contents"), columns.get("completions")
        if not isinstance(contents, list) or len(contents) != 1:
            raise RowError("contents", f"is {shown(contents)}, but must be a list of one turn of the user")
        if not isinstance(completions, list) or len(completions) != 2:
            raise RowError("completions", f"is {shown(completions)}, but must be a list of two completions")
        try:
            scores = [float(completion["score"]) for completion in completions]
            first, second = (_parts(completion["completion"]) for completion in completions)
            prompt = _parts(contents[0])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise RowError("contents, completions", f"are not laid out as Gemini's examples are ({error})") from None
        if sorted(scores) != [0.0, 1.0]:
            raise RowError("completions", "must have the score 1 for the better and 0 for the other")
        return Row(prompt, first, second, scores[0])

    def write(self, row: Row) -> dict[str, Any]:
        if not row.prompt:
            raise RowError("contents", "would be empty, which Gemini refuses: give a prompt with --prompt")
        p = 1 if (row.p_first or 0.0) > 0.5 else 0
        completions = [
            {"score": score, "completion": {"role": "model", "parts": [{"text": text}]}}
            for score, text in ((p, row.first), (1 - p, row.second))
        ]
        return {"contents": [{"role": "user", "parts": [{"text": row.prompt}]}], "completions": completions}


LAYOUTS: Mapping[str, Layout] = {layout.name: layout for layout in (TRL(), Choice(), Gemini())}


def layout_of(columns: Sequence[str], source: str) -> Layout:
    """Return the layout that has these columns.

    Raises:
        DataError: no layout has these columns.
    """
    for layout in LAYOUTS.values():
        if {*layout.columns} <= {*columns}:
            return layout
    known = "; ".join(f"{', '.join((*layout.optional, *layout.columns))} ({name})" for name, layout in LAYOUTS.items())
    raise DataError(
        f"{source}: has the columns {shown(', '.join(map(str, columns)) or 'none')}, which are not those of "
        f"preferences: {known}. Rename them."
    )


def _text(columns: Mapping[str, Any], name: str) -> str:
    value = columns.get(name)
    if isinstance(value, list) and len(value) == 1:
        value = _content(value[0])
    if isinstance(value, list):
        raise RowError(name, f"holds {len(value)} messages, but Laurel reads plain text: apply the chat template first")
    return _clean(value, name)


def _turns(columns: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return the user's turn, if the column has one, and the answer."""
    value = columns.get(name)
    if isinstance(value, list) and len(value) == 2:
        return _clean(_content(value[0]), name), _clean(_content(value[1]), name)
    return "", _text(columns, name)


def _content(message: Any) -> Any:
    return message.get("content") if isinstance(message, Mapping) else message


def _clean(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise RowError(name, f"is {'missing or null' if value is None else shown(value)}, but must be text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RowError(name, "holds an unpaired surrogate, which is not valid text") from None
    return value


def _parts(turn: Mapping[str, Any]) -> str:
    (part,) = turn["parts"]
    return _clean(part["text"], "contents, completions")


def _flag(value: Any) -> bool | None:
    """Parse true, false or nothing, also in the spelling of CSV."""
    if value in ("", None):
        return None
    if value in (True, "True"):
        return True
    if value in (False, "False"):
        return False
    raise ValueError(f"{shown(value)} is neither true nor false")
