"""The online judge: killed again and again, it loses no question and pays for no answer twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chat_server import chat_server, completion, problem

from laurel.errors import LaurelError, WorkerError
from laurel.feedback.question_queue import CLOSED, READY, USAGE, QuestionQueue, Topic
from laurel.llm.responses import ResponseStore
from laurel.params import EnvParams, parse_params
from laurel.rewards import judging
from laurel.rewards.judging import Judging
from laurel.rewards.method import RewardContext
from minimal_params import MINIMAL

KILLS, IN_FLIGHT = 10, 4
TOPIC = Topic("pair", "main")


def context_of(folder: Path, monkeypatch: pytest.MonkeyPatch, url: str, **annotate: Any) -> RewardContext:
    responses = folder / "responses.db"
    monkeypatch.setenv("LAUREL_ALLOW_RESPONSES", str(responses))
    asking = {"model": "teacher", "base_url": url, "max_in_flight": IN_FLIGHT}
    content = {"annotator": "openai", "openai": asking, "language_model": {"responses": str(responses)}, **annotate}
    params = {**MINIMAL, "annotate": content, "arms": {"a": {"reward": "online"}}}
    return RewardContext.of(parse_params(params, "a test"))


def answered(request: web.Request, body: dict[str, Any]) -> web.Response:
    texts = re.findall(r'(?m)^Text [12]: "caption (\d+)"$', body["messages"][1]["content"])
    first, second = map(int, texts)
    return web.json_response(completion(json.dumps({"analysis": "", "best_description": 1 if first > second else 2})))


def wait_for(queue: QuestionQueue, number: int, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while queue.counts()[1] < number:
        assert time.monotonic() < until, queue.counts()
        time.sleep(0.005)


@pytest.mark.slow
def test_ten_kills_lose_no_answer_and_pay_for_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [(f"caption {i}", f"caption {j}") for i in range(12) for j in range(i)]
    with chat_server() as server:
        server.latency, server.behave = 0.02, answered
        context = context_of(tmp_path, monkeypatch, server.url)
        with Judging(0, context, [TOPIC]) as judging:
            assert judging.queue is not None
            queue = QuestionQueue(judging.queue)
            numbers: list[int] = []
            for kill in range(KILLS):
                numbers += queue.post(TOPIC.name, pairs[6 * kill : 6 * (kill + 1)])
                wait_for(queue, 6 * kill + 2)
                (judge,) = [child for child in multiprocessing.active_children() if child.name == "judge"]
                assert judge.pid is not None
                os.kill(judge.pid, signal.SIGKILL)
            numbers += queue.post(TOPIC.name, pairs[6 * KILLS :])
            wait_for(queue, len(pairs))
            found = queue.answers(numbers)
            usage = json.loads(queue.fact(USAGE) or "{}")
        assert judging.restarts == KILLS
        assert [found[number].p for number in numbers] == [1.0] * len(pairs)
        calls = len(server.bodies)
    assert len(ResponseStore(tmp_path / "responses.db")) == 2 * len(pairs), "one for each order"
    assert calls <= 2 * len(pairs) + KILLS * IN_FLIGHT, "what was on its way, and no more"
    assert usage["calls"] <= calls
    assert capsys.readouterr().err.count("is restarted") == KILLS


@pytest.mark.slow
@pytest.mark.parametrize("how", ["the end", "a signal to the judge"])
def test_answers_on_their_way_are_kept_when_the_judge_is_stopped(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are paid, and the next run would ask for them again."""
    pairs = [(f"caption {i}", f"caption {j}") for i in range(8) for j in range(i)]
    monkeypatch.setattr(judging, "STOPPED_WITHIN", 0.0)
    with chat_server() as server:
        server.latency, server.behave = 0.3, answered
        context = context_of(tmp_path, monkeypatch, server.url)
        with Judging(0, context, [TOPIC]) as judge:
            assert judge.queue is not None
            queue = QuestionQueue(judge.queue)
            queue.post(TOPIC.name, pairs)
            wait_for(queue, 2)
            if how == "a signal to the judge":
                (process,) = [child for child in multiprocessing.active_children() if child.name == "judge"]
                process.terminate()
                wait_for(queue, 10)
        calls = len(server.bodies)
    assert judge.restarts == (how != "the end")
    assert len(ResponseStore(tmp_path / "responses.db")) == judge.usage["calls"] == calls < 2 * len(pairs)
    assert capsys.readouterr().err.count("It is restarted") == judge.restarts


def test_questions_with_known_answers_count_where_agents_ask_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prefers_the_goal(request: web.Request, body: dict[str, Any]) -> web.Response:
        first = "reach the goal" in body["messages"][1]["content"].partition("Text 2:")[0].partition("Text 1:")[2]
        return web.json_response(completion(json.dumps({"analysis": "", "best_description": 1 if first else 2})))

    noted: list[float] = []
    with chat_server() as server:
        server.latency, server.behave = 0.4, prefers_the_goal
        context = context_of(tmp_path, monkeypatch, server.url)
        asking = Judging(0, replace(context, env=EnvParams(id="MiniGrid-DoorKey-5x5-v0")), [TOPIC])
        asking.answered = lambda: noted.append(asking.used().get("calls") or 0)
        with asking as asked:
            assert asked.queue is not None
            queue = QuestionQueue(asked.queue)
            until = time.monotonic() + 60
            while queue.fact(READY) is None:
                assert time.monotonic() < until
                time.sleep(0.01)
        assert asked.usage["calls"] == len(server.bodies) == 2 * 16
        assert any(0 < calls < 2 * 16 for calls in noted), "a run that is killed meanwhile counts what it used"
        assert asked.asked


