"""Cost estimates for several annotators that are asked one after the other: a row for each, and a total.

A question that two of them share is counted with the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from laurel.envs.base import EnvAdapter
from laurel.errors import LaurelError
from laurel.feedback.annotator import Pair
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.estimate import BATCH_MINUTES, in_minutes, limits
from laurel.feedback.leaderboard import aligned, plain
from laurel.llm.prices import add_costs, in_words
from laurel.params.annotation import AnnotateParams, BudgetParams
from laurel.params.grid import Cell

HEADS = ("judge", "questions", "stored", "calls", "tokens in", "tokens out", "money", "minutes")
IN_ALL = "in all"


@dataclass(frozen=True, slots=True)
class Needs:
    """The estimated cost of asking one annotator; None is unknown."""

    questions: int = 0
    stored: int = 0
    """Questions with a stored answer, in a batch sent before, or asked by an earlier annotator."""
    calls: int = 0
    input_tokens: float = 0.0
    usual_output: float | None = 0.0
    """Expected output tokens, based on stored answers."""
    most_output: int = 0
    usual_cost: float | None = 0.0
    most_cost: float | None = 0.0
    minutes: float | None = 0.0

    def __add__(self, other: Needs) -> Needs:
        sums = {one.name: add_costs(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)}
        return Needs(**sums)  # type: ignore[arg-type]


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
    found = Forecast()
    asked: dict[Path, set[str]] = {}
    notes: dict[str, None] = {}
    for cell in cells:
        try:
            needs = Needs()
            for voter in cell.annotate.voters:
                more, remarks = _needs(voter, adapter, questions, asked)
                needs += more
                notes |= dict.fromkeys(remarks)
        except LaurelError as error:  # only this one will fail when asked
            found.rows.append((cell.title, None))
            notes[f"{cell.title} would fail: {' '.join(str(error).split())}"] = None
            continue
        found.rows.append((cell.title, needs))
    total = found.total
    spent = {"calls": total.calls, "tokens": total.input_tokens + total.most_output, "cost": total.most_cost}
    stopped = "may be reached, and then unfinished judges fail"
    found.notes = [*notes, *limits(budget, **spent, minutes=total.minutes, reached=stopped)]  # type: ignore[arg-type]
    return found


def _needs(
    voter: AnnotateParams, adapter: EnvAdapter, questions: Sequence[Pair], asked: dict[Path, set[str]]
) -> tuple[Needs, Iterator[str]]:
    """Return the estimate of one annotator with its notes; add its questions to `asked`."""
    kept = asked.setdefault(voter.language_model.store, set())
    found = kind_of(voter).estimate(adapter, questions, kept)
    if found is None:
        return Needs(), iter(())
    kept |= found.to_ask
    batch, price = found.in_batches, found.price
    usual = None if price is None or found.usual_output is None else price.of(found.input_tokens, found.usual_output)
    most = None if price is None else price.of(found.input_tokens, found.most_output)
    needs = Needs(
        questions=found.distinct,
        stored=found.answered + found.sent,
        calls=found.calls,
        input_tokens=found.input_tokens,
        usual_output=found.usual_output if found.calls else 0.0,
        most_output=found.most_output,
        usual_cost=usual if found.calls else 0.0,
        most_cost=most if found.calls else 0.0,
        minutes=float(BATCH_MINUTES) if batch and found.calls else found.minutes,
    )

    def notes() -> Iterator[str]:
        if found.calls:
            yield f"Tokens of {found.model} are {found.counted_by}."
        if found.calls and found.single_price and found.single_price.source:
            yield f"Prices of {found.model} are of {found.single_price.date}: {found.single_price.source}"
        if batch and found.calls:
            yield f"A round of batches may take {BATCH_MINUTES:,} minutes."

    return needs, notes()


def in_table(found: Forecast) -> str:
    """Format a forecast as a table with notes."""
    rows = [[plain(judge), *_cells(needs)] for judge, needs in found.rows]
    if len(rows) > 1:
        rows.append([IN_ALL, *_cells(found.total)])
    notes = ["One more call for each answer that cannot be read, not counted here.", *found.notes]
    return "\n\n".join([aligned([list(HEADS), *rows]), "\n".join(notes)]) + "\n"


def _cells(needs: Needs | None) -> list[str]:
    if needs is None:
        return ["would fail", *[""] * (len(HEADS) - 2)]
    return [
        f"{needs.questions:,.0f}",
        f"{needs.stored:,.0f}",
        f"{needs.calls:,.0f}",
        f"{needs.input_tokens:,.0f}",
        _at_most(None if needs.usual_output is None else f"{needs.usual_output:,.0f}", f"{needs.most_output:,.0f}"),
        "unknown"
        if needs.most_cost is None
        else _at_most(None if needs.usual_cost is None else in_words(needs.usual_cost), in_words(needs.most_cost)),
        in_minutes(needs.minutes),
    ]


def _at_most(usual: str | None, most: str) -> str:
    return most if usual == most else f"{most} at most" if usual is None else f"{usual} ({most} at most)"
