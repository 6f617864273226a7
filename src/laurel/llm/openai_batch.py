"""A chat model asked through OpenAI's Batch API: many requests in a file, answered within a day at half price.

Batches outlive the process: the questions in a batch are recorded beside the answers before anything is sent, so that
the next run waits for a stopped run's batches instead of sending new ones.
"""

from __future__ import annotations

import copy
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from openai.types import Batch

from laurel.console import tell
from laurel.llm.batch_ledger import BatchLedger
from laurel.llm.batch_server import KEPT, BatchServer, UnreachableError, read_batch
from laurel.llm.batch_wire import MOST_LINES, Again, in_files, request_line
from laurel.llm.chat import NO_TOKENS, ChatRequest, Failure, Identity, RefusedError, Reply, Stopped, Tokens, Withheld
from laurel.llm.chat_wire import Dialect
from laurel.llm.openai_chat import read_key
from laurel.llm.responses import ResponseStore
from laurel.params.judges import OPENAI, OpenAIParams

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
ATTEMPTS = 2
"""Number of failed batches after which a request is given up."""
MOST_FAILED_POLLS = 10
"""Consecutive failed polls before the run stops; its batches continue at the server."""
KEPT_DAYS = 30.0
"""Days after which a server may have forgotten a batch."""
SAY_EVERY = 600.0
"""Seconds between two lines about a batch that has not changed."""


class OpenAIBatch:
    """Implements `laurel.llm.chat.ChatModel`.

    Args:
        store: its file also has the ledger of batches.
        seconds_left: returns how long to wait for answers; later answers are withheld, and fetched by the next run.
        first_wait: initial polling interval of a batch, in seconds.
        longest_wait: maximum polling interval, in seconds.

    Raises:
        RefusedError: the key is not in the environment.
    """

    at_once = MOST_LINES
    """Questions per call: fewer would need more sequential batches, more would need too much memory."""

    def __init__(
        self,
        params: OpenAIParams,
        store: ResponseStore,
        seconds_left: Callable[[], float] = lambda: float("inf"),
        *,
        first_wait: float = 5.0,
        longest_wait: float = 300.0,
    ) -> None:
        read_key(params)
        self.identity = Identity(model=params.model, endpoint=params.base_url or OPENAI)
        self._params = params
        self._store = store
        self._seconds_left = seconds_left
        self._waits = (first_wait, longest_wait)

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield (number of the request, answer) as batches end; all requests are taken first.

        Raises:
            RefusedError: the server has no Batch API, refuses these batches, or is unreachable.
        """
        asked: dict[str, _Asked] = {}
        for number, request in enumerate(requests):
            asked.setdefault(request.digest(self.identity), _Asked(request, [])).numbers.append(number)
        if not asked:
            return
        run = _Run(self._params, self.identity, self._store, asked, self._waits)
        try:
            yield from run.answers(self._seconds_left)
        except (KeyboardInterrupt, RefusedError):
            yield from run.billed()
            raise
        finally:
            run.close()


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, and its numbers."""

    request: ChatRequest
    numbers: list[int]


@dataclass(slots=True)
class _Sent:
    """A batch at the server."""

    batch: str
    made_at: float
    keys: set[str]
    """Keys of its requests that this run asks and that are not answered yet."""
    dialect: Dialect
    """The dialect in which they were written."""
    reported: tuple[object, ...] = ()
    """The state that the last line about it reported."""
    reported_at: float = 0.0


