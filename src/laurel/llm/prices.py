"""Prices of models, with dates, and the cost of answers.

A model that is not in the table has an unknown price, which never counts as 0.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError

from laurel.errors import ParamsError
from laurel.llm.chat import Identity, Reply
from laurel.params.fields import NonNegative, Section
from laurel.params.file import MOST_BYTES, parse_yaml, sentence, shown
from laurel.textfile import UnfitFileError, read_text

PACKAGED = Path(__file__).with_name("prices.yaml")
MILLION = 1_000_000
_ENTRIES = f"Each entry has model, date, source, input and output, as in {PACKAGED}; see annotate.budget.prices."
_SNAPSHOT = re.compile(r"-\d{4}-\d{2}-\d{2}$")


def uncached(input_tokens: float, cached_tokens: float) -> float:
    """Return the input tokens that did not come from the server's cache.

    Those that did are among `input_tokens`, except where they are more than these: such a server counts them apart.
    """
    return input_tokens - cached_tokens if cached_tokens <= input_tokens else input_tokens


class Price(Section):
    """US dollars for a million tokens of a model."""

    model: str
    """Name of the model at the server."""
    endpoint: str | None = None
    """The server; None: any."""
    date: datetime.date
    """Day on which the price was valid."""
    source: str
    """Source of the price."""
    input: NonNegative
    cached_input: NonNegative | None = None
    """Price of input that the server has cached; None: that of any input."""
    output: NonNegative
    batch: NonNegative | None = None
    """Price of a batch as a fraction of the live price; None: unknown."""

    def of(self, input_tokens: float, output_tokens: float, cached_tokens: float = 0.0) -> float:
        """Return dollars.

        Args:
            cached_tokens: input tokens from the server's cache, which may be among `input_tokens` (`uncached`).
        """
        cached = self.input if self.cached_input is None else self.cached_input
        paid = uncached(input_tokens, cached_tokens) * self.input + cached_tokens * cached + output_tokens * self.output
        return paid / MILLION

    def of_reply(self, reply: Reply) -> float | None:
        """Return dollars for an answer; None if its tokens are unknown and not free."""
        if reply.input_tokens is None or reply.output_tokens is None:
            return None if self.input or self.output else 0.0
        return self.of(reply.input_tokens, reply.output_tokens, reply.cached_tokens or 0)

    def in_batches(self) -> Price | None:
        """Return the price of batches; None if unknown."""
        if self.batch is None:
            return None
        parts = ("input", "cached_input", "output")
        cheaper = {name: getattr(self, name) * self.batch for name in parts if getattr(self, name) is not None}
        return self.model_copy(update={**cheaper, "batch": None})


FREE = Price(model="a model in this process", date=datetime.date.min, source="", input=0.0, output=0.0, batch=1.0)
"""Price of a local model: tokens are free, although the machine is not."""


class Prices:
    """Tables of prices: one of the user's own, if any, and the packaged one.

    Args:
        table: a table that is looked up first.

    Raises:
        ParamsError: a table cannot be read, or is malformed.
    """

    def __init__(self, table: Path | None = None) -> None:
        self._tables = [read_prices(file) for file in (table, PACKAGED) if file is not None]

    def of(self, identity: Identity, day: datetime.date) -> Price | None:
        """Return the price of a model on a day; None if unknown.

        If the table begins later, its first price is used, as no earlier one was recorded.
        """
        if not identity.endpoint:
            return FREE
        names = (identity.model, _SNAPSHOT.sub("", identity.model))
        for table in self._tables:
            for name in names:
                known = [
                    price for price in table if price.model == name and price.endpoint in (None, identity.endpoint)
                ]
                if known:
                    return min(known, key=lambda price: _distance(price, day))
        return None


def _distance(price: Price, day: datetime.date) -> tuple[bool, bool, datetime.timedelta]:
    """Order prices: prices of the server itself first, then prices valid on the day, then by distance in time."""
    return price.endpoint is None, price.date > day, abs(day - price.date)


def price_of(identity: Identity, table: Path | None = None) -> Price | None:
    """Return today's price of a model; None if unknown.

    Args:
        identity: the model; one without an endpoint runs in this process.
        table: a table that is looked up first.

    Raises:
        ParamsError: a table cannot be read, or is malformed.
    """
    if not identity.endpoint:
        return FREE
    return Prices(table).of(identity, datetime.datetime.now(datetime.UTC).date())


def read_prices(file: Path) -> Sequence[Price]:
    """Read a table of prices.

    Raises:
        ParamsError: the file is missing or malformed.
    """
    try:
        content = parse_yaml(read_text(file, MOST_BYTES))
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
    except UnfitFileError as error:
        reason = str(error).rstrip(".")
    except RecursionError:
        reason = "it is nested too deeply"
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
    else:
        if isinstance(content, list):
            return [_price(entry, f"{file}: entry {number}") for number, entry in enumerate(content, 1)]
        reason = f"it is {shown(content)}, but must be a list"
    raise ParamsError(f"{file}: cannot be read as a table of prices ({reason}). {_ENTRIES}")


def _price(entry: object, source: str) -> Price:
    try:
        return Price.model_validate(entry)
    except ValidationError as error:
        raise ParamsError(f"{sentence(source, Price, error.errors(include_url=False)[0])} {_ENTRIES}") from None


def add_costs(*costs: float | None) -> float | None:
    """Add up dollars; a sum with an unknown part is unknown.

    >>> add_costs(1.0, None) is None
    True
    """
    known = [cost for cost in costs if cost is not None]
    return sum(known, 0.0) if len(known) == len(costs) else None


def in_words(cost: float | None) -> str:
    """Format an amount of dollars with as many digits as it needs.

    >>> in_words(0.00123), in_words(12.5), in_words(0.0), in_words(None)
    ('$0.0012', '$12.50', '$0.00', 'unknown')
    """
    if cost is None:
        return "unknown"
    return f"${cost:,.2f}" if cost == 0 or cost >= 0.1 else f"${cost:.2g}" if cost >= 1e-4 else "below $0.0001"


def in_full(cost: float) -> str:
    """Format an amount of dollars beside which others are compared: a limit as it was set, or what was spent of it.

    >>> in_full(0.0999), in_full(0.09984321), in_full(1), in_full(12.3456), in_full(0.00001)
    ('$0.0999', '$0.099843', '$1.00', '$12.3456', '$0.00001')
    """
    dollars, _, cents = f"{cost:,.{6 if cost >= 1e-4 else 12}f}".partition(".")
    return f"${dollars}.{cents.rstrip('0'):0<2}"
