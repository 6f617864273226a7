"""Cost of answers: the price table entry used, and reports of unknown prices."""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.errors import ParamsError
from laurel.llm.chat import Identity, Reply
from laurel.llm.prices import FREE, PACKAGED, Price, Prices, add_costs, in_words, price_of, read_prices

OPENAI = "https://api.openai.com/v1"
ENTRY = "{model: m, date: 2026-01-31, source: here, input: 1.0, output: 2.0"


def price(**fields: object) -> Price:
    base = {"model": "m", "date": datetime.date(2026, 1, 31), "source": "here", "input": 2.0, "output": 8.0}
    return Price(**{**base, **fields})  # type: ignore[arg-type]


def table(path: Path, *entries: str) -> Path:
    path.write_text("\n".join(f"- {entry}" for entry in entries))
    return path


def test_every_packaged_price_says_when_and_where_it_was_read() -> None:
    prices = read_prices(PACKAGED)
    assert len(prices) > 10
    assert len({(price_row.model, price_row.endpoint, price_row.date) for price_row in prices}) == len(prices)
    for price_row in prices:
        assert price_row.source.startswith("https://")
        assert price_row.date > datetime.date(2025, 1, 1)
        assert price_row.endpoint is not None, "another server asks another price"
        assert price_row.output > price_row.input > (price_row.cached_input or 0.0)


def test_a_model_is_found_by_name_and_server() -> None:
    known = price_of(Identity("gpt-5-mini", endpoint=OPENAI))
    assert known is not None
    assert (known.input, known.cached_input, known.output) == (0.25, 0.025, 2.0)
    assert price_of(Identity("gpt-5-mini-2025-08-07", endpoint=OPENAI)) == known
    assert price_of(Identity("gpt-5-mini", endpoint="http://localhost:8000/v1")) is None
    assert price_of(Identity("gpt-5-mini-of-mine", endpoint=OPENAI)) is None
    assert price_of(Identity("gpt-5-mini")) is FREE, "in this process"


def test_the_latest_price_counts_and_ones_own_before_the_packaged(tmp_path: Path) -> None:
    file = table(
        tmp_path / "own.yaml",
        "{model: m, date: 2026-01-31, source: here, input: 1.0, output: 2.0}",
        "{model: m, date: 2026-03-31, source: here, input: 3.0, output: 4.0}",
        "{model: m, date: 2026-02-28, source: here, input: 5.0, output: 6.0}",
        "{model: m, date: 2025-01-01, source: here, input: 7.0, output: 8.0, endpoint: 'http://here/v1'}",
        "{model: gpt-5-mini, date: 2020-01-01, source: here, input: 9, output: 9}",
    )
    inputs = {
        endpoint: getattr(price_of(Identity("m", endpoint=endpoint), file), "input", None)
        for endpoint in ("http://here/v1", "http://there/v1")
    }
    assert inputs == {"http://here/v1": 7.0, "http://there/v1": 3.0}
    assert getattr(price_of(Identity("gpt-5-mini", endpoint=OPENAI), file), "input", None) == 9.0


def test_the_price_of_a_given_day(tmp_path: Path) -> None:
    file = table(
        tmp_path / "own.yaml",
        "{model: m, date: 2026-03-01, source: here, input: 3.0, output: 4.0}",
        "{model: m, date: 2026-01-01, source: here, input: 1.0, output: 2.0}",
        "{model: m, date: 2026-02-01, source: here, input: 7.0, output: 8.0, endpoint: 'http://here/v1'}",
        "{model: m, date: 9999-01-01, source: here, input: 5.0, output: 6.0}",
    )
    prices, there = Prices(file), Identity("m", endpoint="http://there/v1")
    days = {(2025, 1, 1): 1.0, (2026, 1, 1): 1.0, (2026, 2, 28): 1.0, (2026, 3, 1): 3.0, (9999, 1, 1): 5.0}
    assert {day: getattr(prices.of(there, datetime.date(*day)), "input", None) for day in days} == days
    assert getattr(price_of(there, file), "input", None) == 3.0, "one that is only announced does not hold"
    here = prices.of(Identity("m", endpoint="http://here/v1"), datetime.date(2025, 1, 1))
    assert getattr(here, "input", None) == 7.0, "the server's own before any"


def test_a_million_tokens_cost_what_the_table_says() -> None:
    known = price(cached_input=0.5, batch=0.5)
    assert known.of(1_000_000, 0) == 2.0
    assert known.of(0, 1_000_000) == 8.0
    assert known.of(1_000_000, 0, 1_000_000) == 0.5
    assert price().of(1_000_000, 0, 1_000_000) == 2.0
    assert known.of_reply(Reply("x", None, 1000, 500, cached_tokens=200)) == pytest.approx(0.0016 + 0.0001 + 0.004)
    apart = known.of_reply(Reply("x", None, 200, 500, cached_tokens=1000))
    assert apart == pytest.approx(0.0004 + 0.0005 + 0.004), "a server that counts cached tokens apart: not negative"
    batch = known.in_batches()
    assert batch is not None
    assert batch.of(1_000_000, 1_000_000) == 5.0
    assert price().in_batches() is None


def test_unknown_prices_are_not_zero() -> None:
    assert price().of_reply(Reply("x")) is None
    assert FREE.of_reply(Reply("x")) == 0.0
    assert add_costs(1.0, None, 2.0) is None
    assert add_costs(1.0, 2.0) == 3.0
    assert in_words(None) == "unknown"


@given(st.floats(0, 1e6))
def test_no_positive_cost_is_shown_as_zero(cost: float) -> None:
    said = in_words(cost)
    if cost:
        assert said != "$0.00"
    if "below" not in said:
        assert math.isclose(float(said.lstrip("$").replace(",", "")), cost, rel_tol=0.05)


UNREAD = "cannot be read as a table of prices"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, f"{UNREAD} (No such file"),
        ("- [", f"{UNREAD} (while parsing"),
        ("prices: 3", f"{UNREAD} (it is a mapping of 1, but must be a list)."),
        (f"- {ENTRY.replace('input: 1.0', 'input: -1')}}}", "entry 1: input is -1, but must be "),
        (
            f"- {ENTRY}}}\n- {ENTRY}, cached: 1}}",
            'entry 2: cached is unknown. Did you mean "cached_input"? Allowed here',
        ),
        (f"- {ENTRY.replace('output: 2.0', 'output: .nan')}}}", "entry 1: output is nan, but must be "),
        (f"- {ENTRY}, input: -1}}", '"input" is set twice'),
        ("- {model: m, input: 1, output: 2, source: x}", "entry 1: date is missing; it has no default."),
        ("- 3", "entry 1: it is 3, but must be a mapping with keys model, "),
        (b"\xff\xfe\xff", "not text in UTF-8"),
    ],
)
def test_an_invalid_table(tmp_path: Path, content: str | bytes | None, says: str) -> None:
    file = tmp_path / "own.yaml"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ParamsError) as caught:
        price_of(Identity("m", endpoint="x"), file)
    assert str(caught.value).startswith(f"{file}: {says}" if says.startswith(("entry", UNREAD)) else f"{file}: ")
    assert says in str(caught.value)
    assert "annotate.budget.prices" in str(caught.value)
