"""Every request in batches ends as one answer or failure, and none is paid twice, whatever happens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from batch_api import BatchAPI, batch_api
from chat_server import elsewhere

from laurel.llm import openai_batch
from laurel.llm.batch_ledger import BatchLedger
from laurel.llm.batch_wire import in_files
from laurel.llm.chat import ChatRequest, Failure, Identity, Message, RefusedError, Reply, Tokens, Withheld
from laurel.llm.openai_batch import OpenAIBatch
from laurel.llm.responses import Exchange, ResponseStore
from laurel.params.judges import OpenAIParams

KEY = "sk-planted-4711-secret"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchAPI]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with batch_api() as running:
        monkeypatch.setenv("LAUREL_ALLOW_KEYS", f"OPENAI_API_KEY@{urlsplit(running.url).netloc}")
        yield running


@pytest.fixture
def store(tmp_path: Path) -> ResponseStore:
    return ResponseStore(tmp_path / "responses.db")


def model(api: BatchAPI, store: ResponseStore, *rest: Any, **params: Any) -> OpenAIBatch:
    server = OpenAIParams(model="tiny", base_url=api.url, **{"timeout_seconds": 60.0, "retries": 0, **params})
    return OpenAIBatch(server, ResponseStore(store.path), *rest, first_wait=0.01, longest_wait=0.02)


def questions(*texts: str) -> list[ChatRequest]:
    return [ChatRequest((Message("user", text),)) for text in texts]


def test_a_redirection_is_not_followed(api: BatchAPI, store: ResponseStore) -> None:
    with elsewhere() as (other, got):
        api.moved = f"{other}/files"
        with pytest.raises(RefusedError, match=rf"to another address \(status 308: {other}/files\)"):
            list(model(api, store).ask(questions("q")))
    assert got == []


def hundred() -> list[ChatRequest]:
    return questions(*(f"q{number}" for number in range(100)))


def waiting(store: ResponseStore, api: BatchAPI) -> int:
    return BatchLedger(store.path).waiting(api.url, "tiny")


def test_all_requests_go_in_one_batch_and_each_answer_finds_its_request(api: BatchAPI, store: ResponseStore) -> None:
    api.patience = 3
    answers = dict(model(api, store).ask(iter(hundred())))
    assert {number: answer.text for number, answer in answers.items() if isinstance(answer, Reply)} == {
        number: f"answer q{number}" for number in range(100)
    }
    assert isinstance(answers[0], Reply)
    assert (answers[0].input_tokens, answers[0].output_tokens, answers[0].seconds) == (5, 1, 0.0)
    assert len(api.batches) == 1
    assert api.looks["batch_0"] == 3
    (line, *_) = api.lines("file-0")
    assert line["body"]["model"] == "tiny"
    assert line["body"]["messages"] == [{"role": "user", "content": "q0"}]
    assert {headers["Authorization"] for headers in api.headers} == {f"Bearer {KEY}"}
    assert waiting(store, api) == 0, "answered questions leave the ledger"


def test_the_same_question_twice_is_one_line(api: BatchAPI, store: ResponseStore) -> None:
    answers = list(model(api, store).ask(questions("a", "b", "a")))
    assert sorted(number for number, _ in answers) == [0, 1, 2]
    assert api.asked == {"a": 1, "b": 1}


def test_without_questions_no_batch_is_sent(api: BatchAPI, store: ResponseStore) -> None:
    assert list(model(api, store).ask([])) == []
    assert not api.headers


def test_files_stay_within_the_limits() -> None:
    lines = [(str(number), b"x" * 10) for number in range(10)]
    assert [len(file) for file in in_files(lines, 4, 1000)] == [4, 4, 2]
    assert [len(file) for file in in_files(lines, 100, 35)] == [3, 3, 3, 1]
    assert [len(file) for file in in_files(lines, 100, 5)] == [1] * 10
    assert [key for file in in_files(lines, 3, 25) for key, _ in file] == [key for key, _ in lines]


def test_too_many_for_a_file_are_several_batches_at_once(
    api: BatchAPI, store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_batch, "MOST_LINES", 40)
    assert len(dict(model(api, store).ask(hundred()))) == 100
    assert [batch["request_counts"]["total"] for batch in api.batches.values()] == [40, 40, 20]


# ---- partial failures ----


def test_what_fails_for_the_moment_is_put_into_another_batch_once(api: BatchAPI, store: ResponseStore) -> None:
    answers = dict(model(api, store).ask(questions("a", "b 500", "c 429,503", "d 400", "e broken", "f broken,broken")))
    assert [type(answers[number]) for number in range(6)] == [Reply, Reply, Failure, Failure, Reply, Failure]
    assert answers[2] == Failure("after 2 batches: status 503: no luck")
    assert answers[3] == Failure("refused with status 400: no luck")
    assert api.asked == {"a": 1, "b": 2, "c": 2, "d": 1, "e": 2, "f": 2}
    assert waiting(store, api) == 0, "failures are asked again by the next run"


def test_the_tokens_of_lines_without_a_choice_are_billed(api: BatchAPI, store: ResponseStore) -> None:
    answers = dict(model(api, store).ask(questions("a empty", "b empty,empty")))
    assert isinstance(answers[0], Reply)
    assert answers[0].lost == Tokens(5, 1)
    assert answers[1] == Failure("after 2 batches: the answer has no choice", Tokens(10, 2))


def test_a_field_that_the_server_does_not_take_is_put_another_way(api: BatchAPI, store: ResponseStore) -> None:
    answers = dict(model(api, store).ask(questions(*(f"q{number} max_tokens,temperature" for number in range(5)))))
    assert all(isinstance(answer, Reply) for answer in answers.values()), answers
    assert len(api.batches) == 3


def test_what_an_expired_batch_did_not_answer_is_asked_once_more(api: BatchAPI, store: ResponseStore) -> None:
    api.outcomes = ["expired"]
    answers = dict(model(api, store).ask(hundred()))
    assert all(isinstance(answer, Reply) for answer in answers.values())
    assert set(api.asked.values()) == {1}
    assert [batch["request_counts"]["total"] for batch in api.batches.values()] == [100, 50]
    api.outcomes = ["expired", "expired"]
    answers = dict(model(api, store).ask(questions("x", "y")))
    assert sorted(type(answer).__name__ for answer in answers.values()) == ["Failure", "Reply"]


def test_a_cancelled_batch_stops_the_run_after_what_it_answered(api: BatchAPI, store: ResponseStore) -> None:
    api.outcomes = ["cancelled"]
    seen: list[tuple[int, Reply | Failure]] = []
    with pytest.raises(RefusedError, match=r"batch_0 was cancelled .* 50 questions are unanswered"):
        seen.extend(model(api, store).ask(hundred()))
    assert len(seen) == 50
    rest = [request for number, request in enumerate(hundred()) if number not in dict(seen)]
    assert len(dict(model(api, store).ask(rest))) == 50
    assert set(api.asked.values()) == {1}
    api.outcomes = ["cancelled"]
    with pytest.raises(RefusedError, match=r": 1 answer is kept, 2 questions are unanswered\. Run .* send them again"):
        list(model(api, store).ask(questions("refused 400", "x", "y 500", "z")))


def test_a_batch_that_the_server_refuses_stops_the_run_with_its_reason(api: BatchAPI, store: ResponseStore) -> None:
    api.outcomes = [f"failed:model_not_found:The model `tiny` does not exist for {KEY}."]
    with pytest.raises(RefusedError, match="refuses batch batch_0: line 1: The model `tiny`") as caught:
        list(model(api, store).ask(hundred()))
    assert KEY not in str(caught.value)
    assert len(dict(model(api, store).ask(hundred()))) == 100, "the next run sends them off anew"


def test_a_server_that_takes_less_at_a_time_gets_one_batch_after_the_other(
    api: BatchAPI, store: ResponseStore, capsys: pytest.CaptureFixture[str]
) -> None:
    api.outcomes = ["failed:token_limit_exceeded:Enqueued token limit reached"] * 2
    assert len(dict(model(api, store).ask(hundred()))) == 100
    assert [batch["request_counts"]["total"] for batch in api.batches.values()] == [100, 50, 25, 25, 25, 25]
    assert set(api.asked.values()) == {1}
    assert "refuses a batch of 100 such questions: sending 50 at a time" in capsys.readouterr().err


# ---- stopped runs ----


def stopped_while_waiting(api: BatchAPI, store: ResponseStore, requests: list[ChatRequest]) -> None:
    """Stop a run after its batch was sent, as Ctrl-C would."""
    looked = 0

    def seconds_left() -> float:
        nonlocal looked
        looked += 1
        if looked > 2:
            raise KeyboardInterrupt
        return 1e9

    before, api.patience = api.patience, 10**9
    with pytest.raises(KeyboardInterrupt):
        list(model(api, store, seconds_left).ask(requests))
    api.patience = before


def test_a_stopped_run_finds_its_batch_again(api: BatchAPI, store: ResponseStore) -> None:
    stopped_while_waiting(api, store, hundred())
    assert waiting(store, api) == 100
    answers = dict(model(api, store).ask([*questions("new"), *hundred()]))
    assert all(isinstance(answer, Reply) for answer in answers.values())
    assert set(api.asked.values()) == {1}
    assert [batch["request_counts"]["total"] for batch in api.batches.values()] == [100, 1]


KILLED = """
import os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_openai_batch import OpenAIBatch, OpenAIParams, ResponseStore, hundred
from laurel.llm import openai_batch
from laurel.llm.batch_ledger import BatchLedger
from laurel.llm.batch_server import BatchServer

