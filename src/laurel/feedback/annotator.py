"""The interface of annotators: pairs of texts in, judgements out, as a stream.

An annotator sees the task's description and the two texts, not segments, files or rewards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from numbers import Integral, Real
from types import NoneType
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, get_args

import numpy as np

from laurel.data.asked import Asked
from laurel.data.usage import Usage, added, is_amount, own_number
from laurel.errors import AnnotationError
from laurel.llm.budget import Budget
from laurel.params.annotation import BudgetParams

Value = TypeVar("Value")
Status = Literal["ok", "tie", "abstain", "incomplete", "parse_failed", "api_failed", "unasked"]
"""As in `laurel.data.preferences.STATUSES`; unasked: the budget did not allow all of its questions, and the pair is not
written."""


class Pair(NamedTuple):
    """Two texts to choose between."""

    first: str
    second: str


class Answer(NamedTuple, Generic[Value]):
    """A single answer to a question, of any kind."""

    variant: int
    """Variant of the question; of a pair: 1 where the second text was shown first, else 0."""
    vote: int
    """Number of the vote in this variant."""
    verdict: str
    """Its verdict, a word of the question's kind; about a pair: first, second, tie or abstain, of the texts in their
    own order, not the order shown. unread if it could not be read, failed if there was none, unasked if the budget did
    not allow it."""
    value: Value | None
    """The answer as a number; of a pair: p(first). None without an answer."""
    key: str
    """Key of the raw answer in the store of responses; empty without one."""
    annotator: str = ""
    """Name of the annotator, where several were asked."""


class Judgement(NamedTuple):
    """An annotator's label of a pair."""

    status: Status
    p_first: float | None
    """Probability that the first is better; 1/2 for a tie, None if there is no answer."""
    votes: int = 1
    """Number of answers behind it."""
    swap_consistent: bool | None = None
    """Whether both orders gave the same label; None where only one was asked."""
    answers: tuple[Answer[float], ...] = ()
    """The single answers behind it, from annotators that keep them."""
    members: tuple[tuple[str, Judgement], ...] = ()
    """Name and judgement of each member, where several annotators voted."""


MOST_VOTES = 2**31 - 1
"""Votes of a judgement are stored as 32-bit integers."""
TIE = Judgement("tie", 0.5, votes=0)
"""The judgement on two identical texts, which no annotator is asked about."""


class OnJudged(Protocol):
    """Called as judgements become known, in any order."""

    def __call__(self, number: int, *, stored: bool) -> None:
        """Count this many more; `stored`: their answers were in the store."""


def failures_of(annotator: Annotator) -> dict[str, dict[str, int]]:
    """Return annotator -> reason -> number of failures; empty for an annotator that cannot fail."""
    failures: dict[str, dict[str, int]] = getattr(annotator, "failures", {})
    return failures


def usage_of(annotator: Annotator) -> Usage:
    """Return an annotator's usage so far, in Python's own numbers, which JSON can hold; NaN is unknown.

    Raises:
        AnnotationError: it is not a mapping of amounts, or an amount is neither a number nor None.
    """
    usage: Any = annotator.usage
    if not isinstance(usage, Mapping) or not all(map(is_amount, usage.values())):
        raise AnnotationError(
            f"The annotator {annotator.name} has usage {usage!r:.60}, but it must map each resource to a number from "
            "0, or to None where that is unknown."
        )
    return {resource: own_number(amount) for resource, amount in usage.items()}


def questions_asked(asker: object) -> list[Asked]:
    """Return samples of questions; empty for annotators that ask no chat model."""
    samples: list[Asked] = getattr(asker, "asked_sample", [])
    return samples