class _Run:
    """One round of requests: queued and sent ones."""

    def __init__(
        self,
        params: OpenAIParams,
        identity: Identity,
        store: ResponseStore,
        asked: dict[str, _Asked],
        waits: tuple[float, float],
    ) -> None:
        self._params = params
        self._identity = identity
        self._store = store
        self._asked = asked
        self._waits = waits
        self._wait = waits[0]
        self._server = BatchServer(params, backoff=waits[0])
        self._ledger = BatchLedger(store.path)
        self._first_dialect = Dialect(
            params.model, "max_completion_tokens" if identity.endpoint == OPENAI else "max_tokens", params.structured
        )
        self._dialect = copy.deepcopy(self._first_dialect)
        self._queue = dict.fromkeys(asked)
        self._sent: dict[str, _Sent] = {}
        self._failed: Counter[str] = Counter()
        self._lost: defaultdict[str, Tokens] = defaultdict(Tokens)
        self._most_lines = MOST_LINES
        self._failed_polls = 0

    def close(self) -> None:
        self._server.close()
        self._ledger.close()

    def answers(self, seconds_left: Callable[[], float]) -> Iterator[tuple[int, Reply | Failure]]:
        """Send, wait and yield until every request has an answer or failure, or time is up."""
        while self._queue or self._sent:
            yield from self._send()
            for token in list(self._sent):
                yield from self._collect(token)
            if self._queue and not (self._one_at_a_time and self._sent):
                continue
            if not self._sent:
                return
            if (left := seconds_left()) <= 0:
                tell(f"timed out with {len(self._sent)} batch{'es' * (len(self._sent) != 1)} pending. {KEPT}")
                for key in [*self._queue, *(key for sent in self._sent.values() for key in sent.keys)]:
                    yield from self._each(key, Withheld("its batch was not awaited"))
                return
            time.sleep(min(self._wait, left))
            self._wait = min(self._wait * 1.5, self._waits[1])

    def billed(self) -> Iterator[tuple[int, Failure]]:
        """Yield the questions without an answer whose answers in an earlier batch were billed all the same."""
        for key in [key for key, lost in self._lost.items() if lost != NO_TOKENS]:
            for number, answer in self._each(key, Stopped("asking was stopped")):
                assert isinstance(answer, Failure)
                yield number, answer

    @property
    def _one_at_a_time(self) -> bool:
        """Whether batches are sent sequentially, since the server refused so many questions at a time."""
        return self._most_lines < MOST_LINES

    def _send(self) -> Iterator[tuple[int, Reply | Failure]]:
        """Join existing batches with these questions, and send the other questions in new batches.

        Yields:
            Answers that another process has received since these questions were looked up in the store.
        """
        if not self._queue or (self._one_at_a_time and self._sent):
            return
        with self._ledger.sending():
            self._join()
            answered = self._store.get(list(self._queue))
            for key in answered:
                del self._queue[key]
            lines = ((key, request_line(key, self._dialect.body(self._asked[key].request))) for key in self._queue)
            for file in in_files(lines, self._most_lines):
                self._send_one([key for key, _ in file], b"".join(line for _, line in file))
                if self._one_at_a_time:
                    break
        for sent in self._sent.values():
            for key in sent.keys:
                self._queue.pop(key, None)
        for key, reply in answered.items():
            yield from self._each(key, reply)

    def _join(self) -> None:
        """Join batches that were sent earlier, by a stopped run or by another process."""
        tokens_by_key = self._ledger.find(list(self._queue))
        for token in dict.fromkeys(tokens_by_key.values()):
            keys = {key for key, in_token in tokens_by_key.items() if in_token == token}
            entry = self._ledger.entry(token)
            if entry is None:  # another process has just received its answers, and stored them before
                continue
            batch = entry.batch or (self._server.find(entry, entry.file) if entry.file else None)
            if batch is None:  # the run was stopped before the batch was created, so nothing has to be paid
                self._ledger.forget(self._ledger.keys(token))
                continue
            self._ledger.created(token, batch)
            self._sent[token] = _Sent(batch, entry.made_at, keys, self._first_dialect)
            for key in keys:
                del self._queue[key]
            tell(f"{_questions(len(keys))} in batch {batch}, which was sent before")

    def _send_one(self, keys: list[str], content: bytes) -> None:
        """Send a batch; its state is on disk before every step."""
        token = uuid.uuid4().hex
        self._ledger.enter(token, self._identity.endpoint, self._identity.model, keys)
        with tempfile.TemporaryFile() as stream:
            stream.write(content)
            stream.seek(0)
            file = self._server.upload(f"laurel-{token}.jsonl", stream)
        self._ledger.uploaded(token, file)
        entry = self._ledger.entry(token)
        assert entry is not None
        batch = self._server.create(entry, file)
        self._ledger.created(token, batch)
        self._store.release(keys)  # from here on the ledger prevents others from asking
        self._sent[token] = _Sent(batch, time.time(), set(keys), copy.deepcopy(self._dialect))
        self._wait = self._waits[0]
        tell(f"{len(keys):,} question{'s' * (len(keys) != 1)} sent in batch {batch}; a resumed run waits for it")

    def _collect(self, token: str) -> Iterator[tuple[int, Reply | Failure]]:
        """Poll a batch; yield its answers if it has ended."""
        sent = self._sent[token]
        try:
            batch = self._server.look(sent.batch)
            self._failed_polls = 0
        except UnreachableError:
            self._failed_polls += 1
            if self._failed_polls >= MOST_FAILED_POLLS:
                raise
            return
        if batch is None:
            self._gone(token, sent)
            return
        self._say(sent, batch)
        if batch.status not in ENDED:
            return
        self._wait = self._waits[0]
        if batch.status == "failed":
            self._refused(token, sent, batch)
            return
        yield from self._hand_over(sent, batch)
        del self._sent[token]

    def _hand_over(self, sent: _Sent, batch: Batch) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield the outcomes of a batch that ended; retryable requests go back into the queue."""
        stop: RefusedError | None = None
        retryable: dict[str, Again] = {}
        handled: list[str] = []
        answers = 0
        requests = {key: self._asked[key].request for key in sent.keys}
        try:
            for key, outcome in read_batch(self._server, batch, requests, sent.dialect, self._dialect):
                if isinstance(outcome, Again):
                    retryable[key] = outcome
                    self._lost[key] += outcome.lost
                    continue
                if isinstance(outcome, RefusedError):
                    stop = outcome
                else:
                    yield from self._each(key, outcome)
                answers += isinstance(outcome, Reply)
                handled.append(key)  # the caller has received it by now
                sent.keys.discard(key)
        finally:
            self._ledger.forget(handled)
        self._ledger.forget(retryable)
        if stop is not None:
            raise stop
        if batch.status == "cancelled" and retryable:
            raise RefusedError(
                f"Batch {sent.batch} was cancelled at {self._identity.endpoint}: {answers:,} "
                f"{'answer is' if answers == 1 else 'answers are'} kept, {_questions(len(retryable))} unanswered. "
                f"Run the same command again to send {'it' if len(retryable) == 1 else 'them'} again."
            )
        for key, outcome in retryable.items():
            self._failed[key] += not outcome.reworded
            if self._failed[key] < ATTEMPTS:
                self._queue[key] = None
            else:
                yield from self._each(key, Failure(f"after {ATTEMPTS} batches: {outcome.reason}"))

    def _refused(self, token: str, sent: _Sent, batch: Batch) -> None:
        """Send a batch that was too large in smaller ones; raise RefusedError for one that the server calls invalid."""
        problems = (batch.errors.data if batch.errors else None) or []
        self._ledger.forget(self._ledger.keys(token))
        del self._sent[token]
        if any(problem.code == "token_limit_exceeded" for problem in problems) and len(sent.keys) > 1:
            if not self._sent:
                self._most_lines = max(len(sent.keys) // 2, 1)
                tell(
                    f"{self._identity.endpoint} refuses a batch of {len(sent.keys):,} such questions: sending "
                    f"{self._most_lines:,} at a time, one batch after the other"
                )
            else:
                self._most_lines = min(self._most_lines, len(sent.keys), MOST_LINES - 1)
            self._queue.update(dict.fromkeys(sorted(sent.keys)))
            return
        raise self._server.refused(batch)

    def _gone(self, token: str, sent: _Sent) -> None:
        """Ask the questions of an unknown batch again if it is old; raise RefusedError for a recent one."""
        days = (time.time() - sent.made_at) / 86400
        if days < KEPT_DAYS:
            raise self._server.unknown(sent.batch, days)
        tell(f"batch {sent.batch} is {days:.0f} days old and no longer known to the server: asking again")
        self._ledger.forget(self._ledger.keys(token))
        self._queue.update(dict.fromkeys(sorted(sent.keys)))
        del self._sent[token]

    def _each(self, key: str, answer: Reply | Failure) -> Iterator[tuple[int, Reply | Failure]]:
        lost = self._lost.pop(key, NO_TOKENS)
        billed = replace(answer, lost=lost) if isinstance(answer, Failure) else answer._replace(lost=lost, batched=True)
        for number in self._asked[key].numbers:
            yield number, billed

    def _say(self, sent: _Sent, batch: Batch) -> None:
        """Write a line about a batch if it has changed, and at intervals if it has not."""
        counts = batch.request_counts
        state = (batch.status, *((counts.completed, counts.failed) if counts else ()))
        if state == sent.reported and time.monotonic() - sent.reported_at < SAY_EVERY:
            return
        sent.reported, sent.reported_at = state, time.monotonic()
        done = f": {counts.completed:,} of {counts.total:,} answered, {counts.failed:,} failed" if counts else ""
        minutes = (time.time() - sent.made_at) / 60
        tell(f"batch {sent.batch} {batch.status.replace('_', ' ')}{done} ({minutes:.0f} min)")


def _questions(n: int) -> str:
    return f"{n:,} question is" if n == 1 else f"{n:,} questions are"
