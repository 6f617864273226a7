"""Questions of agents in training and a judge's answers, in a file that several processes share.

Agents post questions and poll for answers between two updates; the online judge answers the newest questions first. A
question is stored once for all agents, and stays until it is answered, even if the judge dies meanwhile.

The file is local and temporary: the labels that were used are in the agents' own logs.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from laurel.feedback.annotator import Status

Shown = Literal["pair", "caption"]
"""Kind of question: about two captions, which is better; or about one, whether it helps towards the goal."""
Item = tuple[str, str]
"""Two texts to compare; or a single text to judge, and an empty one."""
TRIES = 5
"""Maximum number of attempts at a question whose model fails, after which it stays without a label."""
FIRST_PAUSE = 1.0
"""Seconds before a failed question is asked again; doubled each time."""
BUSY_SECONDS = 60.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS questions (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL, first TEXT NOT NULL, second TEXT NOT NULL, wanted INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, not_before REAL NOT NULL DEFAULT 0, status TEXT, p REAL,
    swap_consistent INTEGER, answers TEXT NOT NULL DEFAULT '',
    UNIQUE (topic, first, second));
CREATE INDEX IF NOT EXISTS open_questions ON questions (id) WHERE status IS NULL;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Topic:
    """A judge and its kind of question: all questions of a topic are answered in the same way."""

    shown: Shown
    judge: str
    """MAIN, or one of annotate.judges."""
    label_set: int = 0
    """Which of annotate.feedback_seeds."""
    prompt: str | None = None
    """Prompt of a chat model that is shown a single caption."""
    goal: str | None = None

    @property
    def name(self) -> str:
        """Return its name in the queue."""
        return json.dumps(list(asdict(self).values()))


class Verdict(NamedTuple):
    """An answer."""

    status: Status
    """As of a judgement on a pair."""
    p: float | None
    """Probability that the first is better, or of yes; None without a label."""
    swap_consistent: bool | None = None
    """Whether both orders of a pair gave the same label; None where only one was asked."""
    answers: str = ""
    """The single answers behind it, as `laurel.feedback.online_quality.packed` writes them."""


@dataclass(frozen=True)
class OpenQuestion:
    """A question without an answer yet."""

    number: int
    topic: str
    item: Item
    tries: int


class QuestionQueue:
    """One process's connection to the file.

    Args:
        path: the file; created if missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")  # need not survive a crash of the machine
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        self._db.close()

    def post(self, topic: str, items: Sequence[Item]) -> list[int]:
        """Post questions; return their numbers, including those that other agents have already posted.

        Args:
            topic: the judge and kind of question; the same question to the same judge is asked once.
        """
        rows = [(topic, first, second) for first, second in items]
        put = "INSERT INTO questions (topic, first, second, wanted) VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET "
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            return [self._db.execute(f"{put}wanted = wanted + 1 RETURNING id", row).fetchone()[0] for row in rows]

    def withdraw(self, numbers: Iterable[int]) -> None:
        """Withdraw questions; one that no other agent waits for is no longer asked."""
        rows = [(number,) for number in numbers]
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("UPDATE questions SET wanted = wanted - 1 WHERE id = ?", rows)

    def answers(self, numbers: Sequence[int]) -> dict[int, Verdict]:
        """Return number -> answer, for answered questions."""
        query = (
            "SELECT id, status, p, swap_consistent, answers FROM questions WHERE status IS NOT NULL "
            "AND id IN (SELECT value FROM json_each(?))"
        )
        rows = self._db.execute(query, (json.dumps(list(numbers)),)) if numbers else ()
        return {
            number: Verdict(status, p, None if consistent is None else bool(consistent), answers)
            for number, status, p, consistent, answers in rows
        }

    def open(self, topic: str, limit: int) -> list[OpenQuestion]:
        """Return the questions of a topic to be answered next, the newest first."""
        query = (
            "SELECT id, topic, first, second, tries FROM questions WHERE status IS NULL AND wanted > 0 "
            "AND topic = ? AND not_before <= ? ORDER BY id DESC LIMIT ?"
        )
        rows = self._db.execute(query, (topic, time.time(), limit))
        return [OpenQuestion(number, topic, (first, second), tries) for number, topic, first, second, tries in rows]

    def close_topic(self, topic: str, reason: str) -> None:
        """Record that no further questions of a topic are answered."""
        self.note(f"{CLOSED} {topic}", reason)

    def closed(self, topic: str) -> str | None:
        """Return why no further questions of a topic are answered; None if they are."""
        return self.fact(f"{CLOSED} {topic}") or self.fact(CLOSED)

    def answer(self, question: OpenQuestion, verdict: Verdict) -> None:
        """Store an answer."""
        update = "UPDATE questions SET status = ?, p = ?, swap_consistent = ?, answers = ? WHERE id = ?"
        self._db.execute(update, (*verdict, question.number))

    def postpone(self, question: OpenQuestion, status: Status) -> None:
        """Record that the model failed: the question is asked again later, or has no label after TRIES."""
        if question.tries + 1 >= TRIES:
            self.answer(question, Verdict(status, None))
            return
        row = time.time() + FIRST_PAUSE * 2**question.tries, question.number
        self._db.execute("UPDATE questions SET tries = tries + 1, not_before = ? WHERE id = ?", row)

    def counts(self) -> tuple[int, int]:
        """Return how many questions there are, and how many of them are answered."""
        row = self._db.execute("SELECT COUNT(*), COUNT(status) FROM questions").fetchone()
        return int(row[0]), int(row[1])

    def note(self, name: str, value: str) -> None:
        """Store a fact about the judge."""
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def fact(self, name: str) -> str | None:
        """Return a fact about the judge; None if unknown."""
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])


READY, CLOSED, SPENT, USAGE, SAMPLE = "ready", "closed", "spent", "usage", "sample"
"""Facts: the judges' names, once all are ready; why answers stopped; spending; usage; samples of questions."""
