"""The store of answers as a Parquet file: complete, in a fixed order, without secrets."""

from __future__ import annotations

import json
import random
import sqlite3
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from laurel.cli.app import main
from laurel.cli.export import RESPONSES
from laurel.errors import DataError
from laurel.llm.chat import ChatRequest, Identity, Message, Reply, Sampling
from laurel.llm.responses import Exchange, ResponseStore
from laurel.llm.responses_export import export_responses
from laurel.params.judges import LanguageModelParams

WHO = Identity("model-a", "rev", "http://127.0.0.1:1/v1")


def exchanges(n: int) -> list[Exchange]:
    made = []
    for i in range(n):
        system = Message("system", "You judge texts. " * 40)
        request = ChatRequest((system, Message("user", f"Which is better: “a{i}” or \ud800{i}?")), Sampling(seed=i % 2))
        reply = Reply(f"Text {i} é", {"1": -0.5, "2": -1.0} if i % 2 else None, 10 + i, None, "stop", 0.25, 2)
        made.append(Exchange(f"{i:032x}", WHO, request, reply, "motif", "abc"))
    return made


def fill(path: Path, some: list[Exchange]) -> Path:
    with ResponseStore(path) as store:
        for stored in some:
            store.put(stored)
    return path


def test_all_questions_and_answers_are_exported(tmp_path: Path) -> None:
    some = exchanges(30)
    shuffled = random.Random(0).sample(some, len(some))
    assert export_responses(fill(tmp_path / "r.db", shuffled), tmp_path / "new" / "r.parquet") == 30
    rows = pq.read_table(tmp_path / "new" / "r.parquet").to_pylist()
    assert [row["key"] for row in rows] == [stored.key for stored in some]
    for row, stored in zip(rows, some, strict=True):
        assert json.loads(row["messages"]) == [asdict(message) for message in stored.request.messages]
        assert (row["model"], row["revision"], row["endpoint"]) == ("model-a", "rev", "http://127.0.0.1:1/v1")
        assert (row["prompt"], row["prompt_digest"]) == ("motif", "abc")
        assert json.loads(row["sampling"])["seed"] == stored.request.sampling.seed
        assert (row["text"], row["input_tokens"], row["output_tokens"]) == (
            stored.reply.text,
            stored.reply.input_tokens,
            None,
        )
        assert (None if row["logprobs"] is None else json.loads(row["logprobs"])) == stored.reply.logprobs
        assert row["asked_at"].year >= 2025


def test_costs_of_answers_are_exported_if_prices_are_known(tmp_path: Path) -> None:
    request = ChatRequest((Message("user", "a"),))
    replies = {
        "a": (Identity("m", "", "http://h/v1"), Reply("x", None, 100, 10, "stop", 0.5, 40)),
        "b": (Identity("m", "", "http://h/v1"), Reply("x", None, 100, 10)),  # of a batch
        "c": (Identity("m", "", "http://h/v1"), Reply("x", None, None, 10, "stop", 0.5)),
        "d": (Identity("other", "", "http://h/v1"), Reply("x", None, 100, 10, "stop", 0.5)),
        "e": (Identity("here"), Reply("", {"1": 0.0}, 100, 0)),
    }
    store = fill(
        tmp_path / "r.db", [Exchange(key, who, request, said, "p", "d") for key, (who, said) in replies.items()]
    )
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "- {model: m, date: 2026-01-31, source: s, input: 1000, cached_input: 500, output: 10000, batch: 0.5}"
    )
    export_responses(store, tmp_path / "r.parquet", prices)
    costs = pq.read_table(tmp_path / "r.parquet")["cost_usd"].to_pylist()
    assert costs == [pytest.approx(0.06 + 0.02 + 0.1), pytest.approx(0.1), None, None, 0.0]


def test_a_recorded_cost_counts_and_otherwise_the_days_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    who, said = Identity("m", "", "http://h/v1"), Reply("x", None, 100, 10, "stop", 0.5)
    request = ChatRequest((Message("user", "a"),))
    path = tmp_path / "r.db"
    for key, month, cost in (("a", 1, 0.125), ("b", 1, None), ("c", 3, None), ("d", 3, 0.0)):
        monkeypatch.setattr("time.time", datetime(2026, month, 31, tzinfo=UTC).timestamp)
        fill(path, [Exchange(key, who, request, said, "p", "d", cost)])
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "- {model: m, date: 2026-03-31, source: s, input: 2000, output: 0}\n"
        "- {model: m, date: 2026-01-01, source: s, input: 1000, output: 0}\n"
    )
    export_responses(path, tmp_path / "r.parquet", prices)
    rows = pq.read_table(tmp_path / "r.parquet").to_pylist()
    assert [row["cost_usd"] for row in rows] == [0.125, pytest.approx(0.1), pytest.approx(0.2), 0.0]


def test_shared_parts_of_questions_are_stored_once(tmp_path: Path) -> None:
    path = fill(tmp_path / "r.db", exchanges(30))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM contexts").fetchone() == (2,)
        (longest,) = connection.execute("SELECT max(length(messages)) FROM responses").fetchone()
    assert longest < 80, "the words of the prompt are not in every row"


def test_equal_stores_give_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1.8e9)
    some = exchanges(30)
    for name, order in (("a", some), ("b", some[::-1])):
        export_responses(fill(tmp_path / f"{name}.db", order), tmp_path / f"{name}.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / RESPONSES, exchanges(3))
    assert main(["export", "responses", "--output", "out/r.parquet"]) == 0
    assert capsys.readouterr().out == "3 answers in out/r.parquet\n"
    assert pq.read_metadata(tmp_path / "out" / "r.parquet").num_rows == 3
    assert Path(RESPONSES) == LanguageModelParams().responses
    kept = (tmp_path / RESPONSES).read_bytes()
    for output, said in ((RESPONSES, "ends with .parquet"), ("params.yaml", "ends with .parquet")):
        assert main(["export", "responses", "--output", output]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "store.parquet").write_bytes(kept)  # a store by another name
    assert main(["export", "responses", "--responses", "store.parquet", "--output", "store.parquet"]) == 2
    assert "--output store.parquet: is what the export reads" in capsys.readouterr().err
    assert (tmp_path / RESPONSES).read_bytes() == (tmp_path / "store.parquet").read_bytes() == kept


def test_what_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.db: no such store of answers"):
        export_responses(tmp_path / "none.db", tmp_path / "r.parquet")
    assert not (tmp_path / "none.db").exists()
    store = fill(tmp_path / "r.db", exchanges(1))
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        export_responses(store, tmp_path / "file" / "r.parquet")
    (tmp_path / "text.db").write_text("no store at all" * 99)
    with pytest.raises(DataError, match="cannot be used as the store"):
        export_responses(tmp_path / "text.db", tmp_path / "r.parquet")
    assert not list(tmp_path.glob("*.parquet")) + list(tmp_path.glob(".*.partial"))
