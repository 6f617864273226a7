"""The interface that every annotator implements: pairs of texts in, judgements out, in a stream.

An annotator knows the task's words and the two texts; it knows nothing about segments, files or rewards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from laurel.envs.base import Room
from laurel.seeding import derive_seed

if TYPE_CHECKING:
    from laurel.params import AnnotateParams

Status = Literal["ok", "tie", "abstain", "parse_failed", "api_failed"]


@dataclass(frozen=True, slots=True)
class Question:
    """Two texts to choose between."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an annotator said about a question."""

    status: Status
    p_first: float | None
    """Probability that the first is the better one; 1/2 for a tie, None where there is no answer."""
    votes: int = 1
    """Answers that it rests on."""
    swap_consistent: bool | None = None
    """Whether asking in the other order gave the same; None where that was not asked."""


TIE = Judgement("tie", 0.5, votes=0)
"""The judgement on two identical texts; nobody is asked."""


class Annotator(Protocol):
    """Judges pairs of texts."""

    name: str
    """Who judges, with model and settings: provenance of every label."""
    simulated: bool
    """True where no language model judged; shown wherever the labels are."""

    def prepare(self, questions: Sequence[Question]) -> None:
        """Get ready for all questions of a run, of which others may be asked to judge a share.

        What is answered to a question must not depend on who judges which share.
        """
        ...

    def annotate(self, questions: Iterable[Question]) -> Iterator[Judgement]:
        """Yield a judgement for each question, in order."""
        ...


def judge(annotator: Annotator, questions: Sequence[Question]) -> Iterator[Judgement]:
    """Yield a judgement for each question, in order; nobody is asked about identical texts."""
    asked = annotator.annotate(question for question in questions if question.first != question.second)
    for question in questions:
        yield TIE if question.first == question.second else next(asked)


def make_annotator(params: AnnotateParams, room: Room, seed: int) -> Annotator:
    """Make the annotator that the params name.

    Raises:
        AnnotationError: its model cannot be loaded, or it has nothing to judge this environment by.
    """
    match params.annotator:
        case "embedding":
            from laurel.feedback.embedding import EmbeddingAnnotator

            return EmbeddingAnnotator.load(params.embedding, room)
        case "scripted":
            from laurel.feedback.scripted import ScriptedAnnotator

            return ScriptedAnnotator(params.scripted, room, derive_seed(seed, "scripted"))
