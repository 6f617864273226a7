"""Cost estimates for several annotators that are asked one after the other: a row for each, and a total.

A question that two of them share is counted with the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from laurel.envs.base import EnvAdapter
from laurel.errors import LaurelError
from laurel.feedback.annotator import Pair
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.estimate import BATCH_MINUTES, Needs, at_most, in_minutes, limits, money
from laurel.feedback.leaderboard import aligned, plain
from laurel.params.annotation import AnnotateParams, BudgetParams
from laurel.params.grid import Cell

HEADS = ("judge", "questions", "stored", "calls", "tokens in", "tokens out", "money", "minutes")
IN_ALL = "in all"


@dataclass(slots=True)
class Forecast:
    """The estimates of all annotators."""

    rows: list[tuple[str, Needs | None]] = field(default_factory=list)
    """Annotator and estimate; None where it cannot be asked."""
    notes: list[str] = field(default_factory=list)

    @property
    def total(self) -> Needs:
        """Return the sum over the judges that can be asked."""
        return sum((needs for _, needs in self.rows if needs is not None), Needs())


def forecast(cells: Sequence[Cell], adapter: EnvAdapter, questions: Sequence[Pair], budget: BudgetParams) -> Forecast:
    """Estimate the cost of a grid.

    Raises:
        DataError: a store of answers cannot be read.
    """
    result = Forecast()
    asked: dict[Path, set[str]] = {}
    notes: dict[str, None] = {}
    for cell in cells:
        try:
            needs = Needs()
            for voter in cell.annotate.voters:
                added, remarks = _needs(voter, adapter, questions, asked)
                needs += added
                notes |= dict.fromkeys(remarks)
        except LaurelError as error:  # only this one will fail when asked
            result.rows.append((cell.title, None))
            notes[f"{cell.title} would fail: {' '.join(str(error).split())}"] = None
            continue
        result.rows.append((cell.title, needs))
    stopped = "may be reached, and then unfinished judges fail"
    result.notes = [*notes, *limits(budget, result.total, stopped)]
    return result


def _needs(
    voter: AnnotateParams, adapter: EnvAdapter, questions: Sequence[Pair], asked: dict[Path, set[str]]
) -> tuple[Needs, Iterator[str]]:
    """Return the estimate of one annotator with its notes; add its questions to `asked`."""
    kept = asked.setdefault(voter.language_model.store, set())
    kind = kind_of(voter)
    estimate = kind.estimate(adapter, questions, kept)
    if estimate is None and not kind.estimates:
        return _UNKNOWN, iter([f"{kind.title} does not estimate its calls and cost."])
    if estimate is None:
        return Needs(), iter(())
    kept |= estimate.to_ask

    def notes() -> Iterator[str]:
        if estimate.calls:
            yield f"Tokens of {estimate.model} are {estimate.counted_by}."
        if estimate.calls and estimate.single_price and estimate.single_price.source:
            yield f"Prices of {estimate.model} are of {estimate.single_price.date}: {estimate.single_price.source}"
        if estimate.in_batches and estimate.calls:
            yield f"A round of batches may take {BATCH_MINUTES:,} minutes."

    return estimate.needs, notes()


_UNKNOWN = Needs(usual_output=None, usual_cost=None, most_cost=None, minutes=None)
"""Of an annotator that does not estimate them."""


def in_table(result: Forecast) -> str:
    """Format a forecast as a table with notes."""
    rows = [[plain(judge), *_cells(needs)] for judge, needs in result.rows]
    if len(rows) > 1:
        rows.append([IN_ALL, *_cells(result.total)])
    notes = ["One more call for each answer that cannot be read, not counted here.", *result.notes]
    return "\n\n".join([aligned([list(HEADS), *rows]), "\n".join(notes)]) + "\n"


def _cells(needs: Needs | None) -> list[str]:
    if needs is None:
        return ["would fail", *[""] * (len(HEADS) - 2)]
    if needs == _UNKNOWN:
        return ["unknown"] * (len(HEADS) - 1)
    return [
        f"{needs.questions:,.0f}",
        f"{needs.stored:,.0f}",
        f"{needs.calls:,.0f}",
        f"{needs.input_tokens:,.0f}",
        at_most(None if needs.usual_output is None else f"{needs.usual_output:,.0f}", f"{needs.most_output:,.0f}"),
        money(needs),
        in_minutes(needs.minutes),
    ]
