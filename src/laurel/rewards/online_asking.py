"""An agent's questions to its online judge during training, and the step from which each answer takes effect.

The answer to a question takes effect `delay` checks after it was asked, and training waits for it if necessary. Labels
therefore take effect at the same step in every run, and a run is bit-reproducible if the judge gives the same answers.
Only if an answer does not arrive within `patience` seconds, training continues without it, and uses answers as they
arrive until the judge has caught up. A resumed or replayed run follows its log of labels instead.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from laurel.arrays import IntArray
from laurel.console import tell
from laurel.feedback.question_queue import READY, Item, QuestionQueue, Verdict
from laurel.params.rewards import OnlineParams
from laurel.seeding import derive_seed, generator

POLL_SECONDS = 0.002
Label = dict[str, Any]
"""A row of the log of labels (`laurel.rewards.online_artefact`)."""


class MetCaptions:
    """The captions that an agent has met, the first `most` of them.

    Args:
        most: maximum number of captions.
    """

    def __init__(self, limit: int) -> None:
        self.texts: list[str] = []
        self.ids: dict[str, int] = {}
        self.counts = np.zeros(0, dtype=np.int64)
        """(V,) how often each caption was met."""
        self.questions = np.zeros(0, dtype=np.int64)
        """(V,) number of questions that show it."""
        self.left_out = 0
        """Captions beyond `limit`, which have no reward and are not asked about."""
        self._most = limit

    def add(self, texts: Sequence[str]) -> None:
        """Assign indices to new captions."""
        new = [text for text in dict.fromkeys(texts) if text not in self.ids]
        room = self._most - len(self.texts)
        self.left_out += max(len(new) - room, 0)
        new = new[:room]
        self.ids.update((text, i) for i, text in enumerate(new, len(self.texts)))
        self.texts += new
        none = np.zeros(len(new), dtype=np.int64)
        self.counts, self.questions = np.append(self.counts, none), np.append(self.questions, none)

    def of(self, item: Item) -> list[int]:
        """Return the indices of a question's captions."""
        return [self.ids[text] for text in item if text]


