"""The store of answers: no question is asked twice, no answer is lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laurel.errors import DataError
from laurel.llm import responses
from laurel.llm.chat import ChatRequest, Identity, Message, Reply, Sampling
from laurel.llm.responses import Exchange, ResponseStore, Usual

WHO = Identity("model-a", "rev", "http://127.0.0.1:1/v1")


def request(text: str = "Which?", **sampling: object) -> ChatRequest:
    return ChatRequest((Message("user", text),), Sampling(**sampling))  # type: ignore[arg-type]


ONE = Reply("1")


def exchange(text: str = "Which?", reply: Reply = ONE) -> Exchange:
    asked = request(text)
    return Exchange(asked.digest(WHO), WHO, asked, reply)


@pytest.fixture
def store(tmp_path: Path) -> ResponseStore:
    return ResponseStore(tmp_path / "new" / "responses.db")


def test_a_question_is_known_by_all_that_its_answer_depends_on() -> None:
    asked = [
        (request(), WHO),
        (request("Who?"), WHO),
        (ChatRequest((Message("system", "Which?"),)), WHO),
        (request(temperature=0.5), WHO),
        (request(seed=1), WHO),
        (ChatRequest(request().messages, choices=("1", "2")), WHO),
        (ChatRequest(request().messages, schema="{}"), WHO),
        (request(), Identity("model-b", "rev", WHO.endpoint)),
        (request(), Identity("model-a", "other", WHO.endpoint)),
        (request(), Identity("model-a", "rev", "http://elsewhere")),
    ]
    digests = [question.digest(who) for question, who in asked]
    assert len(set(digests)) == len(asked)
    assert request().digest(WHO) == digests[0]


texts = st.text(st.characters(codec=None), max_size=50)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.dictionaries(texts, texts, max_size=5), st.none() | st.dictionaries(texts, st.floats(-9, 0), max_size=3))
def test_stored_answers_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, answers: dict[str, str], logprobs: dict[str, float] | None
) -> None:
    path = tmp_path_factory.mktemp("store") / "r.db"
    put = [exchange(text, Reply(answer, logprobs, 3, None, "length", 0.25)) for text, answer in answers.items()]
    with ResponseStore(path) as store:
        for stored in put:
            store.put(stored)
    with ResponseStore(path) as store:
        found = store.get([*(stored.key for stored in put), "unknown"])
    readable = {stored.key: stored for stored in put}
    assert found.keys() == readable.keys()
    for key, reply in found.items():
        expected = readable[key].reply
        assert reply.text == expected.text.encode("utf-8", "backslashreplace").decode()
        assert (reply.input_tokens, reply.output_tokens, reply.finish_reason, reply.seconds) == (
            3,
            None,
            "length",
            0.25,
        )
        if logprobs is not None and not any("\ud800" <= c <= "\udfff" for name in logprobs for c in name):
            assert reply.logprobs == logprobs


def test_many_keys_at_once(store: ResponseStore) -> None:
    put = [exchange(str(number)) for number in range(3 * responses.MAX_VARIABLES)]
    for stored in put[::2]:
        store.put(stored)
    assert store.get([stored.key for stored in put]).keys() == {stored.key for stored in put[::2]}
    assert len(store) == len(put) / 2


def test_the_first_answer_stays(store: ResponseStore) -> None:
    store.put(exchange(reply=Reply("1")))
    store.put(exchange(reply=Reply("2")))
    assert [reply.text for reply in store.get([exchange().key]).values()] == ["1"]


def test_two_processes_ask_each_question_once(store: ResponseStore) -> None:
    other = ResponseStore(store.path)
    keys = [exchange(str(number)).key for number in range(4)]
    store.put(exchange("0"))
    assert store.claim(keys[:3]) == set(keys[1:3])
    assert store.claim(keys[:3]) == set(keys[1:3]), "what is claimed may be claimed again by the same"
    assert other.claim(keys) == {keys[3]}
    store.release([keys[1]])
    other.release([keys[2]])  # not its own
    assert other.claim(keys) == {keys[1], keys[3]}
    store.put(exchange("2"))
    assert other.get(keys).keys() == {keys[0], keys[2]}


def test_the_claims_of_a_process_that_died_expire(store: ResponseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    key = exchange().key
    assert store.claim([key]) == {key}
    other = ResponseStore(store.path)
    later = time.time() + responses.LEASE_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert other.claim([key]) == {key}
    assert store.claim([key]) == set()


CLAIMANT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_responses import ResponseStore, exchange
keys = [exchange(str(number)).key for number in range(9)]
assert ResponseStore(Path(sys.argv[1])).claim(keys) == set(keys)
print("claimed", flush=True)
time.sleep(600)
"""


