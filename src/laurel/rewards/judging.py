"""The online judge: a process that answers questions of agents in training, and is restarted when it dies.

Agents ask through a `QuestionQueue`. A judge that dies, hangs or is refused does not stop training: open questions stay
there and are answered when it is back. Answers of a chat model are cached in the response store, so that none is paid
for twice; spending is recorded for the next process.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING

from laurel.console import tell
from laurel.data.asked import Asked, joined
from laurel.data.preferences import FAILURES
from laurel.data.usage import Usage, added
from laurel.errors import LaurelError, WorkerError
from laurel.feedback.question_queue import CLOSED, READY, SAMPLE, SPENT, USAGE, QuestionQueue, Topic
from laurel.interrupt import terminated_like_ctrl_c
from laurel.llm.budget import Budget, BudgetError
from laurel.llm.spending import Spending
from laurel.params.annotation import AnnotateParams, BudgetParams
from laurel.pool import Job, Workers
from laurel.rewards.method import RewardContext
from laurel.seeding import derive_seed

if TYPE_CHECKING:
    from laurel.feedback.responders import Responder

IDLE_SECONDS, LONGEST_IDLE = 0.01, 0.08
"""Polling interval for questions, doubled while there are none: polling takes CPU time from agents."""
HEARTBEAT_SECONDS = 1.0
HUNG_SECONDS = 60.0
"""A judge that does not respond for this long is ended and started again."""
STOPPED_WITHIN = 2.0
"""Seconds within which a stopped judge's parent is stopped, too, if a signal is for both."""
LONGEST_PAUSE = 30.0
"""Maximum seconds between two starts of a judge that dies without an answer."""
STARTS = 5
"""Number of failed starts after which training does not begin."""
STARTED_WITHIN = 600.0
"""Maximum seconds for loading a judge's model, after which training begins without it."""

STOPPED = "The online judge stopped answering. {} Training continues with the labels so far."


class Judging:
    """The judge's process and its queue, for as long as the block lasts.

    Args:
        context: has the section annotate.
        topics: of questions; without any, no process is started.
        preload: modules that are imported before worker processes are forked, as in `laurel.pool.run_jobs`; the first
            caller decides.

    Raises:
        LaurelError: a judge cannot be made, e.g. because a key or a model is missing.
    """

    def __init__(
        self, run_seed: int, context: RewardContext, topics: Sequence[Topic], preload: Sequence[str] = ()
    ) -> None:
        self._preload = [*preload, "laurel.feedback.responders"]
        self._topics = tuple(dict.fromkeys(topics))
        self._args = run_seed, context, self._topics
        self._over = threading.Event()
        self.restarts = 0
        """Number of restarts of the process."""
        self.notes: list[str] = []
        """Notes on the judge for readers of the report; complete after the block."""
        self.usage: Usage = {}
        self.answered: Callable[[], None] = lambda: None
        """Called at intervals while the judge runs."""
        self.asked: list[Asked] = []
        """Samples of questions to chat models."""

    def __enter__(self) -> Judging:
        if not self._topics:
            return self
        self._folder = TemporaryDirectory(prefix="laurel-judge-")
        self._path = Path(self._folder.name) / "questions.db"
        self._queue = QuestionQueue(self._path)
        self._failed: LaurelError | None = None
        self._thread = threading.Thread(target=self._watch, name="judge", daemon=True)
        self._thread.start()
        try:
            self._wait()
        except BaseException:  # also Ctrl-C: do not leave a judge running
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not self._topics:
            return
        self._over.set()
        self._thread.join()
        self._conclude()
        self._queue.close()
        self._folder.cleanup()

    @property
    def queue(self) -> Path | None:
        """Queue for agents' questions; None if there is no judge."""
        return self._path if self._topics else None

    def _wait(self) -> None:
        """Wait until the judge can answer."""
        until = time.monotonic() + STARTED_WITHIN
        while self._queue.fact(READY) is None and time.monotonic() < until:
            if self._failed:
                raise self._failed
            if not self._thread.is_alive():
                raise WorkerError("The judge's process could not be started: its own message is above.")
            time.sleep(IDLE_SECONDS)

    def _watch(self) -> None:
        """Keep a judge's process running until training is over."""
        pause, before = 0.0, 0
        while not self._over.wait(pause):
            reason = self._watched()
            if reason is None:
                return
            self.restarts += 1
            if self.restarts == STARTS and self._queue.fact(READY) is None:
                self._failed = WorkerError(
                    f"The online judge {reason} before it could answer, {STARTS} times in a row: its own message is "
                    "above."
                )
                return
            asked, answered = self._queue.counts()
            pause = 0.0 if answered > before else min(max(2 * pause, 1.0), LONGEST_PAUSE)
            before = answered
            tell(
                f"The online judge {reason}. It is restarted with {asked - answered:,} open questions; "
                "training continues."
            )

    def _watched(self) -> str | None:
        """Run a process until it ends; return why it must be restarted, None if it need not be."""
        with Workers(1, self._preload) as workers:
            job = Job("judge", serve, (*self._args, self._path))
            workers.start(job)
            last_sign = time.monotonic()
            while not self._over.wait(0.05):
                try:
                    reports = workers.poll()
                except WorkerError:
                    return "died"
                except LaurelError as error:  # the judge cannot be made, or must not continue
                    if self._queue.fact(READY) is None:
                        self._failed = error
                    else:
                        self._close(str(error))
                    return None
                if any(report.ended for report in reports):  # by SIGTERM, with this process or alone
                    return None if self._over.wait(STOPPED_WITHIN) else "was stopped"
                if any(report.done for report in reports):
                    last_sign = time.monotonic()
                    self.answered()
                if time.monotonic() - last_sign > HUNG_SECONDS:
                    return f"did not respond for {HUNG_SECONDS:.0f} seconds"
        return None

    def _close(self, reason: str) -> None:
        self._queue.note(CLOSED, reason)
        tell(STOPPED.format(reason))

    def used(self) -> Usage:
        """Return the usage so far, while the judge runs."""
        return json.loads(self._queue.fact(USAGE) or "{}")

    def _conclude(self) -> None:
        self.usage = self.used()
        self.asked = json.loads(self._queue.fact(SAMPLE) or "[]")
        closed = dict.fromkeys(reason for topic in self._topics if (reason := self._queue.closed(topic.name)))
        self.notes += [f"The judge stopped answering while agents were trained. {reason}" for reason in closed]


