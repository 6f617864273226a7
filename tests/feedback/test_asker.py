"""Asking a chat model: answers that were paid for before stay valid, and any kind of question can be asked."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Callable, Iterator
from datetime import date
from math import log
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chat_asking import KEY, chat
from chat_server import ChatServer, chat_server, completion

from laurel.data.asked import MOST, joined
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Pair
from laurel.feedback.asker import Asker
from laurel.feedback.forget import Wanted, find
from laurel.feedback.question import QUESTIONS
from laurel.feedback.questions.outcome import Example, OutcomeQuestion
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.feedback.yes_no import probability
from laurel.llm.chat import ChatRequest, Failure, RefusedError, Reply, Sampling, Stopped, Tokens, Withheld
from laurel.llm.prices import Price
from laurel.llm.replies import LONGEST_TEXT
from laurel.llm.responses import ResponseStore
from played_model import PlayedModel, annotator, longer, questions

BEFORE = Path(__file__).parent / "answers_before"
"""A store of answers, and what was made of them, by the code before questions were of kinds."""
EPISODES = ("You open the door. You reach the goal.", "You turn. (x99)")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with chat_server() as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> ResponseStore:
    return ResponseStore(tmp_path / "responses.db")


def outcome(prompt: str, adapter: EnvAdapter, **options: Any) -> OutcomeQuestion:
    return OutcomeQuestion(OutcomeQuestion.load_prompt(prompt), adapter, **options)


def test_stored_answers_are_not_asked_for_again(tmp_path: Path, door_key: EnvAdapter) -> None:
    """In both orders, with votes, with a goal, scored, and followed up; to odd texts, too."""
    with sqlite3.connect(tmp_path / "before.db") as connection:
        connection.executescript((BEFORE / "responses.sql").read_text(encoding="utf-8"))
    connection.close()
    store = ResponseStore(tmp_path / "before.db")
    before = json.loads((BEFORE / "judgements.json").read_text(encoding="utf-8"))
    asked = [Pair(*pair) for pair in before["asked"]]
    for run in before["runs"]:
        model = PlayedModel(lambda *_: Failure("asked again"), name="before")
        judge = annotator(model, door_key, store, **run["params"])
        judged = [
            [*judgement[:4], [list(answer) for answer in judgement.answers]] for judgement in judge.annotate(asked)
        ]
        assert judged == run["judgements"]
        assert not model.requests
    assert {status for run in before["runs"] for status, *_ in run["judgements"]} == {"ok", "tie", "parse_failed"}


def test_questions_are_files() -> None:
    assert {"outcome", "pair"} <= set(QUESTIONS.kinds())
    assert QUESTIONS.load("outcome", "question") is OutcomeQuestion


def test_answers_are_on_disk_before_their_cost_is_reported(
    store: ResponseStore, door_key: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the last ones, and when asking ends with an error."""
    synced: list[str] = []
    monkeypatch.setattr("laurel.llm.responses.SYNC_SECONDS", math.inf)
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink().name))
    replies: list[Reply] = []

    def answer(first: str, second: str, request: ChatRequest) -> Reply:
        if len(replies) == 3:
            raise RefusedError("The server has gone.")
        replies.append(longer(first, second, request))
        return replies[-1]

    judge = annotator(PlayedModel(answer), door_key, store)
    list(judge.annotate([Pair("You pass the red door.", "You turn.")]))
    assert (judge.usage["calls"], synced) == (2, ["responses.db-wal"])
    with pytest.raises(RefusedError):
        list(judge.annotate([Pair("You pass the blue door.", "You turn.")]))
    assert (judge.usage["calls"], synced) == (3, ["responses.db-wal"] * 2)


def test_tokens_of_answers_that_do_not_report_them_are_said_to_be_missing(
    store: ResponseStore, door_key: EnvAdapter
) -> None:
    replies = iter([Reply('{"best_description": 1}', None, 100, 10), Reply('{"best_description": 2}')])
    judge = annotator(PlayedModel(lambda *_: next(replies)), door_key, store)
    list(judge.annotate([Pair("You pass the red door.", "You turn.")]))
    assert [judge.usage[key] for key in ("calls", "input_tokens", "output_tokens", "uncounted")] == [2, 100, 10, 1]
    assert (judge.usage["cost_usd"], judge.usage.get("unpriced")) == (None, None), "the price is unknown"


def test_an_outcome_is_asked_once_with_a_follow_up_and_stored(
    server: ChatServer, store: ResponseStore, door_key: EnvAdapter
) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        asked = body["messages"][1]["content"]
        assert body["response_format"]["json_schema"]["schema"]["required"] == ["analysis", "goal_reached"]
        assert door_key.goal in asked
        if len(body["messages"]) == 2 and "x99" in asked:
            return completion("Hm, let me see.")
        return completion(json.dumps({"analysis": "", "goal_reached": "x99" not in asked}))

    server.behave = lambda request, body: web.json_response(answer(body))
    for calls in (3, 3):
        asker = Asker(chat(server), Sampling(), outcome("yes_no", door_key), store)
        answers = list(asker.ask(iter(EPISODES)))
        assert [[answer.verdict for answer in about] for about in answers] == [["yes"], ["no"]]
        assert [probability(about) for about in answers] == [1.0, 0.0]
        assert len(server.bodies) == calls, "the second run takes all from the store"
    assert {row["prompt"] for row in store.rows()} == {"outcome/yes_no"}


