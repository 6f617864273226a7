"""Cost estimates: calls, tokens, money and minutes of a run, before anything is asked, as lines of text.

`AnnotatorKind.estimate` computes the figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from laurel.llm.prices import Price, in_words
from laurel.params.annotation import BudgetParams

BATCH_MINUTES = 24 * 60
"""Minutes after which a batch is answered, or has failed."""


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of a run."""

    annotator: str
    model: str
    pairs: int
    identical: int
    """Pairs of identical texts, which are ties without asking."""
    distinct: int
    """Distinct questions, with each order and vote counted."""
    orders: int
    """Orders in which each pair is asked about."""
    votes: int
    """Votes in each order."""
    responses: Path
    """Path of the response store in the params."""
    answered: int
    """Distinct questions with a stored answer."""
    sent: int
    """Further questions in batches that were sent before."""
    input_tokens: float
    """Input tokens of the questions that are still to be asked."""
    counted_by: str
    """How tokens were counted, as text."""
    most_output: int
    """Maximum number of output tokens."""
    usual_output: float | None
    """Expected output tokens, based on stored answers; None without any."""
    single_price: Price | None
    """Price of live calls; None where it is unknown."""
    minutes: float | None
    """Minutes of live calls; None where they cannot be estimated."""
    minutes_by: str
    """Limiting factor of the speed, as text."""
    can_batch: bool
    """Whether the Batch API could be used."""
    in_batches: bool
    """Whether it is used."""
    to_ask: frozenset[str]
    """Keys of the questions that are still to be asked."""

    @property
    def batch_price(self) -> Price | None:
        """Return the price of asking in batches; None where it is unknown."""
        return self.single_price.in_batches() if self.single_price else None

    @property
    def price(self) -> Price | None:
        """Return the price of asking as the run does; None where it is unknown."""
        return self.batch_price if self.in_batches else self.single_price

    @property
    def calls(self) -> int:
        """Return the number of requests, without follow-ups."""
        return self.distinct - self.answered - self.sent

    def costs(self, price: Price | None) -> str:
        """Return the cost of asking at a price as text: the expected and maximum amounts."""
        if price is None:
            return "unknown"
        most = in_words(price.of(self.input_tokens, self.most_output))
        if self.usual_output is None:
            return f"{most} at most"
        return f"{in_words(price.of(self.input_tokens, self.usual_output))}, {most} at most"


def in_lines(found: Estimate, budget: BudgetParams) -> str:
    """Write an estimate as lines of text."""
    orders = "both orders" if found.orders > 1 else "one order"
    ways = f"{orders}, {found.votes} vote{'s' * (found.votes > 1)} each"
    same = f", {found.identical:,} of identical texts, which are ties without asking" if found.identical else ""
    usual = "" if found.usual_output is None else f"{found.usual_output:,.0f} if like the stored answers, "
    price = found.single_price
    dated = f"  (prices of {price.date}: {price.source})" if price and price.source else ""
    lines = [
        ("annotator", found.annotator),
        ("pairs", f"{found.pairs:,}{same}"),
        ("questions", f"{found.distinct:,} distinct ({ways})"),
        ("answered", f"{found.answered:,} of them, in {found.responses}"),
        *([("sent", f"{found.sent:,} more are in batches that wait to be fetched")] if found.sent else []),
        ("calls", f"{found.calls:,}, and one more for each answer that cannot be read, not counted below"),
        ("tokens in", f"{found.input_tokens:,.0f} ({found.counted_by})"),
        ("tokens out", f"{usual}{found.most_output:,} at most"),
        ("money", f"{found.costs(price)}{dated}"),
        ("minutes", f"{in_minutes(found.minutes)} ({found.minutes_by})"),
    ]
    if found.can_batch:
        within = f"up to {BATCH_MINUTES:,} minutes for each round of batches"
        lines += [("in batches", f"{found.costs(found.batch_price)}; {within}")]
    lines += [("budget", sentence) for sentence in _budget(found, budget)]
    width = max(len(name) for name, _ in lines) + 2
    return "".join(f"{name:<{width}}{value}\n" for name, value in lines)


def in_minutes(minutes: float | None) -> str:
    """Format a number of minutes; a small amount is not shown as 0.0.

    >>> in_minutes(0.0), in_minutes(0.02), in_minutes(1442.0), in_minutes(None)
    ('0.0', 'below 0.1', '1,442.0', 'unknown')
    """
    if minutes is None:
        return "unknown"
    return "below 0.1" if 0 < minutes < 0.1 else f"{minutes:,.1f}"


def _budget(found: Estimate, budget: BudgetParams) -> Iterator[str]:
    """Return lines about limits that may be reached."""
    price = found.price
    yield from limits(
        budget,
        calls=found.calls,
        tokens=found.input_tokens + found.most_output,
        cost=price.of(found.input_tokens, found.most_output) if price else None,
        minutes=found.minutes,
        reached=f"may be reached, and then: {budget.on_limit}",
    )


def limits(
    budget: BudgetParams, *, calls: int, tokens: float, cost: float | None, minutes: float | None, reached: str
) -> Iterator[str]:
    """Return a line per limit: whether these amounts may reach it, and what happens then (`reached`)."""
    taken = (
        ("max_calls", budget.max_calls, calls),
        ("max_tokens", budget.max_tokens, tokens),
        ("max_cost", budget.max_cost, cost),
        ("max_minutes", budget.max_minutes, minutes),
    )
    for name, limit, most in taken:
        if limit is None:
            continue
        shown = in_words(limit) if name == "max_cost" else f"{limit:,}"
        if most is None and name == "max_cost":
            yield f"{shown} cannot be enforced: the price is unknown (annotate.budget.prices)"
        elif most is None:
            yield f"{name} {shown}: it is unknown whether that suffices"
        else:
            yield f"{name} {shown}: {reached if most > limit else 'suffices'}"