def test_a_killed_process_holds_no_lock(store: ResponseStore) -> None:
    keys = [exchange(str(number)).key for number in range(9)]
    code = CLAIMANT.format(tests=str(Path(__file__).parent))
    claimant = subprocess.Popen([sys.executable, "-c", code, str(store.path)], stdout=subprocess.PIPE, text=True)
    assert claimant.stdout is not None
    assert claimant.stdout.readline() == "claimed\n"
    assert store.claim(keys) == set(), "it is alive"
    claimant.kill()
    claimant.stdout.read()  # returns once it has ended, even if not yet reaped
    while store.claim(keys[:1]) != {keys[0]}:
        time.sleep(0.01)
    assert store.claim(keys) == set(keys)
    claimant.wait()


def test_a_process_on_another_machine_keeps_its_claims_until_they_expire(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = exchange().key
    monkeypatch.setattr(responses, "this_owner", lambda: "another|1|1|x")
    assert ResponseStore(store.path).claim([key]) == {key}
    assert store.claim([key]) == set()
    later = time.time() + responses.LEASE_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert store.claim([key]) == {key}


def test_a_process_that_keeps_asking_keeps_its_claims(store: ResponseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = exchange("1").key, exchange("2").key
    other = ResponseStore(store.path)
    begun = time.time()
    store.claim([first])
    monkeypatch.setattr(time, "time", lambda: begun + responses.LEASE_SECONDS - 1)
    store.claim([second])
    monkeypatch.setattr(time, "time", lambda: begun + responses.LEASE_SECONDS + 1)
    assert other.claim([first]) == set()


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_responses import ResponseStore, exchange
store = ResponseStore(Path(sys.argv[1]))
for number in range(200):
    one = exchange(str(number))
    if store.claim([one.key]):
        store.put(one)
        print(one.key)
"""


def test_processes_that_begin_and_write_at_once(tmp_path: Path) -> None:
    code = WRITER.format(tests=str(Path(__file__).parent))
    command = [sys.executable, "-c", code, str(tmp_path / "responses.db")]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    written = []
    for writer in writers:
        out, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
        written += out.split()
    assert sorted(written) == sorted({exchange(str(number)).key for number in range(200)})
    assert len(ResponseStore(tmp_path / "responses.db")) == 200


def test_stored_answers_survive_a_kill(tmp_path: Path) -> None:
    code = WRITER.format(tests=str(Path(__file__).parent)).replace("print(one.key)", "print(one.key, flush=True)")
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "responses.db")], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    seen = [writer.stdout.readline().strip() for _ in range(20)]
    writer.kill()
    writer.wait()
    assert set(seen) <= ResponseStore(tmp_path / "responses.db").get(seen).keys()


def test_what_answers_to_a_prompt_were_like(store: ResponseStore) -> None:
    for number, (prompt, tokens, seconds) in enumerate(
        [("p", 10, 1.0), ("p", 30, 0.0), ("p", None, 3.0), ("q", 99, 9.0)]
    ):
        reply = Reply("1", None, 5, tokens, "stop", seconds)
        store.put(Exchange(str(number), WHO, request(str(number)), reply, "name", prompt))
    assert store.usual(WHO, "p") == Usual(20.0, 2.0, 30)
    assert store.usual(WHO, "r") == store.usual(Identity("other"), "p") == Usual(None, None, None)


def test_whether_a_model_answered_before_when_asked_in_this_way(store: ResponseStore) -> None:
    for seed in (None, 3):
        asked = request("Which?", temperature=0.5, seed=seed)
        store.put(Exchange(f"k{seed}", WHO, asked, ONE, "name", "p"))
    assert store.has_answers(WHO, "p", Sampling(temperature=0.5))
    assert store.has_answers(WHO, "p", Sampling(temperature=0.5, seed=7)), "any vote's"
    assert not store.has_answers(WHO, "q", Sampling(temperature=0.5))
    assert not store.has_answers(WHO, "p", Sampling())
    assert not store.has_answers(Identity("model-a"), "p", Sampling(temperature=0.5))


def test_a_store_can_be_read_without_writing(store: ResponseStore) -> None:
    with pytest.raises(DataError, match="unable to open"):
        ResponseStore(store.path.with_name("missing.db"), read_only=True)
    assert not store.path.with_name("missing.db").exists()
    store.put(exchange())
    with ResponseStore(store.path, read_only=True) as reading:
        assert len(reading) == 1
        with pytest.raises(DataError, match="readonly"):
            reading.put(exchange("Who?"))


def costs(store: ResponseStore) -> dict[str, float | None]:
    return {row["key"]: row["cost_usd"] for row in store.rows()}


def test_what_an_answer_cost_is_kept(store: ResponseStore) -> None:
    paid = replace(exchange("paid"), cost_usd=0.25)
    for stored in (paid, exchange("unknown")):
        store.put(stored)
    assert costs(store) == {paid.key: 0.25, exchange("unknown").key: None}


def test_processes_that_make_a_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    begin = tmp_path / "begin"
    wait = f"import time\nwhile not __import__('os').path.exists({str(begin)!r}): time.sleep(0.001)\n"
    code = WRITER.format(tests=str(Path(__file__).parent)).replace("store = ", f"{wait}store = ", 1)
    command = [sys.executable, "-c", code, str(path)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    begin.touch()
    written = []
    for writer in writers:
        out, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
        written += out.split()
    assert sorted(written) == sorted({exchange(str(number)).key for number in range(200)})
    assert len(ResponseStore(path)) == 200


def test_files_that_are_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be taken for one" * 100)
    with pytest.raises(DataError, match=r"text: cannot be used as the store of answers \(file is not a database\)"):
        ResponseStore(tmp_path / "text")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(DataError, match=r"other.db: is another program's database. Choose another annotate.language"):
        ResponseStore(tmp_path / "other.db")
    with sqlite3.connect(tmp_path / "later.db") as later:
        later.execute("PRAGMA user_version = 99")
    with pytest.raises(DataError, match="in version 99 of the format, but 3 is needed"):
        ResponseStore(tmp_path / "later.db")
    with pytest.raises(DataError, match="text/below: cannot be used"):
        ResponseStore(tmp_path / "text" / "below")


def test_answers_are_brought_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together where many come at once, the last of them by a close; and the names of files, so that they are found."""
    synced: list[str] = []
    fsync = os.fsync

    def spy(number: int) -> None:
        synced.append(Path(f"/proc/self/fd/{number}").readlink().name)
        fsync(number)

    monkeypatch.setattr(os, "fsync", spy)
    log = "responses.db-wal"
    now = 100.0
    monkeypatch.setattr("laurel.llm.responses.time.monotonic", lambda: now)
    with ResponseStore(tmp_path / "folder" / "responses.db") as store:
        assert synced == ["folder"]
        for question, now in (("a", 100.0), ("b", 100.1), ("c", 100.15), ("d", 100.25), ("e", 100.3)):
            store.put(exchange(question))
            assert synced.count(log) == (1 if now < 100.2 else 2)
        store.flush()
        store.flush()
        assert synced.count(log) == 3, "once, as nothing came in between"
        store.put(exchange("f"))
    assert synced.count(log) == 4, "what came last, too"


def test_a_disk_that_cannot_store_answers_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    store = ResponseStore(tmp_path / "responses.db")
    monkeypatch.setattr(os, "fsync", fail)
    for keep in (lambda: store.put(exchange()), store.close):
        with pytest.raises(DataError, match=r"cannot be used as the store of answers .*Input/output error"):
            keep()
