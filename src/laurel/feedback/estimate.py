"""Cost estimates: calls, tokens, money and minutes of a run, before anything is asked, as lines of text.

`AnnotatorKind.estimate` computes the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from laurel.llm.prices import Price, add_costs, in_full, in_words
from laurel.params.annotation import BudgetParams

BATCH_MINUTES = 24 * 60
"""Minutes after which a batch is answered, or has failed."""


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
    sent: int = 0
    """Questions in a batch sent before, which count in the budget once their answers are fetched."""
    sent_tokens: float = 0.0
    """Their tokens at most."""
    sent_cost: float | None = 0.0

    def __add__(self, other: Needs) -> Needs:
        sums = {field.name: add_costs(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)}
        return Needs(**sums)  # type: ignore[arg-type]


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
    sent_input: float
    """Input tokens of these questions."""
    sent_output: int
    """Their maximum number of output tokens."""
    twice: int
    """Questions that are asked live although they are in batches that were sent before."""
    input_tokens: float
    """Input tokens of the questions that are still to be asked."""
    counted_by: str
    """How tokens were counted, as text."""
    too_long: str | None
    """Why some of the counted questions get no answer, if they are longer than the model takes."""
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

    @property
    def needs(self) -> Needs:
        """Return the amounts, to be added to those of other annotators."""
        price = self.price
        usual = None if price is None or self.usual_output is None else price.of(self.input_tokens, self.usual_output)
        maximum = None if price is None else price.of(self.input_tokens, self.most_output)
        return Needs(
            questions=self.distinct,
            stored=self.answered + self.sent,
            calls=self.calls,
            input_tokens=self.input_tokens,
            usual_output=self.usual_output if self.calls else 0.0,
            most_output=self.most_output,
            usual_cost=usual if self.calls else 0.0,
            most_cost=maximum if self.calls else 0.0,
            minutes=float(BATCH_MINUTES) if self.in_batches and (self.calls or self.sent) else self.minutes,
            sent=self.sent,
            sent_tokens=self.sent_input + self.sent_output,
            sent_cost=self.sent_cost,
        )

    @property
    def sent_cost(self) -> float | None:
        """Return the cost at most of the questions in batches that were sent before; None where it is unknown."""
        if not self.sent:
            return 0.0
        return None if self.price is None else self.price.of(self.sent_input, self.sent_output)

    def costs(self, price: Price | None) -> str:
        """Return the cost of asking at a price as text: the expected and maximum amounts."""
        if not self.calls:
            return in_words(0.0)
        if price is None:
            return "unknown"
        maximum = in_words(price.of(self.input_tokens, self.most_output))
        if self.usual_output is None:
            return f"{maximum} at most"
        return f"{in_words(price.of(self.input_tokens, self.usual_output))}, {maximum} at most"


FOLLOW_UPS = "and one more for each answer that cannot be read, not counted below"


def in_lines(estimate: Estimate, limits: Sequence[str] = ()) -> str:
    """Write an estimate as lines of text, with those about the limits of the budget."""
    orders = "both orders" if estimate.orders > 1 else "one order"
    ways = f"{orders}, {estimate.votes} vote{'s' * (estimate.votes > 1)} each"
    identical = (
        f", {estimate.identical:,} of identical texts, which are ties without asking" if estimate.identical else ""
    )
    usual = "" if estimate.usual_output is None else f"{estimate.usual_output:,.0f} if like the stored answers, "
    price = estimate.single_price
    dated = f"  (prices of {price.date}: {price.source})" if price and price.source else ""
    lines = [
        ("annotator", estimate.annotator),
        ("pairs", f"{estimate.pairs:,}{identical}"),
        ("questions", f"{estimate.distinct:,} distinct ({ways})"),
        ("answered", f"{estimate.answered:,} of them, in {estimate.responses}"),
        *([("sent", _sent(estimate))] if estimate.sent else []),
        ("calls", f"{estimate.calls:,}, {FOLLOW_UPS}"),
        *([("twice", _twice(estimate))] if estimate.twice else []),
        ("tokens in", f"{estimate.input_tokens:,.0f} ({estimate.counted_by})"),
        *([("too long", f"some questions get no answer: {estimate.too_long}")] if estimate.too_long else []),
        ("tokens out", f"{usual}{estimate.most_output:,} at most"),
        ("money", f"{estimate.costs(estimate.price)}{' in batches' * estimate.in_batches}{dated}"),
    ]
    live, rounds = f"{in_minutes(estimate.minutes)} ({estimate.minutes_by})", "for each round of batches"
    if estimate.in_batches:
        awaited = f"up to {BATCH_MINUTES:,} {rounds}" if estimate.calls or estimate.sent else live
        lines += [("minutes", awaited), ("live", f"{estimate.costs(price)}; minutes {live}")]
    else:
        lines += [("minutes", live)]
        if estimate.can_batch:
            lines += [
                ("in batches", f"{estimate.costs(estimate.batch_price)}; up to {BATCH_MINUTES:,} minutes {rounds}")
            ]
    return _aligned([*lines, *(("budget", limit) for limit in limits)])


def _sent(estimate: Estimate) -> str:
    cost = "unknown cost" if estimate.sent_cost is None else f"cost, {in_words(estimate.sent_cost)} at most,"
    return f"{estimate.sent:,} more are in batches that are not fetched yet; their calls and {cost} count when they are"


def _twice(estimate: Estimate) -> str:
    some = "1 of them is in a batch" if estimate.twice == 1 else f"{estimate.twice:,} of them are in batches"
    return (
        f"{some} that {'was' if estimate.twice == 1 else 'were'} sent before, so they are paid for twice; set "
        "annotate.openai.mode to batch to fetch their answers instead"
    )


def total_lines(needs: Needs, limits: Sequence[str]) -> str:
    """Write the sum over several annotators, and the limits of the budget that they share."""
    usual = None if needs.usual_output is None else f"{needs.usual_output:,.0f}"
    lines = [
        ("calls", f"{needs.calls:,.0f}, {FOLLOW_UPS}"),
        ("tokens in", f"{needs.input_tokens:,.0f}"),
        ("tokens out", at_most(usual, f"{needs.most_output:,.0f}")),
        ("money", money(needs)),
        ("minutes", in_minutes(needs.minutes)),
    ]
    return _aligned([*lines, *(("budget", limit) for limit in limits)])


def _aligned(lines: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in lines) + 2
    return "".join(f"{name:<{width}}{value}\n" for name, value in lines)


def money(needs: Needs) -> str:
    """Write the expected and the maximum cost."""
    if needs.most_cost is None:
        return "unknown"
    return at_most(None if needs.usual_cost is None else in_words(needs.usual_cost), in_words(needs.most_cost))


def at_most(usual: str | None, maximum: str) -> str:
    """Write an expected amount, if known, and the maximum."""
    return maximum if usual == maximum else f"{maximum} at most" if usual is None else f"{usual} ({maximum} at most)"


def in_minutes(minutes: float | None) -> str:
    """Format a number of minutes; a small amount is not shown as 0.0.

    >>> in_minutes(0.0), in_minutes(0.02), in_minutes(1442.0), in_minutes(None)
    ('0.0', 'below 0.1', '1,442.0', 'unknown')
    """
    if minutes is None:
        return "unknown"
    return "below 0.1" if 0 < minutes < 0.1 else f"{minutes:,.1f}"


def limits(budget: BudgetParams, needs: Needs, reached: str) -> Iterator[str]:
    """Return a line per limit: whether these amounts may reach it, and what happens then (`reached`)."""
    taken = (
        ("max_calls", budget.max_calls, needs.calls + needs.sent),
        ("max_tokens", budget.max_tokens, needs.input_tokens + needs.most_output + needs.sent_tokens),
        ("max_cost", budget.max_cost, add_costs(needs.most_cost, needs.sent_cost)),
        ("max_minutes", budget.max_minutes, needs.minutes),
    )
    for name, limit, amount in taken:
        if limit is None:
            continue
        shown = in_full(limit) if name == "max_cost" else f"{limit:,}"
        if amount is None and name == "max_cost":
            yield f"{shown} cannot be enforced: the price is unknown (annotate.budget.prices), so nothing will be asked"
        elif amount is None:
            yield f"{name} {shown}: it is unknown whether that suffices"
        else:
            yield f"{name} {shown}: {reached if amount > limit else 'suffices'}"