class Questions:
    """Asks about captions, and returns answers at the step at which they take effect.

    Args:
        seed: for drawing pairs.
        topic: judge and kind of question in the queue.
        queue: of the judge; None if labels are replayed from a log.
    """

    def __init__(
        self, settings: OnlineParams, met: MetCaptions, agent: str, seed: int, topic: str, queue: Path | None
    ) -> None:
        self.asked = self.dropped = 0
        self.late = self.ever_late = False
        """Whether the judge is late and training does not wait for it: now, and at any time so far."""
        self._own, self._met, self._agent, self._topic = settings, met, agent, topic
        self._rng = generator(seed, "questions")
        self._queue = QuestionQueue(queue) if queue else None
        self._log: dict[int, list[Label]] = {}
        self._logged_until = 0
        self._known: set[Item] = set()
        """Questions that were asked, including answered ones."""
        self._open: dict[Item, tuple[int, int | None]] = {}
        """Question -> environment steps when it was asked, and its number in the queue, once posted."""
        self._checks: deque[int] = deque(maxlen=settings.delay)
        """Environment steps at the last checks: whole updates, so they may be further apart than `every`."""
        self._unmet = 0
        """Questions about captions that had not been met."""

    @property
    def open(self) -> int:
        """Number of questions without an answer in effect."""
        return len(self._open)

    @property
    def judge(self) -> dict[str, Any]:
        """Facts about the judge."""
        recorded = self._queue.fact(READY) if self._queue else None
        judge: dict[str, Any] = json.loads(recorded or "{}").get(self._topic, {})
        return judge

    def follow(self, labels: Sequence[Label], end: int) -> None:
        """Replay the labels of a log up to a step, and ask nothing before it."""
        self._logged_until = end
        for label in labels:
            self._log.setdefault(label["step"], []).append(label)

    # -- answers --------------------------------------------------------------------------------
    def labels(self, step: int, known: int) -> list[Label]:
        """Return the answers that take effect at this step; `known` labels are already in effect."""
        if step < self._logged_until:
            labels = self._log.get(step, [])
            self.late = len(self._due_questions()) > len(labels)
            for label in labels:
                self._open.pop((label["first"], label["second"]), None)
            return labels
        if self._queue is None:
            return []
        if self._logged_until:  # a resumed run has a new judge, which is waited for again
            self._logged_until, self.late = 0, False
        self._post(self._queue)
        due = {item: number for item in self._due_questions() if (number := self._open[item][1]) is not None}
        numbers = list(due.values())
        answers = self._queue.answers(numbers)
        if not self.late and len(answers) < len(due):
            answers = self._wait(self._queue, numbers)
        labels = []
        for item, number in due.items():
            if number in answers:
                asked, _ = self._open.pop(item)
                first, second = item
                labels.append({"asked": asked, "step": step, "first": first, "second": second})
                labels[-1] |= answers[number]._asdict()
        self._note_lateness(len(due) - len(answers), known + len(labels))
        return labels

    def _due_questions(self) -> list[Item]:
        """Return the questions whose answers are due, the oldest first: those asked `delay` checks ago or before."""
        if len(self._checks) < self._own.delay:
            return []
        return [item for item, (asked, _) in self._open.items() if asked <= self._checks[0]]

    def _wait(self, queue: QuestionQueue, numbers: Sequence[int]) -> dict[int, Verdict]:
        """Wait for answers up to `patience`."""
        deadline = time.monotonic() + self._own.patience
        while True:
            answers = queue.answers(numbers)
            if len(answers) == len(numbers) or time.monotonic() >= deadline or queue.closed(self._topic) is not None:
                return answers
            time.sleep(POLL_SECONDS)

    def _note_lateness(self, missing: int, labels: int) -> None:
        if missing and not self.late:
            self.ever_late = True
            stopped = self._queue is not None and self._queue.closed(self._topic) is not None
            tell(
                f"{self._agent}: {missing:,} answers of the judge are late. Training continues with the {labels:,} "
                f"labels so far{', since the judge has stopped' if stopped else ', and uses others as they arrive'}."
            )
        elif self.late and not missing:
            tell(f"{self._agent}: the judge has caught up; {labels:,} labels are used.")
        self.late = missing > 0

    # -- questions ------------------------------------------------------------------------------
    def ask(self, step: int) -> None:
        """Ask about captions that were met and, if the environment lists its captions, about some that were not."""
        self._checks.append(step)
        room = min(self._own.at_once, self._own.questions - self.asked)
        choose = self._drawn_pairs if self._own.form == "ranking" else self._new_captions
        items = choose(np.flatnonzero(self._met.counts > 0), room)
        if self._own.listed:
            indices = np.arange(len(self._met.texts))
            unmet = choose(indices, min(room - len(items), self._own.questions // 2 - self._unmet))
            self._unmet += len(unmet)
            items += unmet
        for item in items:
            self._open[item] = step, None
        self._known.update(items)
        self.asked += len(items)
        self._drop()
        if self._queue is not None and step >= self._logged_until:
            self._post(self._queue)

    def _new_captions(self, captions: IntArray, room: int) -> list[Item]:
        """Return captions that have not been asked about, the most frequent first."""
        new = captions[self._met.questions[captions] == 0]
        new = new[np.argsort(-self._met.counts[new], kind="stable")][: max(room, 0)]
        self._met.questions[new] += 1
        return [(self._met.texts[i], "") for i in new.tolist()]

    def _drawn_pairs(self, captions: IntArray, room: int) -> list[Item]:
        """Return pairs of captions: a least-asked one, and a random other one."""
        order = self._rng.permutation(captions)
        texts, full, pairs = self._met.texts, set[int](), list[Item]()
        while len(pairs) < room and len(full) < len(order):
            left = order[~np.isin(order, list(full))] if full else order
            first = int(left[self._met.questions[left].argmin()])
            for second in self._rng.permutation(order).tolist():
                item = _ordered(texts[first], texts[second])
                if first != second and item not in self._known:
                    pairs.append(item)
                    self._known.add(item)
                    self._met.questions[[first, second]] += 1
                    break
            else:
                full.add(first)
        return pairs

    def _drop(self) -> None:
        """Withdraw the oldest questions if too many are open; they may be asked again."""
        for item in list(self._open)[: max(len(self._open) - self._own.queue, 0)]:
            _, number = self._open.pop(item)
            self.dropped += 1
            self.asked -= 1
            self._known.discard(item)
            self._met.questions[self._met.of(item)] -= 1
            if number is not None and self._queue is not None:
                self._queue.withdraw([number])

    def _post(self, queue: QuestionQueue) -> None:
        """Post questions that are not in the queue yet."""
        new = [item for item, (_, number) in self._open.items() if number is None]
        for item, number in zip(new, queue.post(self._topic, new) if new else (), strict=True):
            self._open[item] = self._open[item][0], number


def _ordered(text_a: str, text_b: str) -> Item:
    """Return two texts in a random order that is the same for every agent."""
    first, second = sorted((text_a, text_b))
    return (second, first) if derive_seed(0, first, second) % 2 else (first, second)
