"""Whatever a server sends becomes a Reply whose fields are sound, or a Failure; what a store holds passes the same."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from chat_server import completion, top_logprobs
from hypothesis import given
from hypothesis import strategies as st

from laurel.feedback.unreadable import why_unreadable
from laurel.llm import replies
from laurel.llm.batch_wire import Again, read_line
from laurel.llm.chat import ChatRequest, Failure, Identity, Message, Reply
from laurel.llm.chat_wire import read_completion, read_reply
from laurel.llm.responses import Exchange, ResponseStore
from laurel.llm.responses_export import export_responses
from laurel.llm.retries import Refusal

CHOOSE = ChatRequest((Message("user", "q"),), choices=("1", "2"))
WRITE = ChatRequest((Message("user", "q"),))
ODD = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 10**400, -1, True, "", "12", "1e9", [], {}, None])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS: list[tuple[Any, ...]] = [
    ("choices",), ("error",), ("usage",), ("usage", "prompt_tokens"), ("usage", "completion_tokens"),
    ("usage", "prompt_tokens_details"), ("choices", 0), ("choices", 0, "message"), ("choices", 0, "finish_reason"),
    ("choices", 0, "message", "content"), ("choices", 0, "message", "refusal"),
    ("choices", 0, "message", "reasoning_content"), ("choices", 0, "logprobs"), ("choices", 0, "logprobs", "content"),
    ("choices", 0, "logprobs", "content", 0), ("choices", 0, "logprobs", "content", 0, "token"),
    ("choices", 0, "logprobs", "content", 0, "top_logprobs"),
    ("choices", 0, "logprobs", "content", 0, "top_logprobs", 0),
    ("choices", 0, "logprobs", "content", 0, "top_logprobs", 0, "token"),
    ("choices", 0, "logprobs", "content", 0, "top_logprobs", 0, "logprob"),
]  # fmt: skip


def whole() -> dict[str, Any]:
    return completion("1", top_logprobs(**{"1": -0.1, "2": -3.0}))


def changed(*changes: tuple[tuple[Any, ...], Any]) -> dict[str, Any]:
    answer = whole()
    for path, value in changes:
        place: Any = answer
        try:
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
        except (KeyError, IndexError, TypeError):  # what it was in is replaced already
            continue
    return answer


def check(reply: Reply | Failure) -> None:
    if isinstance(reply, Failure):
        assert isinstance(reply.reason, str)
        return
    assert isinstance(reply.text, str)
    assert len(reply.text) <= replies.LONGEST_TEXT
    for count in (reply.input_tokens, reply.output_tokens, reply.cached_tokens):
        assert count is None or (type(count) is int and 0 <= count <= replies.MOST_TOKENS)
    assert isinstance(reply.finish_reason, str)
    if reply.logprobs is not None:
        assert sorted(reply.logprobs) == ["1", "2"]
        assert sum(math.exp(value) for value in reply.logprobs.values()) == pytest.approx(1)


@given(anything, st.lists(st.tuples(st.sampled_from(FIELDS), anything), max_size=3))
def test_any_json_is_a_sound_reply_or_a_failure(other: Any, changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    for answer in (other, changed(*changes)):
        for asked in (CHOOSE, WRITE):
            check(read_completion(answer, asked, 0.1))
        content = json.dumps(answer).encode("utf-8", "surrogatepass")
        check(read_reply(content, CHOOSE, 0.1))
        assert Refusal.read(400, content, ()).message
        line = json.dumps({"custom_id": "k", "response": {"status_code": 200, "body": answer}})
        read = read_line(line, {"k": CHOOSE}, ())
        assert read is not None
        assert isinstance(read[1], Reply | Again)
        odd = read_line(json.dumps({"custom_id": "k", "response": answer, "error": answer}), {"k": CHOOSE}, ())
        assert odd is not None
        assert isinstance(odd[1], Reply | Again | Refusal)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_reply_or_a_failure(content: bytes) -> None:
    check(read_reply(content, WRITE, 0.1))


def test_json_that_is_nested_without_end_is_a_failure() -> None:
    deep = b"[" * 200_000
    assert isinstance(read_reply(deep, WRITE, 0.1), Failure)
    assert Refusal.read(500, deep, ()).status == 500
    assert read_line(deep.decode(), {}, ()) is None


@pytest.mark.parametrize("odd", [math.nan, 1e308, 5.0, "-0.1", None, True, 10**400])
def test_invalid_log_probabilities_fall_back_to_the_text(odd: Any) -> None:
    path = ("choices", 0, "logprobs", "content", 0, "top_logprobs", 1, "logprob")
    answer = read_completion(changed((path, odd)), CHOOSE, 0.1)
    assert isinstance(answer, Reply)
    assert (answer.text, answer.logprobs) == ("1", None)


def test_choices_that_are_next_to_impossible_are_no_scores() -> None:
    """The model was about to write "Let me see", and 1 was among its likeliest tokens by rounding alone."""
    told = top_logprobs(Let=-0.0001, **{"1": -12.0})
    assert read_completion(completion("Let me see", told), CHOOSE, 0.1) == Reply("Let me see", None, 5, 1, "stop", 0.1)


@pytest.mark.parametrize(
    ("told", "first"),
    [
        ({"1": math.log(0.9)}, 0.9),  # a server that lists the written token alone
        ({"1": math.log(0.9), "The": math.log(0.06)}, 0.9 / 0.94),
        ({"1": math.log(0.6), "The": math.log(0.1)}, 0.6 / 0.7),
        ({"1": 0.0, "The": -9999.0}, 1.0),
    ],
)
def test_a_choice_that_is_not_listed_is_no_likelier_than_those_listed_allow(
    told: dict[str, float], first: float
) -> None:
    answer = read_completion(completion("1", top_logprobs(**told)), CHOOSE, 0.1)
    assert isinstance(answer, Reply)
    assert answer.logprobs is not None
    assert math.exp(answer.logprobs["1"]) == pytest.approx(first)


@pytest.mark.parametrize("usage", [None, [], "5", {"prompt_tokens": "a dozen", "completion_tokens": -1}, {}])
def test_invalid_token_counts_are_unknown(usage: Any) -> None:
    answer = read_completion(changed((("usage",), usage)), WRITE, 0.1)
    assert isinstance(answer, Reply)
    assert (answer.input_tokens, answer.output_tokens, answer.cached_tokens) == (None, None, None)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"completion_tokens_details": {"reasoning_tokens": 94}, "total_tokens": 135}, (32, 103, None)),  # xAI
        ({"total_tokens": 135}, (32, 103, None)),  # Google
        ({"completion_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 41}, (32, 9, None)),  # OpenAI
        ({"prompt_tokens_details": {"cached_tokens": 94}, "total_tokens": 135}, (32, 9, 94)),  # cached tokens apart
        ({"prompt_tokens_details": {"cached_tokens": 20}, "total_tokens": 135}, (32, 103, 20)),
        ({"prompt_cache_hit_tokens": 20, "prompt_cache_miss_tokens": 12, "total_tokens": 41}, (32, 9, 20)),  # DeepSeek
        ({"total_tokens": 10}, (32, 9, None)),
        ({"total_tokens": None}, (32, 9, None)),
    ],
)
def test_all_tokens_that_a_server_bills_are_counted(
    usage: dict[str, Any], tokens: tuple[int | None, int | None, int | None]
) -> None:
    told = {"prompt_tokens": 32, "completion_tokens": 9, **usage}
    answer = read_completion(changed((("usage",), told)), WRITE, 0.1)
    assert isinstance(answer, Reply)
    assert (answer.input_tokens, answer.output_tokens, answer.cached_tokens) == tokens
    failure = read_completion({"choices": [], "usage": told}, WRITE, 0.1)
    assert isinstance(failure, Failure)
    assert (failure.lost.input, failure.lost.output, failure.lost.cached) == (*tokens[:2], tokens[2] or 0)


HARMONY = "<|channel|>analysis<|message|>2, no: 1?<|end|><|start|>assistant<|channel|>"
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "2?"}]}, {"type": "text", "text": "1"}]


@pytest.mark.parametrize(
    ("message", "ended", "text", "reason"),
    [
        ({"content": PARTS}, "stop", "1", "stop"),
        ({"content": [{"type": "output_text", "text": "a"}, "b"]}, "stop", "ab", "stop"),
        ({"content": PARTS[:1]}, "length", "", replies.REASONING_CUT),
        ({"content": [{"type": "refusal", "refusal": "I cannot."}]}, "stop", "I cannot.", "stop"),
        ({"content": None, "refusal": "I cannot."}, "stop", "I cannot.", "stop"),
        ({"content": "1", "refusal": "I cannot."}, "stop", "1", "stop"),
        ({"content": "", "reasoning_content": "It is 2"}, "stop", "", replies.REASONING),
        ({"content": None, "reasoning": "It is 2"}, "length", "", replies.REASONING_CUT),
        ({"reasoning_content": "It is 2", "content": "1"}, "stop", "1", "stop"),
        ({"content": f"{HARMONY}final<|message|>1<|return|>"}, "stop", "1", "stop"),
        ({"content": f"{HARMONY}final <|constrain|>json<|message|>{{}}"}, "stop", "{}", "stop"),
        ({"content": f"{HARMONY}final<|message|>2<|end|>{HARMONY}final<|message|>1<|return|>"}, "stop", "1", "stop"),
        ({"content": f"{HARMONY}commentary<|message|>2"}, "stop", "", replies.REASONING),
        ({"content": "<|channel|>analysis<|message|>It is 2"}, "length", "", replies.REASONING_CUT),
        ({"content": "<|channel|>analy"}, "length", "", replies.REASONING_CUT),
        ({"content": "analysisIs it 2? No.assistantfinal1"}, "stop", "1", "stop"),
        ({"content": "analysis is hard; 1"}, "stop", "analysis is hard; 1", "stop"),
        ({"content": "", "tool_calls": []}, "stop", "", "stop"),
    ],
)
def test_answers_are_separated_from_thinking(message: Any, ended: str, text: str, reason: str) -> None:
    answer = read_completion({"choices": [{"message": message, "finish_reason": ended}]}, WRITE, 0.1)
    assert isinstance(answer, Reply)
    assert (answer.text, answer.finish_reason) == (text, reason)
    if reason in (replies.REASONING, replies.REASONING_CUT):
        assert "reasoning" in why_unreadable(answer.text, answer.finish_reason)


def test_an_endless_answer_is_cut() -> None:
    answer = read_completion(completion("1 " * 2_500_000), WRITE, 0.1)
    assert isinstance(answer, Reply)
    assert len(answer.text) == replies.LONGEST_TEXT
    assert "longer than" in why_unreadable(answer.text, "stop")


# ---- what is stored already ----


def poison(path: Path, **columns: Any) -> None:
    """Put values into a stored answer that earlier versions took from servers."""
    with closing(sqlite3.connect(path)) as store, store:
        for column, value in columns.items():
            store.execute(f"UPDATE responses SET {column} = ?", (value,))


def put(path: Path, reply: Reply) -> str:
    with ResponseStore(path) as store:
        who = Identity("m")
        store.put(Exchange(CHOOSE.digest(who), who, CHOOSE, reply))
    return CHOOSE.digest(who)


@pytest.mark.parametrize(
    "logprobs",
    ['{"1": NaN, "2": NaN}', '{"1": -0.1, "2": -Infinity}', '{"1": 1e308}', "not json", "[1]", '{"1": "x"}', 7],
)
def test_invalid_stored_scores_fall_back_to_the_text_or_are_asked_again(tmp_path: Path, logprobs: Any) -> None:
    path = tmp_path / "r.db"
    key = put(path, Reply("2", {"1": -0.1, "2": -2.0}, 5, 1))
    poison(path, logprobs=logprobs)
    with ResponseStore(path) as store:
        assert store.get([key])[key].logprobs is None
        assert list(store.contents([key])) == [(key, "2", None, "stop")]
        assert not store.claim([key]), "its words are an answer"
    poison(path, text="")
    with ResponseStore(path) as store:
        assert not store.get([key])
        assert not list(store.contents([key]))
        assert store.damaged([key]) == {key}
        assert store.claim([key]) == {key}
    good = {"1": math.log(0.25), "2": math.log(0.75)}
    put(path, Reply("", good, 5, 0))
    put(path, Reply("", {"1": 0.0, "2": -9.0}, 5, 0))
    with ResponseStore(path) as store:
        assert store.get([key])[key].logprobs == good, "a usable answer is never replaced"


def test_invalid_stored_fields_are_unknown_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    key = put(path, Reply("1", None, 5, 1))
    odd = {"input_tokens": "a dozen", "output_tokens": 1.5, "cached_tokens": b"x", "seconds": "long"}
    poison(path, **odd, finish_reason='{"a": 1}', asked_at="noon", cost_usd="much")
    with ResponseStore(path) as store:
        assert store.get([key])[key] == Reply("1", None, None, None, "unknown", 0.0, None)
        assert store.usual(Identity("m"), "").output_tokens is None
    assert export_responses(path, tmp_path / "r.parquet") == 1
    (row,) = pq.read_table(tmp_path / "r.parquet").to_pylist()
    assert (row["text"], row["input_tokens"], row["cost_usd"]) == ("1", None, 0.0)


def test_a_stream_that_was_not_asked_for_is_named() -> None:
    streamed = (
        b'data: {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "1"}}]}\n\ndata: [DONE]\n\n'
    )
    found = read_reply(streamed, WRITE, 0.1)
    assert isinstance(found, Failure)
    assert "a stream of events, which was not asked for" in found.reason
    cut = read_reply(b'{"choices": [', WRITE, 0.1)
    assert isinstance(cut, Failure)
    assert cut.reason == "the answer is not JSON, or incomplete"
