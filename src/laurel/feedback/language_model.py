"""A chat model as annotator: asked in both orders, several times if wished, and never twice for the same.

    p(first) = mean over the orders of the mean over their answers that could be read; an answer in words
               counts 1, 0 or 1/2 (a tie), one in log-probabilities what they say

There is a label only where most votes in each order could be read: with one order alone, a model that names whatever
is shown first would give certain labels.

Knows which question an answer belongs to; knows nothing about how a model is reached or what a prompt says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import count, islice
from math import exp
from time import sleep
from typing import TYPE_CHECKING, TypeVar

from laurel.data.missing import Reasons
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Judgement, OnSettled, Question, Said
from laurel.feedback.keys import QuestionKeys
from laurel.feedback.parsing import Answer, parse_answer
from laurel.feedback.prompt import Prompt
from laurel.feedback.unreadable import Readable
from laurel.llm.chat import ChatModel, ChatRequest, Failure, Reply, Sampling, Withheld
from laurel.llm.prices import Price, add_costs
from laurel.llm.replies import LONGEST_TEXT
from laurel.llm.responses import Exchange, ResponseStore

if TYPE_CHECKING:
    from laurel.params.judges import LanguageModelParams

BLOCK = 4096
"""Questions that are worked on together; memory does not grow with their number."""
LOOK_UP = 512
"""Questions that are looked up in the store at a time."""
LOOK_AHEAD = 128
"""Requests that are claimed at a time, so that several processes share a block."""
FIRST_LOOK_AHEAD = 16
"""The same until an answer could be read: follow-ups come soon, so that a run that goes nowhere ends soon."""
REMEMBERED = 1024
"""Answers whose meaning is remembered, for models repeat themselves."""
POLL_SECONDS = 0.5
"""How often to look whether another process has got its answer."""
P_FIRST: dict[Answer, float | None] = {"first": 1.0, "second": 0.0, "tie": 0.5, "abstain": None}
TURNED: dict[Answer, Answer] = {"first": "second", "second": "first", "tie": "tie", "abstain": "abstain"}
IN_WORDS: tuple[dict[Answer, tuple[Answer, float | None]], ...] = (
    {said: (said, p) for said, p in P_FIRST.items()},
    {said: (TURNED[said], P_FIRST[TURNED[said]]) for said in P_FIRST},
)
"""Whether the second text was shown first -> what is said of the texts as they were shown -> of them as they are."""
CUT = "length"
"""Finish reason of an answer that came to its limit of tokens."""
Item = TypeVar("Item")
UNREAD, FAILED, UNASKED = "unread", "failed", "unasked"


@dataclass(slots=True)
class _Ask:
    """A request that the store has no answer to, and which question it belongs to."""

    question: int
    swapped: bool
    vote: int
    key: str
    texts: tuple[str, str]
    unread: str | None = None
    """Of a follow-up: the answer that could not be read."""

    def after(self, unread: str, keys: QuestionKeys) -> _Ask:
        """Return the follow-up: asking once more, in the same conversation."""
        return replace(self, key=keys.follow_up(self.key, unread), unread=unread)


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
    said: list[Said]

    def add(self, said: Said) -> None:
        self.said.append(said)
        self.missing -= 1


class LanguageModelAnnotator:
    """Asks a chat model which of two texts is better.

    Args:
        model: who is asked.
        sampling: how it draws its answers; the seed is set by vote.
        prompt: in which words.
        adapter: the environment's.
        store: keeps every answer.
        params: orders, votes, goal and tie band are used.
        choices: answers whose probabilities are wanted; none where the answer is to be in words.
        price: of the model's tokens; None where it is unknown.
        gives_up: whether asking ends where none of the first answers can be read.
    """

    simulated = False

    def __init__(
        self,
        model: ChatModel,
        sampling: Sampling,
        prompt: Prompt,
        adapter: EnvAdapter,
        store: ResponseStore,
        params: LanguageModelParams,
        choices: tuple[str, ...] = (),
        price: Price | None = None,
        gives_up: bool = True,
    ) -> None:
        steered = f', goal "{params.goal}"' if params.goal else ""
        self.name = f"{model.identity.model} (prompt {prompt.name} {prompt.digest[:8]}{steered})"
        self.on_settled: OnSettled = lambda number, *, stored: None
        self._readable = Readable(self.name, sampling.max_tokens, gives_up=gives_up)
        self._usage = Usage()
        self._failures = Reasons()
        self._model = model
        self._sampling = sampling
        self._prompt = prompt
        self._adapter = adapter
        self._store = store
        self._params = params
        self._choices = choices
        self._keys = QuestionKeys(model.identity, prompt, adapter, params.goal, sampling, choices)
        self._parse = lru_cache(REMEMBERED)(parse_answer)
        orders = (False, True) if params.both_orders else (False,)
        self._votes = params.votes
        self._orders = len(orders)
        self._ways = [(swapped, vote) for swapped in orders for vote in range(params.votes)]
        self._price = price
        self._tie_band = params.tie_band
        self.at_once: int = getattr(model, "at_once", 0)
        self._block = max(BLOCK, self.at_once)

    @property
    def usage(self) -> dict[str, float | None]:
        """Return calls, answers taken from the store, failures, tokens, seconds and dollars so far."""
        return {**asdict(self._usage), "seconds": round(self._usage.seconds, 2)}

    @property
    def failures(self) -> dict[str, dict[str, int]]:
        """Return why there was no answer -> how often, under this annotator's name."""
        return {self.name: self._failures.counts()}

    def prepare(self, questions: Iterable[Question]) -> None:
        """Do nothing: each question is judged by itself."""

    def annotate(self, questions: Iterable[Question]) -> Iterator[Judgement]:
        """Yield a judgement for each question, in order.

        Raises:
            RefusedError: the model cannot be asked; all answers that came are kept.
            UnreadableError: none of the first answers can be read.
        """
        stream = iter(questions)
        while some := list(islice(stream, min(LOOK_UP, self._block))):
            pending: list[_Pending] = []
            asks = self._recall(some, pending)
            while asks and len(pending) < self._block and (some := list(islice(stream, LOOK_UP))):
                asks += self._recall(some, pending)
            yield from self._settle(pending, asks)

    def _recall(self, questions: Sequence[Question], pending: list[_Pending]) -> list[_Ask]:
        """Add questions to those that are pending, with the answers that the store has; return what is to be asked."""
        key_of = self._keys.of
        keys = [
            key_of(second, first, vote) if swapped else key_of(first, second, vote)
            for first, second in questions
            for swapped, vote in self._ways
        ]
        stored = {row[0]: row for row in self._store.said(keys)}
        self._usage.cached += sum(map(stored.__contains__, keys))
        asks = []
        each_key, n_ways = iter(keys), len(self._ways)
        for number, (first, second) in enumerate(questions, len(pending)):
            said: list[Said] = []
            for (swapped, vote), key in zip(self._ways, each_key, strict=False):
                found = stored.get(key)
                if found is None:
                    asks.append(_Ask(number, swapped, vote, key, (first, second)))
                    continue
                _, text, logprobs, ended = found
                one = self._meaning(swapped, vote, key, text, logprobs, ended)
                if one.verdict == UNREAD:
                    asks.append(_Ask(number, swapped, vote, key, (first, second)).after(text, self._keys))
                else:
                    self._readable.succeeded(fresh=False)
                    said.append(one)
            pending.append(_Pending(n_ways - len(said), said))
        return asks

    def _settle(self, pending: Sequence[_Pending], asks: list[_Ask]) -> Iterator[Judgement]:
        """Ask what is to be asked, and yield the judgements on all that is pending, in order.

        A follow-up goes before what was not asked yet.

        Raises:
            UnreadableError: nothing that the model answers can be read.
        """
        done = 0

        def settled() -> Iterator[Judgement]:
            nonlocal done
            while done < len(pending) and not pending[done].missing:
                done += 1
                yield self._judgement(pending[done - 1].said)

        self.on_settled(sum(not one.missing for one in pending), stored=True)
        yield from settled()
        queue = deque(asks)
        for ask, answer, fresh in self._answers(queue):
            said = self._read(ask.swapped, ask.vote, ask.key, answer)
            if said.verdict == UNREAD:
                assert isinstance(answer, Reply)
                if ask.unread is None:
                    queue.appendleft(ask.after(answer.text, self._keys))
                    continue
                self._readable.failed(ask.key, answer, fresh=fresh)
            elif said.verdict not in (FAILED, UNASKED):
                self._readable.succeeded(fresh=fresh)
            one = pending[ask.question]
            one.add(said)
            if not one.missing and all(each.verdict != UNASKED for each in one.said):
                self.on_settled(1, stored=False)
            yield from settled()
        self._readable.check()

    def _request(self, ask: _Ask) -> ChatRequest:
        """Put a question in words."""
        shown = ask.texts[::-1] if ask.swapped else ask.texts
        messages = self._prompt.messages(*shown, self._adapter, self._params.goal)
        if ask.unread is not None:
            messages = self._prompt.follow_up(messages, ask.unread)
        drawn = replace(self._sampling, seed=ask.vote or None)
        return ChatRequest(messages, drawn, self._choices, self._prompt.schema, ask.key)

    def _answers(self, asks: deque[_Ask]) -> Iterator[tuple[_Ask, Reply | Failure, bool]]:
        """Yield the answer to each request as it comes: from the store, from the model, or from another process.

        Args:
            asks: what to ask; more may be added while answers come.

        Yields:
            Request, answer, and whether the model gave it now.
        """
        waiting: dict[str, list[_Ask]] = {}
        ready: deque[tuple[_Ask, Reply | Failure, bool]] = deque()
        elsewhere: list[_Ask] = []
        sent: dict[int, tuple[_Ask, ChatRequest]] = {}

        def to_send() -> Iterator[ChatRequest]:
            """Yield the requests that only the model can answer, each question once."""
            while asks and len(ready) < self._block and not self._readable.hopeless():
                look_ahead = LOOK_AHEAD if self._readable.known else FIRST_LOOK_AHEAD
                some = [asks.popleft() for _ in range(min(len(asks), look_ahead))]
                new = [key for key in dict.fromkeys(ask.key for ask in some) if key not in waiting]
                mine = self._store.claim(new)
                stored = self._store.get([key for key in new if key not in mine])
                waiting.update((key, []) for key in mine)
                to_ask: list[_Ask] = []
                for ask in some:
                    if ask.key in stored:
                        self._usage.cached += 1
                        ready.append((ask, stored[ask.key], False))
                    elif ask.key in waiting:
                        if not waiting[ask.key]:
                            to_ask.append(ask)
                        waiting[ask.key].append(ask)
                    else:
                        elsewhere.append(ask)
                for ask in to_ask:
                    if self._readable.hopeless():
                        return
                    request = self._request(ask)
                    sent[next(numbers)] = ask, request
                    yield request

        try:
            while (asks or elsewhere) and not self._readable.hopeless():
                numbers = count()
                for number, answer in self._model.ask(to_send()):
                    ask, request = sent.pop(number)
                    self._keep(request, answer)
                    yield from ((each, answer, True) for each in waiting.pop(ask.key))
                    yield from _drained(ready)
                yield from _drained(ready)
                if not asks and elsewhere:  # until their answers are there, or their claims have expired
                    sleep(POLL_SECONDS)
                    asks.extend(elsewhere)
                    elsewhere.clear()
        finally:
            self._store.release(waiting)

    def _keep(self, request: ChatRequest, answer: Reply | Failure) -> None:
        if isinstance(answer, Withheld):
            self._store.release([request.key])
            return
        self._usage.calls += 1
        if isinstance(answer, Failure):
            self._usage.failures += 1
            self._failures.add(answer.reason)
            self._store.release([request.key])
            return
        self._usage.seconds += answer.seconds
        cost = self._price.of_reply(answer) if self._price else None
        self._usage.cost_usd = add_costs(self._usage.cost_usd, cost)
        self._usage.input_tokens += answer.input_tokens or 0
        self._usage.output_tokens += answer.output_tokens or 0
        identity, prompt = self._model.identity, self._prompt
        self._store.put(Exchange(request.key, identity, request, answer, prompt.name, prompt.digest, cost))

    def _read(self, swapped: bool, vote: int, key: str, answer: Reply | Failure) -> Said:
        if isinstance(answer, Failure):
            return Said(swapped, vote, UNASKED if isinstance(answer, Withheld) else FAILED, None, "")
        return self._meaning(swapped, vote, key, answer.text, answer.logprobs, answer.finish_reason)

    def _meaning(
        self, swapped: bool, vote: int, key: str, text: str, logprobs: Mapping[str, float] | None, ended: str
    ) -> Said:
        """Say what an answer means for the question as it is, whichever order it was shown in."""
        if logprobs is not None and self._choices and self._choices[0] in logprobs:
            shown = exp(logprobs[self._choices[0]])
            p = 1 - shown if swapped else shown
            return Said(swapped, vote, "first" if p > 0.5 else "second" if p < 0.5 else "tie", p, key)
        # of a longer one the end is not there
        verdict = self._parse(text, cut=ended == CUT) if len(text) < LONGEST_TEXT else None
        if verdict is None:
            return Said(swapped, vote, UNREAD, None, key)
        return Said(swapped, vote, *IN_WORDS[swapped][verdict], key)

    def _judgement(self, said: list[Said]) -> Judgement:
        said.sort()  # by order, and by vote
        answers = tuple([one for one in said if one.verdict != UNASKED])
        sums, numbers = [0.0, 0.0], [0, 0]
        for one in answers:
            if one.p_first is not None:
                sums[one.swapped] += one.p_first
                numbers[one.swapped] += 1
        labels = numbers[0] + numbers[1]
        if any(2 * number <= self._votes for number in numbers[: self._orders]):
            return _unlabelled(answers, labels, asked=len(answers) == len(said))
        p = sum(sums[order] / numbers[order] for order in range(self._orders)) / self._orders
        tie = abs(p - 0.5) <= self._tie_band
        consistent = _side(sums[0], numbers[0]) == _side(sums[1], numbers[1]) if self._orders == 2 else None
        return Judgement("tie" if tie else "ok", 0.5 if tie else p, labels, consistent, answers)


def _unlabelled(answers: tuple[Said, ...], labels: int, *, asked: bool) -> Judgement:
    """Judge a question that too few answers name a side of, or none; `labels` do, and all that was to ask was asked."""
    if not asked:
        return Judgement("unasked", None, 0, None, answers)
    if labels:
        return Judgement("incomplete", None, labels, None, answers)
    verdicts = {one.verdict for one in answers}
    if "abstain" in verdicts:
        return Judgement("abstain", None, len(answers), None, answers)
    return Judgement("parse_failed" if UNREAD in verdicts else "api_failed", None, 0, None, answers)


def _drained(queue: deque[Item]) -> Iterator[Item]:
    while queue:
        yield queue.popleft()


def _side(total: float, number: int) -> int:
    """Return which text the answers in one order are for on the whole: 1 the first, -1 the second, 0 neither."""
    return (2 * total > number) - (2 * total < number)
