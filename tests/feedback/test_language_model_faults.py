"""Pairs through every fault of a server: all get a status, none is lost, no answer is paid for twice."""

from __future__ import annotations

import random
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chat_server import ChatServer, chat_server, completion, top_logprobs

from laurel.envs import adapter_for
from laurel.feedback.annotator import Pair, judge
from laurel.feedback.asker import Asker
from laurel.feedback.language_model import LanguageModelAnnotator
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.llm.chat import Sampling
from laurel.llm.openai_chat import OpenAIChat
from laurel.llm.responses import ResponseStore
from laurel.params import EnvParams
from laurel.params.judges import OpenAIParams

PAIRS = 300
# Time-outs are tested where the requests are made (test_openai_chat.py): here an answer that a busy machine delays
# would run into one, too, and then count as paid for twice.
PASSING = ["429", "429-after", "500", "502", "503", "409", "408", "reset", "half", "cut", "schema", "other", "error200"]
PASSING += ["reset,500,half"]
FATAL = ("400", "500,500,500,500")
SAYS = {
    "mute": "Hm, let me see.",
    "shy": "I cannot answer that.",
    "one": '{"analysis": "", "best_description": 1}',
    "two": 'It is clear. ```json\n{"best_description": 2}\n```',
    "tie": '("best_description": null)',
}
MEANS = {
    "one": ("ok", 1.0),
    "two": ("ok", 0.0),
    "tie": ("tie", 0.5),
    "mute": ("parse_failed", None),
    "shy": ("abstain", None),
}


class Teacher:
    """Plans what each pair's questions meet, in either order."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        plans = [*PASSING * 6, *[FATAL[0]] * 8, *[FATAL[1]] * 2]  # five given up in a row would stop the run
        plans += [""] * (PAIRS - len(plans))
        rng.shuffle(plans)
        self.faults = [(plan, rng.choice([plan, ""])) for plan in plans]
        """By pair and order: what the first attempts meet."""
        self.says = rng.choices(list(SAYS), [1, 1, 4, 4, 2], k=PAIRS)

    def plan(self, body: dict[str, Any]) -> tuple[str, list[str], str]:
        first, second = re.findall(r'(?m)^Text [12]: "You pass door (\d+[ab])\."$', body["messages"][1]["content"])
        number, swapped = int(first[:-1]), first.endswith("b")
        assert second == f"{number}{'a' if swapped else 'b'}"
        again = len(body["messages"]) > 2
        faults = "" if again else self.faults[number][swapped]
        said = SAYS[self.says[number]]
        if swapped:
            said = said.translate(str.maketrans("12", "21"))
        return f"{number}{swapped}{again}", [fault for fault in faults.split(",") if fault], said

    def expected(self, number: int) -> tuple[str, float | None, int]:
        """Return status, probability and answers of a pair."""
        lost = sum(faults in FATAL for faults in self.faults[number])
        status, p = MEANS[self.says[number]] if lost < 2 else ("api_failed", None)
        if lost == 1 and p is not None:
            status, p = "incomplete", None  # one order is not both
        votes = {"abstain": 2, "parse_failed": 0, "api_failed": 0}.get(status, 2 - lost)
        return status, p, votes


def test_pairs_through_every_fault(tmp_path: Path) -> None:
    teacher = Teacher(0)
    questions = [Pair(f"You pass door {i}a.", f"You pass door {i}b.") for i in range(PAIRS)]
    with chat_server() as server:
        server.plan = teacher.plan
        annotator = asking(server, tmp_path)
        judgements = list(judge(annotator, iter(questions)))
        assert len(judgements) == PAIRS
        for number, judgement in enumerate(judgements):
            said = (judgement.status, judgement.p_first, judgement.votes)
            assert said == teacher.expected(number), (teacher.faults[number], teacher.says[number])
            assert [(answer.variant, answer.vote) for answer in judgement.answers] == [(0, 0), (1, 0)]
        assert set(Counter(judgement.status for judgement in judgements)) == {
            "ok", "tie", "abstain", "incomplete", "parse_failed", "api_failed",
        }  # fmt: skip
        paid = Counter(server.answered)
        assert set(paid.values()) == {1}, "no answer is asked for twice"
        assert len(ResponseStore(tmp_path / "r.db")) == len(paid)

        before = len(server.bodies)
        again = asking(server, tmp_path)
        statuses = Counter(judgement.status for judgement in judge(again, questions))
        assert statuses["api_failed"] == statuses["incomplete"] == 0, "what had failed was asked for anew"
        assert again.usage["cached"] == len(paid)
        assert not {teacher.plan(body)[0] for body in server.bodies[before:]} & set(paid), "and nothing else"


def asking(server: ChatServer, place: Path, name: str = "motif") -> LanguageModelAnnotator:
    params = OpenAIParams(model="m", base_url=server.url, timeout_seconds=60.0, retries=3, max_in_flight=64)
    adapter = adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0"))
    store = ResponseStore(place / "r.db")
    question = PairQuestion(load_prompt(name), adapter)
    return LanguageModelAnnotator(Asker(OpenAIChat(params, backoff=0.02), Sampling(), question, store))


def test_odd_answers_are_read_by_their_words_or_not_at_all_and_no_rerun_trips_over_them(tmp_path: Path) -> None:
    """NaN and huge log-probabilities, token counts in words, no usage at all, and five million characters."""
    odd: list[dict[str, Any]] = []
    for value in (float("nan"), 1e308, -0.1):
        odd.append(completion("1", top_logprobs(**{"1": value, "2": -3.0})))
        odd.append({**odd[-1], "usage": {"prompt_tokens": "five", "completion_tokens": "one"}})
        odd.append({**odd[-1], "usage": None})
    odd.append(completion("1. " * 2_000_000))
    with chat_server() as server:
        server.behave = lambda request, body: web.json_response(odd[_number(body)])
        questions = [Pair(f"You pass door {i}a.", f"You pass door {i}b.") for i in range(len(odd))]
        judged = [
            [
                (judgement.status, judgement.p_first)
                for judgement in judge(asking(server, tmp_path, "answer_only"), questions)
            ]
            for _ in range(2)
        ]
        assert judged[0] == judged[1]
        assert [status for status, _ in judged[0]] == ["tie"] * (len(odd) - 1) + ["parse_failed"]
        longest = max(len(message["content"]) for body in server.bodies for message in body["messages"])
        assert longest < 10_000, "what is sent back in a follow-up is an excerpt"
    assert (tmp_path / "r.db").stat().st_size < 2_000_000


def _number(body: dict[str, Any]) -> int:
    found = re.search(r"You pass door (\d+)", body["messages"][1]["content"])
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("logprobs", ['{"1": NaN, "2": NaN}', '{"1": 1e308, "2": 0.0}'])
def test_unreadable_answers_stored_by_an_earlier_version_are_asked_again(tmp_path: Path, logprobs: str) -> None:
    questions = [Pair("You pass door 0a.", "You pass door 0b.")]
    with chat_server() as server:
        server.behave = lambda request, body: web.json_response(completion("1", top_logprobs(**{"1": 0.0, "2": -9.0})))
        list(judge(asking(server, tmp_path, "answer_only"), questions))
        with closing(sqlite3.connect(tmp_path / "r.db")) as store, store:
            store.execute("UPDATE responses SET text = '', logprobs = ?, output_tokens = 'many'", (logprobs,))
        before = len(server.bodies)
        for _ in range(2):
            (judgement,) = judge(asking(server, tmp_path, "answer_only"), questions)
            assert (judgement.status, judgement.p_first) == ("tie", 0.5)
        assert len(server.bodies) - before == 2, "once for each order, and never again"
