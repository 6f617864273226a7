"""The interface that every annotator implements: pairs of texts in, judgements out, in a stream.

An annotator knows the task's words and the two texts; it knows nothing about segments, files or rewards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

Value = TypeVar("Value")
Status = Literal["ok", "tie", "abstain", "incomplete", "parse_failed", "api_failed", "unasked"]
"""As `laurel.data.preferences.STATUSES` says; unasked: there was no budget for it, or not for all of it; such a
pair is left out of what is written."""


class Pair(NamedTuple):
    """Two texts to choose between."""

    first: str
    second: str


class Answer(NamedTuple, Generic[Value]):
    """A single answer to a question, of any kind."""

    variant: int
    """Which way the question was put; about a pair: 1 where the second text was shown first, else 0."""
    vote: int
    """Number of the answer in this variant."""
    verdict: str
    """What it says in a word of the question's kind; about a pair: first, second, tie or abstain, of the texts as they
    are and not as they were shown. unread where it could not be read, failed where it never came, unasked where the
    budget did not allow for it."""
    value: Value | None
    """What it says as a figure; about a pair: p(first). None where there is none."""
    key: str
    """Of the raw answer in the store of responses; empty where there is none."""
    annotator: str = ""
    """Who answered, where several were asked."""


class Judgement(NamedTuple):
    """What an annotator makes of a pair."""

    status: Status
    p_first: float | None
    """Probability that the first is the better one; 1/2 for a tie, None where there is no answer."""
    votes: int = 1
    """Answers that it rests on."""
    swap_consistent: bool | None = None
    """Whether asking in the other order gave the same; None where that was not asked."""
    answers: tuple[Answer[float], ...] = ()
    """The single answers that it rests on, from annotators that keep them."""
    members: tuple[tuple[str, Judgement], ...] = ()
    """Who voted and how, where several annotators did."""


TIE = Judgement("tie", 0.5, votes=0)
"""The judgement on two identical texts, about which no annotator is asked."""


class OnSettled(Protocol):
    """Called as judgements become known, in any order."""

    def __call__(self, number: int, *, stored: bool) -> None:
        """Count so many more; `stored`: their answers were in the store."""


Usage = dict[str, float | None]
"""Resource -> amount used; None where that is unknown."""


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

    def prepare(self, pairs: Iterable[Pair]) -> None:
        """Get ready for all pairs of a round, of which others may be asked to judge a share.

        The judgement on a pair must not depend on who judges which share.
        """
        ...

    def annotate(self, pairs: Iterable[Pair]) -> Iterator[Judgement]:
        """Yield a judgement for each pair, in order."""
        ...


def pairs_of(texts: Sequence[str], first: Iterable[int], second: Iterable[int]) -> Iterator[Pair]:
    """Yield pairs of texts, which are given by number."""
    for a, b in zip(first, second, strict=True):
        yield Pair(texts[a], texts[b])


def ignore(number: int, *, stored: bool) -> None:
    """Do nothing."""


def judge(annotator: Annotator, pairs: Iterable[Pair], on_settled: OnSettled = ignore) -> Iterator[Judgement]:
    """Yield a judgement for each pair, in order; identical texts are a tie, about which the annotator is not asked.

    Args:
        on_settled: called as judgements are known, which may be long before they are yielded.
    """
    identical: deque[bool] = deque()
    """Of each pair that was drawn but not yet answered."""

    def asked() -> Iterator[Pair]:
        for pair in pairs:
            identical.append(pair.first == pair.second)
            if not identical[-1]:
                yield pair

    for judgement in annotated(annotator, asked(), on_settled):
        while identical.popleft():
            on_settled(1, stored=True)
            yield TIE
        yield judgement
    on_settled(sum(identical), stored=True)
    yield from (TIE for same in identical if same)


def annotated(annotator: Annotator, pairs: Iterable[Pair], on_settled: OnSettled) -> Iterator[Judgement]:
    """Yield an annotator's judgements, and call `on_settled` as soon as each is known."""
    reports = hasattr(annotator, "on_settled")
    if reports:
        annotator.on_settled = on_settled  # type: ignore[attr-defined]
    for judgement in annotator.annotate(pairs):
        if not reports and judgement.status != "unasked":
            on_settled(1, stored=False)
        yield judgement
