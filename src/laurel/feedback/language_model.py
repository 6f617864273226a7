"""A chat model as annotator: asked in both orders, several times if wished, and never twice for the same.

    p(first) = mean over the answers that could be read; an answer in words counts 1, 0 or 1/2 (a tie),
               one in log-probabilities what they say

Knows which question an answer belongs to; knows nothing about how a model is reached or what a prompt says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from math import exp
from time import sleep
from typing import TYPE_CHECKING

from laurel.envs.base import Room
from laurel.feedback.annotator import Judgement, Question, Said
from laurel.feedback.parsing import Answer, parse_answer
from laurel.feedback.prompt import Prompt
from laurel.llm.chat import ChatModel, ChatRequest, Failure, Reply, Sampling, Withheld
from laurel.llm.prices import Price, add_costs
from laurel.llm.responses import Exchange, ResponseStore

if TYPE_CHECKING:
    from laurel.params.annotation import LanguageModelParams

BLOCK = 4096
"""Questions that are worked on together; memory does not grow with their number."""
LOOK_AHEAD = 128
"""Requests that are looked up in the store at a time."""
POLL_SECONDS = 0.5
"""How often to look whether another process has got its answer."""
P_FIRST: dict[Answer, float | None] = {"first": 1.0, "second": 0.0, "tie": 0.5, "abstain": None}
TURNED: dict[Answer, Answer] = {"first": "second", "second": "first", "tie": "tie", "abstain": "abstain"}
UNREAD, FAILED, UNASKED = "unread", "failed", "unasked"


@dataclass(frozen=True, slots=True)
class _Ask:
    """One request, and which question it belongs to."""

    question: int
    swapped: bool
    vote: int
    request: ChatRequest
    key: str
    again: bool = False
    """True for the follow-up to an answer that could not be read."""


@dataclass
class Usage:
    """What a run has cost so far."""

    calls: int = 0
    """Answers and failures that the model was asked for."""
    cached: int = 0
    """Answers that the store had."""
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    """That answers took, added up; many are on their way at once."""
    cost_usd: float | None = 0.0
    """US dollars; None where a price or a number of tokens is unknown."""


@dataclass(slots=True)
class _Pending:
    """A question whose answers come in."""

    missing: int
    said: list[Said] = field(default_factory=list)


class LanguageModelAnnotator:
    """Asks a chat model which of two texts is better.

    Args:
        model: who is asked.
        sampling: how it draws its answers; the seed is set by vote.
        prompt: in which words.
        room: the environment's.
        store: keeps every answer.
        params: orders, votes, goal and tie band are used.
        choices: answers whose probabilities are wanted; none where the answer is to be in words.
        price: of the model's tokens; None where it is unknown.
    """

    simulated = False

    def __init__(
        self,
        model: ChatModel,
        sampling: Sampling,
        prompt: Prompt,
        room: Room,
        store: ResponseStore,
        params: LanguageModelParams,
        choices: tuple[str, ...] = (),
        price: Price | None = None,
    ) -> None:
        steered = f', goal "{params.goal}"' if params.goal else ""
        self.name = f"{model.identity.model} (prompt {prompt.name} {prompt.digest[:8]}{steered})"
        self._usage = Usage()
        self._model = model
        self._sampling = sampling
        self._prompt = prompt
        self._room = room
        self._store = store
        self._params = params
        self._choices = choices
        self._price = price
        self.at_once: int = getattr(model, "at_once", 0)

    @property
    def usage(self) -> dict[str, float | None]:
        """Return calls, answers taken from the store, failures, tokens, seconds and dollars so far."""
        return {**asdict(self._usage), "seconds": round(self._usage.seconds, 2)}

    def prepare(self, questions: Iterable[Question]) -> None:
        """Do nothing: each question is judged by itself."""

    def annotate(self, questions: Iterable[Question]) -> Iterator[Judgement]:
        """Yield a judgement for each question, in order.

        Raises:
            RefusedError: the model cannot be asked; all answers that came are kept.
        """
        stream = iter(questions)
        while block := list(islice(stream, max(BLOCK, self.at_once))):
            yield from self._block(block)

    def _block(self, questions: Sequence[Question]) -> Iterator[Judgement]:
        orders = (False, True) if self._params.both_orders else (False,)
        pending = [_Pending(len(orders) * self._params.votes) for _ in questions]
        asks: Iterable[_Ask] = (
            self._ask(number, question, swapped, vote)
            for number, question in enumerate(questions)
            for swapped in orders
            for vote in range(self._params.votes)
        )
        done = 0
        while True:
            unread: list[_Ask] = []
            for ask, answer in self._answers(asks):
                said = self._read(ask, answer)
                if said.verdict == UNREAD and not ask.again:
                    assert isinstance(answer, Reply)
                    unread.append(self._follow_up(ask, answer))
                    continue
                here = pending[ask.question]
                here.said.append(said)
                here.missing -= 1
                while done < len(pending) and not pending[done].missing:
                    yield self._judgement(pending[done].said)
                    done += 1
            if not unread:
                return
            asks = unread

    def _ask(self, number: int, question: Question, swapped: bool, vote: int) -> _Ask:
        texts = (question.second, question.first) if swapped else (question.first, question.second)
        messages = self._prompt.messages(*texts, self._room, self._params.goal)
        drawn = Sampling(self._sampling.temperature, self._sampling.top_p, self._sampling.max_tokens, vote or None)
        request = ChatRequest(messages, drawn, self._choices, self._prompt.schema)
        return _Ask(number, swapped, vote, request, request.digest(self._model.identity))

    def _follow_up(self, ask: _Ask, reply: Reply) -> _Ask:
        """Ask once more, in the same conversation."""
        before = ask.request
        messages = self._prompt.follow_up(before.messages, reply.text)
        request = ChatRequest(messages, before.sampling, before.choices, before.schema)
        return _Ask(ask.question, ask.swapped, ask.vote, request, request.digest(self._model.identity), again=True)

    def _answers(self, asks: Iterable[_Ask]) -> Iterator[tuple[_Ask, Reply | Failure]]:
        """Yield the answer to each request as it comes: from the store, from the model, or from another process."""
        stream = iter(asks)
        waiting: dict[str, list[_Ask]] = {}
        ready: deque[tuple[_Ask, Reply | Failure]] = deque()
        elsewhere: list[_Ask] = []
        sent: dict[int, _Ask] = {}
        some = list(islice(stream, LOOK_AHEAD))

        def to_send() -> Iterator[ChatRequest]:
            """Yield the requests that only the model can answer, each question once."""
            nonlocal some
            while some and len(ready) < max(BLOCK, self.at_once):
                keys = list(dict.fromkeys(ask.key for ask in some))
                stored = self._store.get(keys)
                mine = self._store.claim([key for key in keys if key not in stored and key not in waiting])
                waiting.update((key, []) for key in mine)
                to_ask: list[_Ask] = []
                for ask in some:
                    if ask.key in stored:
                        self._usage.cached += 1
                        ready.append((ask, stored[ask.key]))
                    elif ask.key in waiting:
                        if not waiting[ask.key]:
                            to_ask.append(ask)
                        waiting[ask.key].append(ask)
                    else:
                        elsewhere.append(ask)
                some = list(islice(stream, LOOK_AHEAD))
                for ask in to_ask:
                    sent[len(sent)] = ask
                    yield ask.request

        try:
            while some or elsewhere:
                sent.clear()
                for number, answer in self._model.ask(to_send()):
                    ask = sent[number]
                    self._keep(ask, answer)
                    yield from ((each, answer) for each in waiting.pop(ask.key))
                    while ready:
                        yield ready.popleft()
                yield from ready
                ready.clear()
                if not some and elsewhere:  # until their answers are there, or their claims have expired
                    sleep(POLL_SECONDS)
                    some, elsewhere = elsewhere, []
        finally:
            self._store.release(waiting)

    def _keep(self, ask: _Ask, answer: Reply | Failure) -> None:
        if isinstance(answer, Withheld):
            self._store.release([ask.key])
            return
        self._usage.calls += 1
        if isinstance(answer, Failure):
            self._usage.failures += 1
            self._store.release([ask.key])
            return
        self._usage.seconds += answer.seconds
        cost = self._price.of_reply(answer) if self._price else None
        self._usage.cost_usd = add_costs(self._usage.cost_usd, cost)
        self._usage.input_tokens += answer.input_tokens or 0
        self._usage.output_tokens += answer.output_tokens or 0
        self._store.put(Exchange(ask.key, self._model.identity, ask.request, answer))

    def _read(self, ask: _Ask, answer: Reply | Failure) -> Said:
        """Say what an answer means for the question as it is, whichever order it was shown in."""
        if isinstance(answer, Failure):
            return Said(ask.swapped, ask.vote, UNASKED if isinstance(answer, Withheld) else FAILED, None, "")
        p: float | None
        if answer.logprobs is not None and ask.request.choices:
            p = exp(answer.logprobs[ask.request.choices[0]])
            verdict: Answer | None = "first" if p > 0.5 else "second" if p < 0.5 else "tie"
        else:
            verdict = parse_answer(answer.text, self._prompt.answer)
            p = None if verdict is None else P_FIRST[verdict]
        if verdict is None:
            return Said(ask.swapped, ask.vote, UNREAD, None, ask.key)
        if ask.swapped:
            verdict, p = TURNED[verdict], None if p is None else 1 - p
        return Said(ask.swapped, ask.vote, verdict, p, ask.key)

    def _judgement(self, said: list[Said]) -> Judgement:
        came = (one for one in said if one.verdict != UNASKED)
        answers = tuple(sorted(came, key=lambda one: (one.swapped, one.vote)))
        labels = [one.p_first for one in answers if one.p_first is not None]
        if not labels:
            verdicts = {one.verdict for one in answers}
            if len(answers) < len(said):
                return Judgement("unasked", None, 0, None, answers)
            if "abstain" in verdicts:
                return Judgement("abstain", None, len(answers), None, answers)
            return Judgement("parse_failed" if UNREAD in verdicts else "api_failed", None, 0, None, answers)
        p = sum(labels) / len(labels)
        tie = abs(p - 0.5) <= self._params.tie_band
        return Judgement("tie" if tie else "ok", 0.5 if tie else p, len(labels), _consistent(answers), answers)


def _consistent(answers: Sequence[Said]) -> bool | None:
    """Tell whether both orders came to the same side; None where one of them came to none."""
    sides = []
    for swapped in (False, True):
        labels = [one.p_first for one in answers if one.swapped == swapped and one.p_first is not None]
        if not labels:
            return None
        mean = sum(labels) / len(labels)
        sides.append((mean > 0.5) - (mean < 0.5))
    return sides[0] == sides[1]
