"""A chat model that answers by a rule, and the annotator that asks it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator

from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Pair
from laurel.feedback.asker import Asker
from laurel.feedback.language_model import LanguageModelAnnotator
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.llm.chat import ChatRequest, Failure, Identity, Reply, Sampling
from laurel.llm.responses import ResponseStore

Rule = Callable[[str, str, ChatRequest], Reply | Failure]


class PlayedModel:
    """A chat model that answers by a rule on the two texts shown, some requests at a time and out of order."""

    def __init__(self, answer: Rule, *, in_flight: int = 5, name: str = "played") -> None:
        self.identity = Identity(name)
        self.requests: list[ChatRequest] = []
        self.most_drawn = 0
        self._answer, self._in_flight = answer, in_flight

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        window: list[tuple[int, ChatRequest]] = []
        rng = random.Random(0)
        answered = 0
        for number, request in enumerate(requests):
            self.requests.append(request)
            window.append((number, request))
            self.most_drawn = max(self.most_drawn, number - answered)
            if len(window) == self._in_flight:
                answered += 1
                yield self._reply(*window.pop(rng.randrange(len(window))))
        rng.shuffle(window)
        for entry in window:
            yield self._reply(*entry)

    def _reply(self, number: int, request: ChatRequest) -> tuple[int, Reply | Failure]:
        shown = re.findall(r'(?m)^.{0,30}?("(?:[^"\\\\]|\\\\.)*")$', request.messages[1].content)
        first, second = map(json.loads, shown[:2])
        return number, self._answer(first, second, request)


def longer(first: str, second: str, _: ChatRequest) -> Reply:
    """Prefer the longer text, in JSON."""
    best = None if len(first) == len(second) else 1 if len(first) > len(second) else 2
    return Reply(json.dumps({"analysis": "", "best_description": best}), None, 10, 5)


def annotator(
    model: PlayedModel,
    adapter: EnvAdapter,
    store: ResponseStore,
    prompt: str = "motif",
    *,
    goal: str | None = None,
    both_orders: bool = True,
    votes: int = 1,
    tie_band: float = 0.0,
    gives_up: bool = True,
) -> LanguageModelAnnotator:
    question = PairQuestion(load_prompt(prompt), adapter, goal, both_orders=both_orders)
    return LanguageModelAnnotator(
        Asker(model, Sampling(), question, store, votes=votes, gives_up=gives_up), tie_band=tie_band
    )


def questions(n: int) -> list[Pair]:
    return [Pair(f"You do {'x' * (i % 7)} {i}.", f"You see {'y' * (i % 5)} {i}.") for i in range(n)]
