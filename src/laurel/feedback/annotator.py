"""The interface that every annotator implements: pairs of texts in, judgements out, in a stream.

An annotator knows the task's words and the two texts; it knows nothing about segments, files or rewards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    pass

Status = Literal["ok", "tie", "abstain", "incomplete", "parse_failed", "api_failed", "unasked"]
"""As `laurel.data.preferences.STATUSES` says; unasked: there was no budget for it, or not for all of it; such a
question is left out of what is written."""


class Question(NamedTuple):
    """Two texts to choose between."""

    first: str
    second: str


class Said(NamedTuple):
    """What came of asking once."""

    swapped: bool
    """True where the second text was shown first."""
    vote: int
    """Number of the answer in this order."""
    verdict: str
    """first, second, tie or abstain, of the texts as they are and not as they were shown; unread where the answer
    could not be read, failed where there was none, unasked where there was no budget."""
    p_first: float | None
    """None where there is no label."""
    key: str
    """Of the raw answer in the store of responses; empty where there is none."""
    annotator: str = ""
    """Who said it, where several were asked."""


class Judgement(NamedTuple):
    """What an annotator said about a question."""

    status: Status
    p_first: float | None
    """Probability that the first is the better one; 1/2 for a tie, None where there is no answer."""
    votes: int = 1
    """Answers that it rests on."""
    swap_consistent: bool | None = None
    """Whether asking in the other order gave the same; None where that was not asked."""
    answers: tuple[Said, ...] = ()
    """The single answers that it rests on, for annotators that keep them."""
    members: tuple[tuple[str, Judgement], ...] = ()
    """Who voted and how, where several annotators did."""


TIE = Judgement("tie", 0.5, votes=0)
"""The judgement on two identical texts; nobody is asked."""


class OnSettled(Protocol):
    """Is told of questions whose judgements are known, in whatever order they are."""

    def __call__(self, number: int, *, stored: bool) -> None:
        """Note so many more; `stored` says that their answers were there before, at once."""


Usage = dict[str, float | None]
"""What was used of what; None where that is unknown."""


def failures_of(annotator: Annotator) -> dict[str, dict[str, int]]:
    """Return why there was no answer, by who was asked; empty of one that always has an answer."""
    found: dict[str, dict[str, int]] = getattr(annotator, "failures", {})
    return found


def added(one: Usage, other: Usage) -> Usage:
    """Add what was used; what is unknown of either is unknown of both."""
    total = dict(one)
    for key, amount in other.items():
        before = total.get(key, 0)
        total[key] = None if before is None or amount is None else before + amount
    return total


class Annotator(Protocol):
    """Judges pairs of texts.

    One that may get no answer says why in an attribute `failures`: name of who was asked -> reason -> how often. One
    whose answers come in any order calls an attribute `on_settled`, which the asker may set, as each is known.
    """

    name: str
    """Who judges, with model and settings: provenance of every label."""
    simulated: bool
    """True where no language model judged; shown wherever the labels are."""

    @property
    def usage(self) -> Usage:
        """What it has cost so far, None where that is unknown; empty where that is nothing."""
        ...

    def prepare(self, questions: Iterable[Question]) -> None:
        """Get ready for all questions of a round, of which others may be asked to judge a share.

        What is answered to a question must not depend on who judges which share.
        """
        ...

    def annotate(self, questions: Iterable[Question]) -> Iterator[Judgement]:
        """Yield a judgement for each question, in order."""
        ...


def questions_about(texts: Sequence[str], first: Iterable[int], second: Iterable[int]) -> Iterator[Question]:
    """Yield a question for each pair of texts, which are given by number."""
    for a, b in zip(first, second, strict=True):
        yield Question(texts[a], texts[b])


def ignore(number: int, *, stored: bool) -> None:
    """Note nothing."""


def judge(annotator: Annotator, questions: Iterable[Question], on_settled: OnSettled = ignore) -> Iterator[Judgement]:
    """Yield a judgement for each question, in order; nobody is asked about identical texts.

    Args:
        annotator: who judges.
        questions: what about.
        on_settled: is told of questions as their judgements are known, which may be long before they are yielded.
    """
    identical: deque[bool] = deque()
    """Of each question that was drawn but not yet answered."""

    def asked() -> Iterator[Question]:
        for question in questions:
            identical.append(question.first == question.second)
            if not identical[-1]:
                yield question

    for judgement in annotated(annotator, asked(), on_settled):
        while identical.popleft():
            on_settled(1, stored=True)
            yield TIE
        yield judgement
    on_settled(sum(identical), stored=True)
    yield from (TIE for same in identical if same)


def annotated(annotator: Annotator, questions: Iterable[Question], on_settled: OnSettled) -> Iterator[Judgement]:
    """Yield what an annotator does, and tell of each judgement as soon as it is known."""
    tells = hasattr(annotator, "on_settled")
    if tells:
        annotator.on_settled = on_settled  # type: ignore[attr-defined]
    for judgement in annotator.annotate(questions):
        if not tells and judgement.status != "unasked":
            on_settled(1, stored=False)
        yield judgement
