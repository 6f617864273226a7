"""Delete stored answers so that they are asked again, selected by status, model and prompt; shows their cost.

An unreadable answer counts as readable if its follow-up could be read.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from laurel.errors import DataError
from laurel.feedback.keys import QuestionKeys
from laurel.feedback.parsing import ABSTAIN
from laurel.feedback.question import kind_of
from laurel.feedback.unreadable import why_unreadable
from laurel.llm import replies
from laurel.llm.mirror import PATTERN
from laurel.llm.prices import add_costs
from laurel.llm.responses import ResponseStore
from laurel.llm.responses_export import Costs

Status = Literal["readable", "abstain", "unreadable", "damaged"]
CUT = frozenset({"length", replies.REASONING_CUT})


@dataclass(frozen=True, slots=True)
class Wanted:
    """A selection of answers; None matches any."""

    status: Status | None = None
    model: str | None = None
    prompt: str | None = None
    """Its name, or the beginning of its digest."""

    def fits(self, row: Mapping[str, Any], status: Status) -> bool:
        """Whether a row of `ResponseStore.rows` with this status is selected."""
        named = self.prompt is None or row["prompt"] == self.prompt or row["prompt_digest"].startswith(self.prompt)
        return named and self.status in (None, status) and self.model in (None, row["model"])


@dataclass(slots=True)
class Group:
    """Answers of one model to one prompt that have the same status for the same reason."""

    answers: int = 0
    tokens: int = 0
    """Tokens of the counted answers."""
    uncounted: int = 0
    """Answers without a token count."""
    cost: float | None = 0.0
    """US dollars, without those of the uncounted ones that have a price; None if that of another answer is unknown."""
    unpriced: int = 0
    """Answers whose cost is unknown because they have no token count."""


Groups = dict[tuple[str, str, str, str], Group]
"""(model, prompt, status, reason) -> totals."""


def find(store: ResponseStore, wanted: Wanted) -> tuple[list[str], Groups]:
    """Return the keys of the selected answers, in order, and their totals."""
    costs = Costs(None)
    keys: list[str] = []
    groups: Groups = {}
    readable = {row["key"] for row in store.rows() if _status(row) in ("readable", "abstain")}
    for row in store.rows():
        status = _status(row)
        if status == "unreadable" and QuestionKeys.follow_up(row["key"], _text(row)) in readable:
            status = "readable"
        if not wanted.fits(row, status):
            continue
        keys.append(row["key"])
        reason = why_unreadable(_text(row), row["finish_reason"]) if status == "unreadable" else ""
        group = groups.setdefault((row["model"], row["prompt"], status, reason), Group())
        group.answers += 1
        group.tokens += (row["input_tokens"] or 0) + (row["output_tokens"] or 0)
        uncounted, cost = row["input_tokens"] is None or row["output_tokens"] is None, costs.of(row)
        group.uncounted += uncounted
        if uncounted and cost is None:
            group.unpriced += 1
        else:
            group.cost = add_costs(group.cost, cost)
    return keys, groups


def forget(path: Path, wanted: Wanted, *, really: bool) -> Iterator[tuple[Path, int, Groups]]:
    """Delete answers from a store, or from each store of a folder.

    Args:
        path: the store, or the folder; no run may write to it meanwhile.
        really: False only shows the selection.

    Yields:
        File, how many answers it held, and the totals of the selected ones.

    Raises:
        DataError: there is no store, or one cannot be read or written.
    """
    files = sorted(path.glob(PATTERN)) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise DataError(
            f"{path}: no such store of answers. See annotate.language_model.responses, or name it: --store."
        )
    for file in files:
        if not path.is_dir():
            with ResponseStore(file, read_only=not really) as store:
                yield file, len(store), _drop(store, wanted, really=really)
            continue
        with tempfile.TemporaryDirectory(prefix="laurel-") as scratch:  # the folder may be a bucket, without locks
            scratch_file = Path(shutil.copyfile(file, Path(scratch) / file.name))
            with ResponseStore(scratch_file) as store:
                count, groups = len(store), _drop(store, wanted, really=really)
            if really and groups:
                with closing(sqlite3.connect(scratch_file)) as copy:
                    copy.execute("PRAGMA journal_mode = DELETE")  # a copied file must be whole without a log beside it
                partial = file.with_name(f".{file.name}.partial")
                shutil.copyfile(scratch_file, partial)
                partial.replace(file)
            yield file, count, groups


def _drop(store: ResponseStore, wanted: Wanted, *, really: bool) -> Groups:
    keys, groups = find(store, wanted)
    if really:
        store.forget(keys)
    return groups


def _text(row: Mapping[str, Any]) -> str:
    return str(row["text"])[: replies.LONGEST_TEXT]


def _status(row: Mapping[str, Any]) -> Status:
    """Return the status that annotation would give to an answer."""
    if row["damaged"]:
        return "damaged"
    text = _text(row)
    if row["logprobs"] is not None:
        return "readable"
    if len(text) >= replies.LONGEST_TEXT:  # its end is not stored
        return "unreadable"
    asked = [message["content"] for message in json.loads(row["messages"]) if message["role"] == "user"]
    verdict = kind_of(row["prompt"]).verdict_of_stored(text, asked, cut=row["finish_reason"] in CUT)
    return "unreadable" if verdict is None else "abstain" if verdict == ABSTAIN else "readable"