def kill(*_):
    os.kill(os.getpid(), 9)

where = sys.argv[3]
if where == "entered":
    BatchServer.upload = kill
elif where == "uploaded":
    BatchServer.create = kill
elif where == "created":
    BatchLedger.created = kill
else:
    openai_batch.time.sleep = kill
params = OpenAIParams(model="tiny", base_url=sys.argv[2], timeout_seconds=60.0, retries=0)
list(OpenAIBatch(params, ResponseStore(Path(sys.argv[1]))).ask(hundred()))
"""


@pytest.mark.parametrize("where", ["entered", "uploaded", "created", "waiting"])
def test_a_killed_run_pays_for_no_answer_twice(api: BatchAPI, store: ResponseStore, where: str) -> None:
    api.patience = 2
    code = KILLED.format(tests=str(Path(__file__).parent))
    killed = subprocess.run([sys.executable, "-c", code, str(store.path), api.url, where], capture_output=True)
    assert killed.returncode == -9, killed.stderr.decode()
    assert len(dict(model(api, store).ask(hundred()))) == 100
    assert set(api.asked.values()) == {1}
    assert len(api.batches) == 1


def test_answers_of_a_run_that_was_killed_while_it_received_them_can_be_forgotten(
    api: BatchAPI, store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask() -> None:
        for number, answer in model(api, store).ask(hundred()):
            assert isinstance(answer, Reply)
            keys.append(hundred()[number].digest(asked))
            store.put(Exchange(keys[-1], asked, hundred()[number], answer))

    keys, asked = list[str](), Identity("tiny", endpoint=api.url)
    with monkeypatch.context() as killed:
        killed.setattr(BatchLedger, "forget", lambda *_: None)
        ask()
    assert waiting(store, api) == 0, "nothing would be paid for twice"
    store.forget(keys)
    ask()
    assert set(api.asked.values()) == {2}, "anew, and not from the same batch"


def test_a_batch_whose_creation_was_not_confirmed_is_looked_for(api: BatchAPI, store: ResponseStore) -> None:
    api.unwell["lost"] = 1
    assert len(dict(model(api, store, retries=2).ask(hundred()))) == 100
    assert len(api.batches) == 1
    api.unwell["create"] = 1
    assert len(dict(model(api, store, retries=2).ask(questions("x")))) == 1
    assert len(api.batches) == 2


def test_a_batch_that_another_process_sent_is_shared(api: BatchAPI, store: ResponseStore) -> None:
    stopped_while_waiting(api, store, hundred())
    both = [dict(model(api, store).ask(hundred()[:60])), dict(model(api, store).ask(hundred()[60:]))]
    assert [len(answers) for answers in both] == [60, 40]
    assert all(isinstance(reply, Reply) and reply.batched for answers in both for reply in answers.values())
    assert len(api.batches) == 1


def test_what_is_withheld_may_have_been_billed_before(api: BatchAPI, store: ResponseStore) -> None:
    def seconds_left() -> float:
        return 0.0 if len(api.batches) == 2 else 9.0

    api.patience = 3
    (answer,) = dict(model(api, store, seconds_left).ask(questions("a empty"))).values()
    assert isinstance(answer, Withheld)
    assert answer.lost == Tokens(5, 1)


def test_what_was_billed_before_asking_stopped_counts(
    api: BatchAPI, store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: float) -> None:
        if len(api.batches) == 2:
            raise RefusedError("It is away.")

    monkeypatch.setattr("laurel.llm.openai_batch.time.sleep", stop)
    api.patience = 3
    answers = model(api, store).ask(questions("a empty", "b", "c 500"))
    assert {number: answer.lost for number, answer in islice(answers, 2)} == {0: Tokens(5, 1), 1: Tokens()}
    with pytest.raises(RefusedError):
        next(answers)
    assert {answer.lost for _, answer in model(api, store).ask(questions("a", "c"))} == {Tokens()}, "once"


def test_when_time_is_up_the_batch_is_left_for_the_next_run(
    api: BatchAPI, store: ResponseStore, capsys: pytest.CaptureFixture[str]
) -> None:
    api.patience = 10**9
    answers = dict(model(api, store, lambda: 0.0).ask(hundred()))
    assert len(answers) == 100
    assert all(isinstance(answer, Withheld) for answer in answers.values())
    assert "run the same command again" in capsys.readouterr().err
    api.patience = 1
    assert isinstance(dict(model(api, store).ask(hundred()))[99], Reply)
    assert set(api.asked.values()) == {1}


def test_a_batch_that_the_server_does_not_know(
    api: BatchAPI, store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_while_waiting(api, store, hundred())
    api.batches.clear()
    with pytest.raises(RefusedError, match=r"does not know batch batch_0, .* key of the project that sent it"):
        list(model(api, store).ask(hundred()))
    later = openai_batch.time.time() + 31 * 86400
    monkeypatch.setattr(openai_batch.time, "time", lambda: later)
    assert len(dict(model(api, store).ask(hundred()))) == 100


# ---- servers that cannot ----


@pytest.mark.parametrize("kind", ["upload", "create"])
def test_a_server_without_a_batch_api(api: BatchAPI, store: ResponseStore, kind: str) -> None:
    api.missing = {kind}
    with pytest.raises(RefusedError, match=r"has no Batch API \(status 404: Not Found\): set annotate.openai.mode to"):
        list(model(api, store).ask(hundred()))
    api.missing = set()
    assert len(dict(model(api, store).ask(hundred()))) == 100


def test_a_server_that_is_not_there(api: BatchAPI, store: ResponseStore) -> None:
    api.url = "http://127.0.0.1:9/v1"
    with pytest.raises(RefusedError, match=r"127.0.0.1:9/v1 cannot be reached for files of requests"):
        list(model(api, store).ask(hundred()))


def test_failed_polls_are_retried(api: BatchAPI, store: ResponseStore) -> None:
    api.unwell["look"] = openai_batch.MOST_FAILED_POLLS - 1
    assert len(dict(model(api, store).ask(hundred()))) == 100
    api.unwell["look"] = openai_batch.MOST_FAILED_POLLS
    with pytest.raises(RefusedError, match="run the same command again to fetch it"):
        list(model(api, store).ask(questions("x")))
    assert len(dict(model(api, store).ask(questions("x")))) == 1
    assert api.asked["x"] == 1


def test_no_key_no_batch(store: ResponseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(RefusedError, match="OPENAI_API_KEY"):
        OpenAIBatch(OpenAIParams(model="tiny"), store)


def test_a_lost_answer_is_asked_again(api: BatchAPI, store: ResponseStore, capsys: pytest.CaptureFixture[str]) -> None:
    stopped_while_waiting(api, store, questions("a"))
    api.missing = {"content"}
    assert isinstance(dict(model(api, store).ask(questions("a")))[0], Failure)
    assert "no longer has answers" in capsys.readouterr().err


def test_the_key_is_nowhere_on_disk(api: BatchAPI, store: ResponseStore, tmp_path: Path) -> None:
    list(model(api, store).ask(hundred()))
    assert all(KEY.encode() not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