def test_examples_are_shown_and_are_part_of_the_key(store: ResponseStore, door_key: EnvAdapter) -> None:
    model = OutcomeModel(lambda _: Reply('{"analysis": "", "goal_reached": true}'))
    examples = [Example("You leave.", True), Example('You say "stop".\n', False)]
    for shown in ([], examples, examples[::-1], examples):
        list(Asker(model, Sampling(), outcome("yes_no", door_key, examples=shown), store).ask(["You go."]))
    assert len(model.requests) == 3
    plain, with_examples, _ = (request.messages[-1].content for request in model.requests)
    assert "known" not in plain
    assert '"You leave."\nGoal reached: yes\n"You say \\"stop\\".\\n"\nGoal reached: no\n' in with_examples


def test_a_sample_of_first_items_keeps_prompts_and_answers(store: ResponseStore, door_key: EnvAdapter) -> None:
    """From new answers as from stored ones, also after a follow-up; what never came is left out."""
    told = {"0": Failure("gone"), "1": Reply("Hm."), "2": Reply("No.")}

    def answer(request: ChatRequest) -> Reply | Failure:
        shown = request.messages[0].content
        return next((reply for number, reply in told.items() if f'"{number} steps"' in shown), Reply("Yes."))

    episodes = [f"{number} steps" for number in (0, 1, 2, *range(30, 30 + MOST))]
    samples = []
    for _ in range(2):
        question = outcome("answer_only", door_key, scored=False)
        asker = Asker(OutcomeModel(answer), Sampling(), question, store, gives_up=False)
        assert asker.asked_sample == []
        list(asker.ask(episodes))
        samples.append(asker.asked_sample)
    assert samples[0] == samples[1]
    ((sample,), _) = samples
    assert sample["name"] == asker.name
    assert (sample["prompt"]["kind"], sample["prompt"]["text"]) == ("outcome", question.prompt.text)
    assert len(sample["items"]) == MOST, "never one for each question"
    shown = [
        [(answer["verdict"], answer["value"], answer["text"]) for answer in answers] for answers in sample["items"][:3]
    ]
    assert shown == [[("unread", None, "Hm.")], [("no", 0.0, "No.")], [("yes", 1.0, "Yes.")]]
    assert '"2 steps"' in sample["items"][1][0]["messages"][0]["content"]
    assert joined([sample, sample]) == [sample]
    few, rest = {**sample, "items": sample["items"][:3]}, {**sample, "items": sample["items"][2:]}
    assert joined([few, rest, sample]) == [sample]
    others = {**sample, "items": [[{**answer, "text": "Other."} for answer in item] for item in sample["items"]]}
    (most,) = joined([few, others])
    assert most["items"] == [*few["items"], *others["items"][: MOST - 3]]
    assert few["items"] == sample["items"][:3], "nothing that is given is changed"
    assert json.loads(json.dumps(sample)) == sample


def test_votes_on_an_outcome_and_its_probabilities(store: ResponseStore, door_key: EnvAdapter) -> None:
    replies = {None: "yes.", 1: "Hm.", 2: "No"}
    voting = OutcomeModel(lambda request: Reply(replies[request.sampling.seed]))
    asker = Asker(voting, Sampling(), outcome("answer_only", door_key, scored=False), store, votes=3)
    (about,) = asker.ask(["You go."])
    assert [answer.verdict for answer in about] == ["yes", "unread", "no"]
    assert probability(about) == 0.5
    assert probability(about[1:2]) is None
    assert probability(about[:2]) is None, "half of the votes are not most of them"
    scoring = OutcomeModel(lambda _: Reply("", {"yes": log(0.9), "no": log(0.1)}), name="scoring")
    ((answer,),) = Asker(scoring, Sampling(), outcome("answer_only", door_key), store).ask(["You go."])
    assert (answer.verdict, answer.value) == ("yes", pytest.approx(0.9))


def test_forgetting_reads_each_answer_as_its_question_does(store: ResponseStore, door_key: EnvAdapter) -> None:
    told = {"a": '{"goal_reached": null}', "b": "Hm."}
    model = OutcomeModel(lambda request: Reply(told["a" if '"a"' in request.messages[-1].content else "b"]))
    list(Asker(model, Sampling(), outcome("yes_no", door_key), store, gives_up=False).ask("ab"))
    list(annotator(PlayedModel(longer), door_key, store).annotate([Pair("x", "yz")]))
    _, groups = find(store, Wanted(status="unreadable"))
    assert {(prompt, group.answers) for (_, prompt, _, _), group in groups.items()} == {("outcome/yes_no", 2)}


