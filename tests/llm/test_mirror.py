"""Answers that each run leaves in a folder for the next, whose disk is another."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from laurel.errors import DataError
from laurel.llm.batch_ledger import BatchLedger
from laurel.llm.chat import ChatRequest, Identity, Message, Reply
from laurel.llm.mirror import PATTERN, mirrored
from laurel.llm.responses import Exchange, ResponseStore


def put(path: Path, *keys: str) -> None:
    with ResponseStore(path) as store:
        for key in keys:
            request = ChatRequest((Message("user", key),))
            store.put(Exchange(key, Identity("m"), request, Reply(f"answer to {key}")))


def fail_after(work: Callable[[], None]) -> None:
    work()
    raise OSError("of the run, and not of the folder")


def keys(path: Path) -> set[str]:
    with ResponseStore(path) as store:
        return set(store.get(["a", "b", "c", "d"]))


def test_the_next_run_begins_with_the_answers_of_all(tmp_path: Path) -> None:
    folder = tmp_path / "bucket" / "responses"
    with mirrored(tmp_path / "one.db", folder):
        put(tmp_path / "one.db", "a", "b")
    with mirrored(tmp_path / "two.db", folder):
        assert keys(tmp_path / "two.db") == {"a", "b"}
        put(tmp_path / "two.db", "c")
    files = list(folder.iterdir())
    assert len(files) == 2, "nothing partial, and no log beside a store"
    for file in files:
        shutil.copyfile(file, tmp_path / file.name)
    assert sorted(len(keys(tmp_path / file.name)) for file in files) == [1, 2], "each its own alone"
    with mirrored(tmp_path / "three.db", folder):
        with ResponseStore(tmp_path / "three.db") as store:
            assert store.get(["c"])["c"].text == "answer to c"
        assert keys(tmp_path / "three.db") == {"a", "b", "c"}
    assert len(list(folder.iterdir())) == 2, "who has nothing new leaves nothing"


def test_answers_to_a_failed_run_are_kept(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="of the run"), mirrored(tmp_path / "one.db", tmp_path / "kept"):
        fail_after(lambda: put(tmp_path / "one.db", "a"))
    with mirrored(tmp_path / "two.db", tmp_path / "kept"):
        assert keys(tmp_path / "two.db") == {"a"}


def test_answers_are_copied_during_a_run(tmp_path: Path) -> None:
    with mirrored(tmp_path / "one.db", tmp_path / "kept", seconds=0.05):
        put(tmp_path / "one.db", "a")
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not list((tmp_path / "kept").glob(PATTERN)):
            time.sleep(0.02)
        with mirrored(tmp_path / "two.db", tmp_path / "kept"):
            assert keys(tmp_path / "two.db") == {"a"}


def test_without_a_folder_there_are_no_copies(tmp_path: Path) -> None:
    with mirrored(tmp_path / "one.db", None):
        pass
    assert not list(tmp_path.iterdir())


def test_a_damaged_store(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "responses-0.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(DataError, match=r"responses-0\.db"), mirrored(tmp_path / "one.db", folder):
        pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kept = mirrored(tmp_path / "one.db", tmp_path / "file" / "kept")
    with pytest.raises(DataError, match="answers cannot be stored there"), kept:
        pass


def test_a_batch_that_was_sent_is_known_to_the_next_run_until_it_is_answered(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with mirrored(tmp_path / "one.db", folder):
        ledger = BatchLedger(tmp_path / "one.db")
        ledger.enter("t", "http://here/v1", "m", ["a", "b"])
        ledger.created("t", "batch_7")
    with mirrored(tmp_path / "two.db", folder):
        ledger = BatchLedger(tmp_path / "two.db")
        assert ledger.find(["a", "b"]) == {"a": "t", "b": "t"}
        entry = ledger.entry("t")
        assert entry is not None
        assert entry.batch == "batch_7"
        assert ledger.entry("another") is None
        put(tmp_path / "two.db", "a", "b")
        ledger.forget(["a", "b"])
    with mirrored(tmp_path / "three.db", folder):
        assert BatchLedger(tmp_path / "three.db").waiting("http://here/v1", "m") == 0


def test_an_answer_that_replaces_a_damaged_one_is_copied_and_wins(tmp_path: Path) -> None:
    """Else every step asks, and pays, again."""
    folder, first, second = tmp_path / "bucket", tmp_path / "a.db", tmp_path / "b.db"

    def answer(choice: str) -> Exchange:
        request = ChatRequest((Message("user", "q"),), key="k")
        return Exchange("k", Identity("m"), request, Reply("", {choice: -0.1}), "pair", "p")

    for n in range(2):  # copies of the damaged answer, of which one sorts before the good one
        with ResponseStore(first) as store:
            store.put(answer("1"))
        with closing(sqlite3.connect(first)) as connection, connection:
            connection.execute("UPDATE responses SET logprobs = 'junk'")
        folder.mkdir(exist_ok=True)
        shutil.copy(first, folder / f"responses-{'0f'[n] * 32}.db")
    with mirrored(first, folder), ResponseStore(first) as store:
        assert store.get(["k"]) == {}
        store.put(answer("2"))
    with mirrored(second, folder), ResponseStore(second) as store:
        assert store.get(["k"])["k"].logprobs == {"2": -0.1}