@pytest.mark.parametrize("broken", ["unreadable", "refused"])
def test_questions_of_one_kind_that_cannot_be_answered_do_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """An arm would train on fewer labels because of another arm's prompt or server."""
    captions = Topic("caption", "main")

    def behave(request: web.Request, body: dict[str, Any]) -> web.Response:
        if "Text 2:" in body["messages"][1]["content"]:
            return answered(request, body)
        return web.json_response(completion("Hm.")) if broken == "unreadable" else problem(404, "no such model")

    with chat_server() as server:
        server.behave = behave
        context = context_of(tmp_path, monkeypatch, server.url)
        with Judging(0, context, [captions, TOPIC]) as asked:
            assert asked.queue is not None
            queue = QuestionQueue(asked.queue)
            queue.post(captions.name, [(f"caption {i}", "") for i in range(40)])
            until = time.monotonic() + 60
            while broken == "unreadable" and queue.closed(captions.name) is None:
                assert time.monotonic() < until
                time.sleep(0.01)
            numbers = queue.post(TOPIC.name, [(f"caption {i}", "caption 0") for i in range(1, 9)])
            while len(found := queue.answers(numbers)) < 8:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert [verdict.p for verdict in found.values()] == [1.0] * 8
            assert queue.closed(TOPIC.name) is None
    assert [note.partition(": ")[2][:24] for note in asked.notes] == ["none of the first 24 que"] * (
        broken != "refused"
    )


@pytest.mark.slow
def test_a_spent_budget_and_a_refusal_are_reported_and_end_the_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chat_server() as server:
        server.behave = answered
        context = context_of(tmp_path, monkeypatch, server.url, budget={"max_calls": 6})
        with Judging(0, context, [TOPIC]) as asked:
            assert asked.queue is not None
            queue = QuestionQueue(asked.queue)
            queue.post(TOPIC.name, [(f"caption {i}", "caption 0") for i in range(1, 9)])
            until = time.monotonic() + 60
            while queue.fact(CLOSED) is None:
                assert time.monotonic() < until
                time.sleep(0.01)
        assert "6 calls" in asked.notes[0]
        (sample,) = asked.asked
        assert len(sample["items"]) == 3, "three pairs in both orders, which MLflow shows as traces"
        assert len(server.bodies) == 6
        dear = context_of(tmp_path, monkeypatch, server.url, budget={"max_cost": 1.0})
        for shown in ("pair", "caption"):
            topic = Topic(shown, "main")
            with pytest.raises(LaurelError, match=r"max_cost is \$1.00, but the price"), Judging(0, dear, [topic]):
                pass
    judged = {"annotator": "embedding", "embedding": {"model": "/nowhere"}}
    content = {**MINIMAL, "env": {"id": "FrozenLake-v1"}, "annotate": judged}
    nowhere = RewardContext.of(parse_params(content, "a test"))
    with pytest.raises(LaurelError, match="there is no such directory"), Judging(0, nowhere, [TOPIC]):
        pass


@pytest.mark.slow
def test_a_killed_judge_spends_no_more_than_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed amid a block of questions: calls that were made count for the process that follows."""
    limit, first_calls = 40, 10
    pairs = [(f"caption {i}", f"caption {j}") for i in range(12) for j in range(i)]
    with chat_server() as server:
        server.latency, server.behave = 0.1, answered
        context = context_of(tmp_path, monkeypatch, server.url, budget={"max_calls": limit})
        with Judging(0, context, [TOPIC]) as judging:
            assert judging.queue is not None
            queue = QuestionQueue(judging.queue)
            queue.post(TOPIC.name, pairs)
            until = time.monotonic() + 120
            for kill in range(2):
                while len(server.bodies) < (kill + 1) * first_calls:
                    assert time.monotonic() < until
                    time.sleep(0.001)
                (judge,) = [child for child in multiprocessing.active_children() if child.name == "judge"]
                assert judge.pid is not None
                os.kill(judge.pid, signal.SIGKILL)
                while judging.restarts == kill:
                    time.sleep(0.001)
            while queue.fact(CLOSED) is None:
                assert time.monotonic() < until
                time.sleep(0.01)
        assert len(server.bodies) <= limit
        assert judging.usage["calls"] <= len(server.bodies)
    (note,) = judging.notes
    assert re.search(
        r"The budget of 40 calls \(annotate\.budget\.max_calls\) is spent: 40 calls, [\d,]+ tokens\.$", note
    )


def test_a_judge_that_dies_at_each_start_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that had answered is started again for as long as training lasts."""
    monkeypatch.setattr(judging, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(Judging, "_watched", lambda self: "died")
    context = context_of(tmp_path, monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(WorkerError, match="The online judge died before it could answer, 5 times in a row"):
        Judging(0, context, [TOPIC]).__enter__()
    assert capsys.readouterr().err.count("It is restarted") == judging.STARTS - 1
    monkeypatch.setattr(Judging, "_wait", lambda self: self._queue.note(READY, "{}"))
    with Judging(0, context, [TOPIC]) as running:
        until = time.monotonic() + 300
        while running.restarts < 2 * judging.STARTS:
            assert time.monotonic() < until
            time.sleep(0.01)