class Annotator(Protocol):
    """Judges pairs of texts.

    Optional attributes: `asked_sample`, samples of the questions to a chat model; `failures`, the reasons for missing
    answers (annotator -> reason -> count); `on_judged`, a callback that the caller may set, called for each judgement
    as soon as it is known.
    """

    name: str
    """Name with model and settings: the provenance of every label."""
    simulated: bool
    """True if no language model judged; shown wherever the labels are."""

    @property
    def usage(self) -> Usage:
        """Usage so far, None for an unknown amount; empty if asking costs nothing."""
        ...

    def prepare(self, pairs: Iterable[Pair]) -> None:
        """Prepare for all pairs of a round, before `annotate` gets all or a share of them.

        The judgement of a pair must not depend on its share.
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


def judge(annotator: Annotator, pairs: Iterable[Pair], on_judged: OnJudged = ignore) -> Iterator[Judgement]:
    """Yield a judgement for each pair, in order; identical texts are ties without asking.

    Args:
        on_judged: called as judgements are known, which may be long before they are yielded.
    """
    identical: deque[bool] = deque()
    """Whether the texts are identical, for each pair that was drawn but not yet answered."""

    def asked() -> Iterator[Pair]:
        for pair in pairs:
            identical.append(pair.first == pair.second)
            if not identical[-1]:
                yield pair

    for judgement in annotated(annotator, asked(), on_judged):
        while identical.popleft():
            on_judged(1, stored=True)
            yield TIE
        yield judgement
    on_judged(sum(identical), stored=True)
    yield from (TIE for is_identical in identical if is_identical)


def annotated(annotator: Annotator, pairs: Iterable[Pair], on_judged: OnJudged) -> Iterator[Judgement]:
    """Yield an annotator's judgements, and call `on_judged` as soon as each is known.

    Raises:
        AnnotationError: it does not give a judgement for each pair, or one that is not valid.
    """
    reports = hasattr(annotator, "on_judged")
    if reports:
        annotator.on_judged = on_judged  # type: ignore[attr-defined]
    drawn = received = 0

    def counted() -> Iterator[Pair]:
        nonlocal drawn
        for pair in pairs:
            drawn += 1
            yield pair

    stream = counted()
    judgements: object = annotator.annotate(stream)
    if not isinstance(judgements, Iterable):
        raise AnnotationError(
            f"The annotator {annotator.name} returned {judgements!r:.60}, but a judgement of each pair is required."
        )
    judgement: Any
    for judgement in judgements:
        received += 1
        judgement = _checked(annotator, judgement, received - drawn)
        if not reports and judgement.status != "unasked":
            on_judged(1, stored=False)
        yield judgement
    if received < drawn or next(stream, None) is not None:
        raise AnnotationError(
            f"The annotator {annotator.name} stopped after {received:,} judgements, but one for each pair is required."
        )


def _checked(annotator: Annotator, judgement: object, surplus: int) -> Judgement:
    """Return a judgement with Python's own numbers, which JSON can hold.

    Raises:
        AnnotationError: it is none, has no pair, or a field that is of another type or contradicts its status.
    """
    complaint = f"The annotator {annotator.name} gave {judgement!r:.100}, but "
    if surplus > 0:
        raise AnnotationError(f"{complaint}every pair had its judgement. Yield one for each pair, in order.")
    if not isinstance(judgement, Judgement):
        raise AnnotationError(f'{complaint}a Judgement is required, such as Judgement("ok", 0.9).')
    status: Any
    p: Any
    votes: Any
    swap: Any
    status, p, votes, swap, *collections = judgement  # of any type: another package's
    if not isinstance(status, str) or status not in get_args(Status):
        raise AnnotationError(f"{complaint}its status must be one of {', '.join(get_args(Status))}.")
    if not (p is None if status not in ("ok", "tie") else isinstance(p, int | float | np.number) and 0 <= p <= 1):
        raise AnnotationError(f"{complaint}ok and tie need a probability from 0 to 1, and other statuses have None.")
    if status == "tie" and p != TIE.p_first:
        raise AnnotationError(f"{complaint}a tie has the probability 0.5.")
    if not isinstance(votes, Integral) or not 0 <= int(votes) <= MOST_VOTES:
        raise AnnotationError(f"{complaint}its votes must be a number of answers, from 0 to {MOST_VOTES:,}.")
    if not (swap is None or isinstance(swap, bool | np.bool_)):
        raise AnnotationError(f"{complaint}its swap_consistent must be True, False or None.")
    for values, field, fits in zip(collections, ("answers", "members"), (_is_answer, _is_member), strict=True):
        if not isinstance(values, tuple) or not all(map(fits, values)):
            raise AnnotationError(f"{complaint}its {field} must be a tuple as in laurel.feedback.annotator.Judgement.")
    if p == TIE.p_first:  # ok, but undecided: counted as a preference, it would let labels pass that say nothing
        status = "tie"
    return judgement._replace(
        status=status,
        p_first=None if p is None else float(p),
        votes=int(votes),
        swap_consistent=None if swap is None else bool(swap),
    )


def _is_answer(answer: object) -> bool:
    types: tuple[Any, ...] = (Integral, Integral, str, (Real, NoneType), str, str)
    return isinstance(answer, Answer) and all(
        isinstance(value, type_) for value, type_ in zip(answer, types, strict=True)
    )


def _is_member(member: object) -> bool:
    return (
        isinstance(member, tuple)
        and len(member) == 2
        and isinstance(member[0], str)
        and isinstance(member[1], Judgement)
    )


class Asking(Protocol):
    """Interface of what asks a model: `laurel.feedback.asker.Asker`."""

    @property
    def usage(self) -> Usage:
        """Its usage so far."""

    @property
    def asked_sample(self) -> list[Asked]:
        """A sample of what it asked."""


class Account:
    """Usage shared by all askers of a stage, so that together they stay within its budget."""

    def __init__(self, params: BudgetParams) -> None:
        self.budget = Budget(params)
        self.notes: list[str] = []
        """For the report, on questions that the budget did not allow."""
        self._usage: Usage = {}
        self._asked: list[Asked] = []
        self._open: list[Asking] = []

    def __reduce__(self) -> tuple[type[Account], tuple[BudgetParams]]:
        """Start empty in another process: models stay in this one."""
        return Account, (self.budget.params,)

    @contextmanager
    def counting(self, asker: Asking) -> Iterator[None]:
        """Count what an asker uses in the block, also if that fails; its model is not kept longer."""
        self._open.append(asker)
        try:
            yield
        finally:
            self._open.remove(asker)
            self._usage = added(self._usage, asker.usage)
            self._asked += asker.asked_sample

    @property
    def usage(self) -> Usage:
        """Usage so far; empty where no model was asked."""
        return reduce(added, (asker.usage for asker in self._open), self._usage)

    @property
    def asked(self) -> list[Asked]:
        """Samples of what was asked."""
        return [*self._asked, *(sample for asker in self._open for sample in asker.asked_sample)]