class _Account:
    """Usage and questions of the judge, recorded in the queue for the process that follows if this one is killed."""

    def __init__(self, queue: QuestionQueue, limits: BudgetParams) -> None:
        self.budget = Budget(limits, account="judge")
        self.responders: dict[str, Responder] = {}
        if noted := queue.fact(SPENT):
            self.budget.began, *amounts = json.loads(noted)
            self.budget.spent = Spending(*amounts)
            self.budget.note()
        self.budget.changed = self.reserve
        self.budget.answered = self.note  # with each answer: the judge or the whole run may be killed
        self._queue = queue
        self._before: Usage = json.loads(queue.fact(USAGE) or "{}")
        self._sampled: list[Asked] = json.loads(queue.fact(SAMPLE) or "[]")

    def reserve(self) -> None:
        """Record spending, with the maximum cost of pending requests: they may be answered after this process ends."""
        spending = self.budget.spent + self.budget.on_its_way
        self._queue.note(SPENT, json.dumps([self.budget.began, *astuple(spending)]))

    def note(self) -> None:
        """Record the usage of this process and its predecessors."""
        usage = self._before
        for responder in self.responders.values():
            usage = added(usage, responder.usage)
        self._queue.note(USAGE, json.dumps(usage))

    def conclude(self) -> None:
        """Record all that is known after some answers, or before exit."""
        self.reserve()
        self.note()
        asked = joined([*self._sampled, *(item for responder in self.responders.values() for item in responder.asked)])
        self._queue.note(SAMPLE, json.dumps(asked))


def serve(
    run_seed: int, context: RewardContext, topics: Sequence[Topic], path: Path, advance: Callable[[int], None]
) -> None:
    """Answer questions until the process is stopped; runs in a separate process.

    On SIGTERM it waits some seconds for pending answers, which have to be paid for, and then ends.

    Raises:
        BudgetError: the budget is spent.
        UnreadableError: none of the answers can be read, of any topic.
        LaurelError: a judge cannot be made.
    """
    with suppress(KeyboardInterrupt), terminated_like_ctrl_c():
        _serve(run_seed, context, topics, path, advance)


