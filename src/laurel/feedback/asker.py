"""Asks a chat model questions of any kind: each question once per variant and vote.

Answers are cached in a store. Several processes may ask concurrently: a question is claimed before it is sent, and
other processes take its answer from the store. An unreadable answer gets one follow-up.
Asking stops early if the model gives no readable answer at all.

The `Question` renders the prompt and parses the answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from time import sleep
from typing import Generic, TypeVar

from laurel.console import tell
from laurel.data.asked import Asked
from laurel.data.missing import Reasons, kind_of
from laurel.data.usage import is_remark
from laurel.feedback.annotator import Answer, OnJudged, ignore
from laurel.feedback.asked import AskedSample
from laurel.feedback.keys import QuestionKeys
from laurel.feedback.question import Item, Question, Value
from laurel.feedback.unreadable import Readable
from laurel.llm.budget import Budget
from laurel.llm.chat import NO_TOKENS, ChatModel, ChatRequest, Failure, Reply, Sampling, Stopped, Withheld
from laurel.llm.chat_wire import longest_answer
from laurel.llm.prices import Price, add_costs
from laurel.llm.replies import LONGEST_TEXT
from laurel.llm.responses import Exchange, ResponseStore

BLOCK = 4096
"""Items per block; memory does not grow with their number."""
LOOK_UP = 512
"""Items that are looked up in the store at a time."""
LOOK_AHEAD = 128
"""Requests that are claimed at a time, so that several processes share a block."""
FIRST_LOOK_AHEAD = 16
"""The same before the first readable answer: small, so that follow-ups come early and a hopeless run ends soon."""
POLL_SECONDS = 0.5
"""Polling interval for an answer that another process has asked for, in seconds."""
REPORTED = 5
"""Maximum number of reasons for failures that are reported immediately."""
CUT = "length"
"""Finish reason of an answer that reached its token limit."""
UNREAD, FAILED, UNASKED = "unread", "failed", "unasked"
"""Verdicts for answers that could not be read, that are missing, and that the budget did not allow."""
Entry = TypeVar("Entry")
AGAIN = "If the server was away, run the same command again: only the missing ones are asked for."
"""What to do where answers are missing."""


@dataclass(slots=True)
class _Ask(Generic[Item]):
    """A request without a stored answer, and its item."""

    number: int
    """Number of the item in its block."""
    variant: int
    vote: int
    key: str
    item: Item
    unread: str | None = None
    """For a follow-up, the answer that could not be read."""

    def after(self, unread: str) -> _Ask[Item]:
        """Return the follow-up question, in the same conversation."""
        return replace(self, key=QuestionKeys.follow_up(self.key, unread), unread=unread)


@dataclass
class Usage:
    """Usage so far."""

    calls: int = 0
    """Calls to the model, failed ones included."""
    cached: int = 0
    """Answers taken from the store."""
    failures: int = 0
    input_tokens: int = 0
    """Input tokens of the answers for which the server reports tokens; so are output_tokens."""
    output_tokens: int = 0
    seconds: float = 0.0
    """Latency of all answers, summed; many are in flight at once."""
    cost_usd: float | None = 0.0
    """US dollars; None where the price is unknown."""
    uncounted: int = 0
    """Answers whose tokens the server did not report."""
    unpriced: int = 0
    """Uncounted answers that are not free."""


@dataclass(slots=True)
class _Pending(Generic[Item, Value]):
    """An item that waits for answers."""

    item: Item
    missing: int
    answers: list[Answer[Value]]

    def add(self, answer: Answer[Value]) -> None:
        self.answers.append(answer)
        self.missing -= 1


class Asker(Generic[Item, Value]):
    """Asks a chat model a question about each of many items.

    Args:
        sampling: sampling settings; the seed is the vote's number.
        question: renders prompts and parses answers.
        votes: answers to each variant of a question.
        price: of the model's tokens; None where it is unknown.
        gives_up: whether to stop if all of the first answers are unreadable.
        budget: of the stage, to which each answer is reported.
        model_name: the model's name for a reader; None: that of its identity.
    """

    def __init__(
        self,
        model: ChatModel,
        sampling: Sampling,
        question: Question[Item, Value],
        store: ResponseStore,
        *,
        votes: int = 1,
        price: Price | None = None,
        gives_up: bool = True,
        budget: Budget | None = None,
        model_name: str | None = None,
    ) -> None:
        steered = f', goal "{question.goal}"' if question.goal else ""
        model_label = model_name or model.identity.model
        self.name = f"{model_label} (prompt {question.prompt.label} {question.prompt.digest[:8]}{steered})"
        """Name of the model and the prompt: provenance of every answer."""
        self.votes = votes
        self.question = question
        self.on_judged: OnJudged = ignore
        """Called with the number of items whose answers are all known."""
        self.at_once: int = getattr(model, "at_once", 0)
        max_tokens = longest_answer(ChatRequest((), sampling, question.choices))
        self._readable = Readable(self.name, max_tokens, fixed=max_tokens < sampling.max_tokens, gives_up=gives_up)
        self._usage = Usage()
        self._sample = AskedSample(self.name, question)
        self._failures = Reasons()
        self._reported: set[str] = set()
        self._model = model
        self._sampling = sampling
        self._store = store
        self._keys = QuestionKeys(model.identity, question, sampling)
        self._ways = [(variant, vote) for variant in range(question.variants) for vote in range(votes)]
        self._price = price
        self._budget = budget
        self._block = max(BLOCK, self.at_once)

    @property
    def usage(self) -> dict[str, float | None]:
        """Return calls, answers taken from the store, failures, tokens, seconds and dollars so far.

        Answers without a token count are in `uncounted` and `unpriced` (`laurel.data.usage`), if there are any.
        """
        used = {**asdict(self._usage), "seconds": round(self._usage.seconds, 2)}
        return {key: amount for key, amount in used.items() if amount or not is_remark(key)}

    @property
    def asked_sample(self) -> list[Asked]:
        """Return a sample of the questions with answers; empty if nothing was asked."""
        return self._sample.read(lambda keys: {key: text for key, text, _, _ in self._store.contents(keys)})

    @property
    def failures(self) -> dict[str, dict[str, int]]:
        """Return name -> reason for missing answers -> count."""
        return {self.name: self._failures.counts()}

    def ask(self, items: Iterable[Item]) -> Iterator[list[Answer[Value]]]:
        """Yield the answers about each item, in the items' order; those of an item by variant and vote.

        All answers are on disk before `usage` includes them.

        Raises:
            RefusedError: the model cannot be asked; all answers that came are kept.
            UnreadableError: all of the first answers are unreadable.
        """
        stream = iter(items)
        try:
            while batch := list(islice(stream, min(LOOK_UP, self._block))):
                pending: list[_Pending[Item, Value]] = []
                asks = self._recall(batch, pending)
                while asks and len(pending) < self._block and (batch := list(islice(stream, LOOK_UP))):
                    asks += self._recall(batch, pending)
                yield from self._answer_all(pending, asks)
        finally:
            self._store.flush()

    def _recall(self, items: Sequence[Item], pending: list[_Pending[Item, Value]]) -> list[_Ask[Item]]:
        """Add items with their stored answers to the pending ones; return the requests without a stored answer."""
        key_of = self._keys.of
        keys = [key_of(item, variant, vote) for item in items for variant, vote in self._ways]
        stored = {row[0]: row for row in self._store.contents(keys)}
        self._usage.cached += sum(map(stored.__contains__, keys))
        asks = []
        each_key, n_ways = iter(keys), len(self._ways)
        for number, item in enumerate(items, len(pending)):
            answers: list[Answer[Value]] = []
            for (variant, vote), key in zip(self._ways, each_key, strict=False):
                response = stored.get(key)
                if response is None:
                    asks.append(_Ask(number, variant, vote, key, item))
                    continue
                _, text, logprobs, ended = response
                answer = self._read(variant, vote, key, text, logprobs, ended)
                if answer.verdict == UNREAD:
                    asks.append(_Ask(number, variant, vote, key, item).after(text))
                else:
                    self._readable.succeeded(fresh=False)
                    answers.append(answer)
            pending.append(_Pending(item, n_ways - len(answers), answers))
        return asks

    def _answer_all(
        self, pending: Sequence[_Pending[Item, Value]], asks: list[_Ask[Item]]
    ) -> Iterator[list[Answer[Value]]]:
        """Send the requests, and yield the answers about each pending item, in order.

        Follow-ups precede requests that were not sent yet.

        Raises:
            UnreadableError: nothing that the model answers can be read.
        """
        done = 0

        def complete() -> Iterator[list[Answer[Value]]]:
            nonlocal done
            while done < len(pending) and not pending[done].missing:
                entry = pending[done]
                done += 1
                entry.answers.sort(key=lambda answer: (answer.variant, answer.vote))
                self._sample.add(entry.item, entry.answers)
                yield entry.answers

        self.on_judged(sum(not entry.missing for entry in pending), stored=True)
        yield from complete()
        queue = deque(asks)
        for ask, reply, fresh in self._replies(queue):
            answer = self._answer(ask, reply)
            if answer.verdict == UNREAD:
                assert isinstance(reply, Reply)
                if ask.unread is None:
                    queue.appendleft(ask.after(reply.text))
                    continue
                self._readable.failed(ask.key, reply, fresh=fresh)
            elif answer.verdict not in (FAILED, UNASKED):
                self._readable.succeeded(fresh=fresh)
            entry = pending[ask.number]
            entry.add(answer)
            if not entry.missing and all(given.verdict != UNASKED for given in entry.answers):
                self.on_judged(1, stored=False)
            yield from complete()
        self._readable.check()

    def _request(self, ask: _Ask[Item]) -> ChatRequest:
        question = self.question
        messages = question.messages(ask.item, ask.variant)
        if ask.unread is not None:
            messages = question.prompt.follow_up(messages, ask.unread)
        drawn = replace(self._sampling, seed=ask.vote or None)
        return ChatRequest(messages, drawn, question.choices, question.prompt.schema, ask.key, question.per_token)

    def _replies(self, asks: deque[_Ask[Item]]) -> Iterator[tuple[_Ask[Item], Reply | Failure, bool]]:
        """Yield the reply to each request as it arrives: from the store, the model, or another process.

        Args:
            asks: requests; more may be added while replies arrive.

        Yields:
            Request, reply, and whether the reply is new.
        """
        waiting: dict[str, list[_Ask[Item]]] = {}
        ready: deque[tuple[_Ask[Item], Reply | Failure, bool]] = deque()
        elsewhere: list[_Ask[Item]] = []
        sent: dict[int, tuple[_Ask[Item], ChatRequest]] = {}

        def to_send() -> Iterator[ChatRequest]:
            """Yield the requests that must go to the model, each question once."""
            while asks and len(ready) < self._block and not self._readable.should_stop():
                look_ahead = LOOK_AHEAD if self._readable.known else FIRST_LOOK_AHEAD
                batch = [asks.popleft() for _ in range(min(len(asks), look_ahead))]
                new = [key for key in dict.fromkeys(ask.key for ask in batch) if key not in waiting]
                claimed = self._store.claim(new)
                stored = self._store.get([key for key in new if key not in claimed])
                waiting.update((key, []) for key in claimed)
                to_ask: list[_Ask[Item]] = []
                for ask in batch:
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
                    if self._readable.should_stop():
                        return
                    request = self._request(ask)
                    sent[next(numbers)] = ask, request
                    yield request

        try:
            while (asks or elsewhere) and not self._readable.should_stop():
                numbers = count()
                for number, reply in self._model.ask(to_send()):
                    ask, request = sent.pop(number)
                    self._keep(request, reply)
                    yield from ((waiter, reply, True) for waiter in waiting.pop(ask.key))
                    yield from _drained(ready)
                yield from _drained(ready)
                if not asks and elsewhere:  # until their answers arrive, or their claims expire
                    sleep(POLL_SECONDS)
                    asks.extend(elsewhere)
                    elsewhere.clear()
        finally:
            self._store.release(waiting)

    def _keep(self, request: ChatRequest, reply: Reply | Failure) -> None:
        if (lost := reply.lost) != NO_TOKENS:
            in_vain = self._price.of(lost.input, lost.output, lost.cached) if self._price else None
            self._bill(lost.input, lost.output, in_vain)
        if isinstance(reply, Withheld | Stopped):
            self._store.release([request.key])
            return
        if isinstance(reply, Failure):
            self._usage.calls += 1
            self._usage.failures += 1
            self._report(reply.reason)
            self._failures.add(reply.reason)
            self._store.release([request.key])
            return
        cost, prompt = self._price.of_reply(reply) if self._price else None, self.question.prompt
        exchange = Exchange(request.key, self._model.identity, request, reply, prompt.label, prompt.digest, cost)
        if not self._store.put(exchange) and reply.batched:  # the process that stored it counts it
            self._usage.cached += 1
            return
        self._usage.calls += 1
        self._usage.seconds += reply.seconds
        self._bill(reply.input_tokens, reply.output_tokens, cost)
        if self._budget is not None:
            self._budget.answered()

    def _bill(self, input_tokens: int | None, output_tokens: int | None, cost: float | None) -> None:
        used = self._usage
        used.uncounted += input_tokens is None or output_tokens is None
        used.input_tokens += input_tokens or 0
        used.output_tokens += output_tokens or 0
        if cost is None and self._price is not None:
            used.unpriced += 1
        else:
            used.cost_usd = add_costs(used.cost_usd, cost)

    def _report(self, reason: str) -> None:
        """Report the first occurrence of a failure; failures that differ only in numbers count as one."""
        kind = kind_of(reason)
        if kind not in self._reported and len(self._reported) < REPORTED:
            self._reported.add(kind)
            tell(f"{self._model.identity.model} gave no answer, for a reason that may recur: {reason}")

    def _answer(self, ask: _Ask[Item], reply: Reply | Failure) -> Answer[Value]:
        if isinstance(reply, Failure):
            return Answer(ask.variant, ask.vote, UNASKED if isinstance(reply, Withheld) else FAILED, None, "")
        return self._read(ask.variant, ask.vote, ask.key, reply.text, reply.logprobs, reply.finish_reason)

    def _read(
        self, variant: int, vote: int, key: str, text: str, logprobs: Mapping[str, float] | None, ended: str
    ) -> Answer[Value]:
        complete = text if len(text) < LONGEST_TEXT else ""  # the end of a longer text is not stored
        if logprobs and not text:  # choices were scored: a model that writes would give the most probable one
            complete = max(logprobs, key=logprobs.__getitem__)
        reading = self.question.read(complete, logprobs, variant, cut=ended == CUT)
        if reading is None:
            return Answer(variant, vote, UNREAD, None, key)
        return Answer(variant, vote, reading.verdict, reading.value, key)


def _drained(queue: deque[Entry]) -> Iterator[Entry]:
    while queue:
        yield queue.popleft()