class OutcomeModel(PlayedModel):
    """Answers by a rule on the whole request."""

    def _reply(self, number: int, request: Any) -> tuple[int, Reply | Failure]:
        return number, self._answer(request)  # type: ignore[call-arg, arg-type]


def test_a_failure_is_not_claimed_any_more(door_key: EnvAdapter, store: ResponseStore) -> None:
    """Another process would wait for its answer."""
    down = PlayedModel(lambda *_: Failure("down"))
    list(annotator(down, door_key, store).annotate(questions(3)))
    with sqlite3.connect(store.path) as connection:
        assert connection.execute("SELECT count(*) FROM claims").fetchone() == (0,)
    connection.close()


def test_the_cost_is_a_lower_bound_if_that_of_an_answer_is_unknown(door_key: EnvAdapter, store: ResponseStore) -> None:
    price = Price(model="played", date=date(2026, 1, 1), source="", input=1.0, output=2.0)
    question = PairQuestion(load_prompt("motif"), door_key, None, both_orders=False)
    tokens = {"a": (10, 5), "b": (None, None)}
    model = PlayedModel(lambda first, *_: Reply('{"best_description": 1}', None, *tokens[first]))
    asker = Asker(model, Sampling(), question, store, price=price)
    for first, cost, missing in (("a", 20e-6, {}), ("b", 20e-6, {"uncounted": 1, "unpriced": 1})):
        list(asker.ask([Pair(first, "c")]))
        assert asker.usage["cost_usd"] == pytest.approx(cost)
        assert {key: asker.usage[key] for key in ("uncounted", "unpriced") if key in asker.usage} == missing
    free = Price(model="played", date=date(2026, 1, 1), source="", input=0.0, output=0.0)
    asker = Asker(model, Sampling(), question, store, price=free)
    list(asker.ask([Pair("b", "d")]))
    assert (asker.usage["cost_usd"], asker.usage["uncounted"], asker.usage.get("unpriced")) == (0.0, 1, None)


def test_attempts_that_were_billed_without_an_answer_count(door_key: EnvAdapter, store: ResponseStore) -> None:
    price = Price(model="played", date=date(2026, 1, 1), source="", input=1.0, cached_input=0.5, output=2.0)
    question = PairQuestion(load_prompt("motif"), door_key, None, both_orders=False)
    replies: dict[str, Reply | Failure] = {
        "a": Reply('{"best_description": 1}', None, 10, 5, lost=Tokens(100, 1, 50)),
        "b": Failure("no choice", Tokens(200, 2)),
        "w": Withheld("its second batch was not awaited", Tokens(300, 1)),
        "s": Stopped("asking was stopped", Tokens(400, 3)),
    }
    asker = Asker(PlayedModel(lambda first, *_: replies[first]), Sampling(), question, store, price=price)
    verdicts = [answers[0].verdict for answers in asker.ask([Pair(first, "c") for first in "abws"])]
    assert verdicts[1:] == ["failed", "unasked", "failed"], "an online judge asks later about what failed"
    assert (asker.usage["calls"], asker.usage["failures"]) == (2, 1)
    assert (asker.usage["input_tokens"], asker.usage["output_tokens"]) == (1010, 12)
    assert asker.usage["cost_usd"] == pytest.approx((1010 - 25 + 24) * 1e-6)


@pytest.mark.parametrize("batched", [False, True])
def test_an_answer_of_a_batch_that_two_processes_wait_for_counts_once(
    door_key: EnvAdapter, store: ResponseStore, batched: bool
) -> None:
    question = PairQuestion(load_prompt("motif"), door_key, None, both_orders=False)
    reply = Reply('{"best_description": 1}', None, 10, 5, batched=batched)

    def asked(answer: Callable[..., Reply]) -> Asker[Pair, float]:
        asker = Asker(PlayedModel(answer), Sampling(), question, ResponseStore(store.path))
        list(asker.ask([Pair("a", "c")]))
        return asker

    others: list[Asker[Pair, float]] = []

    def while_another_receives_it(*_: object) -> Reply:
        store._connection.execute("DELETE FROM claims")  # questions of a batch have no claim
        others.append(asked(lambda *_: reply))
        return reply

    both = [asked(while_another_receives_it), *others]
    assert [asker.usage["calls"] for asker in both] == ([0, 1] if batched else [1, 1])
    assert [asker.usage["input_tokens"] for asker in both] == ([0, 10] if batched else [10, 10])
    assert [asker.usage["cached"] for asker in both] == ([1, 0] if batched else [0, 0])


def test_an_answer_whose_end_is_not_stored_is_not_read(door_key: EnvAdapter, store: ResponseStore) -> None:
    whole = '{"best_description": 1}'
    for text, status in ((whole.ljust(LONGEST_TEXT - 1), "ok"), (whole.ljust(LONGEST_TEXT), "parse_failed")):
        model = PlayedModel(lambda *_, text=text: Reply(text))
        (judged,) = annotator(model, door_key, store, both_orders=False, gives_up=False).annotate(
            [Pair(text[-9:], status)]
        )
        assert judged.status == status