def _serve(
    run_seed: int, context: RewardContext, topics: Sequence[Topic], path: Path, advance: Callable[[int], None]
) -> None:
    import torch

    from laurel.feedback.responders import make_responder
    from laurel.feedback.unreadable import UnreadableError

    threading.Thread(target=_beat, args=(advance,), name="heartbeat", daemon=True).start()
    torch.set_num_threads(1)  # deterministic order of summation; also, agents train in parallel
    queue, adapter = QuestionQueue(path), context.adapter
    account = _Account(queue, context.annotate.budget)
    budget, responders = account.budget, account.responders
    for topic in topics:
        seed = derive_seed(run_seed, "annotate", *([str(topic.label_set)] if topic.label_set else []))
        params = context.annotate.of_judge(topic.judge)
        _check_prices(params)
        responders[topic.name] = make_responder(topic.shown, params, adapter, seed, budget, topic.prompt, topic.goal)

    if queue.fact(READY) is None:  # a restarted judge need not repeat it
        try:
            judges = {
                n: {"judge": d.name, "simulated": d.simulated, **d.known_answers()} for n, d in responders.items()
            }
        finally:
            account.conclude()  # the agents may ask nothing
        queue.note(READY, json.dumps(judges))
    going = {name: responder for name, responder in responders.items() if queue.closed(name) is None}
    pause, rest, last_error = 0.0, IDLE_SECONDS, ""
    while True:
        try:
            idle = not _answer(queue, going)
            pause = 0.0
        except KeyboardInterrupt:
            account.conclude()
            raise
        except BudgetError:
            account.conclude()
            if budget.reached is None:
                raise
            raise BudgetError(budget.summary()) from None
        except UnreadableError:
            account.conclude()
            raise
        except LaurelError as error:  # e.g. a server is down: it may come back
            pause, idle = min(max(2 * pause, 1.0), LONGEST_PAUSE), False
            if str(error) != last_error:
                last_error = str(error)
                tell(f"The online judge could not answer, and is retrying. {last_error}")
        if idle:
            time.sleep(rest)
            rest = min(2 * rest, LONGEST_IDLE)
            continue
        account.conclude()  # also after failed calls, which have a cost
        rest = IDLE_SECONDS
        time.sleep(pause)


def _check_prices(judge: AnnotateParams) -> None:
    """Refuse a limit to the cost that cannot be enforced: agents are certain to ask something new."""
    from laurel.feedback.annotator_kind import kind_of
    from laurel.feedback.chat_annotator import ChatAnnotator

    for kind in map(kind_of, judge.voters):
        if isinstance(kind, ChatAnnotator):
            kind.check_price()


def _answer(queue: QuestionQueue, topics: dict[str, Responder]) -> int:
    """Answer the newest questions of each topic; return their number.

    Args:
        topics: name -> its responder. A topic whose answers cannot be read is removed and closed, so that the others
            go on.

    Raises:
        BudgetError: the budget is spent, for all topics.
        UnreadableError: no topic is left.
        LaurelError: a topic's questions cannot be answered now; those of the others were.
    """
    from laurel.feedback.unreadable import UnreadableError

    answered, failed = 0, None
    for name, responder in list(topics.items()):
        questions = queue.open(name, responder.at_once)
        if not questions:
            continue
        try:
            for question, verdict in zip(
                questions, responder.answers([question.item for question in questions]), strict=True
            ):
                if verdict.status == "unasked":
                    raise BudgetError("The budget is spent.")
                if verdict.status in FAILURES and verdict.status != "parse_failed":
                    queue.postpone(question, verdict.status)
                else:
                    queue.answer(question, verdict)
        except UnreadableError as error:
            del topics[name]
            if not topics:
                raise
            queue.close_topic(name, str(error))
            tell(STOPPED.format(error))
        except BudgetError:
            raise
        except LaurelError as error:
            failed = error
        answered += len(questions)
    if failed is not None:
        raise failed
    return answered


def _beat(advance: Callable[[int], None]) -> None:
    while True:
        advance(1)
        time.sleep(HEARTBEAT_SECONDS)
