"""Knowledge probes: questions with known answers, a file per environment.

An annotator that gets these wrong does not know the environment or cannot follow the prompt. Each question is asked in
both orders, so that always preferring the first text scores 0.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

import yaml

from laurel.errors import AnnotationError
from laurel.feedback.annotator import Annotator, Judgement, Pair, judge
from laurel.feedback.rates import rate

FOLDER = Path(__file__).with_name("probes")
WIDTH = 100
Side = Literal["first", "second", "tie"]
TURNED: dict[str, str] = {"first": "second", "second": "first"}


@dataclass(frozen=True, slots=True)
class Score:
    """How many questions were answered correctly."""

    right: int
    of: int
    fraction: float
    low: float
    """Lower end of the 95% Wilson interval; `high` is the upper end."""
    high: float

    def __str__(self) -> str:
        return f"{self.right} of {self.of} right: {self.fraction:.0%} (95% interval {self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True, slots=True)
class Probe:
    """The questions for an environment."""

    questions: tuple[Pair, ...]
    """The better caption comes first in every other one, so that always naming the same side is right half the time."""
    expected: tuple[Side, ...]

    @property
    def asked(self) -> tuple[Pair, ...]:
        """All questions to a judge: every question, and then every question with its texts swapped."""
        return self.questions + tuple(Pair(question.second, question.first) for question in self.questions)

    def score(self, answers: Sequence[Side | None]) -> Score:
        """Score the answers to all questions, in their order; no answer, a tie and an abstention are wrong."""
        right = sum(answer == known for answer, known in zip(answers, self.expected, strict=True))
        return wilson_score(right, len(self.expected))


def wilson_score(right: int, asked: int) -> Score:
    """Return a score with its Wilson interval."""
    share = rate(right, asked)
    assert share is not None, "there are questions"
    return Score(right, asked, share["value"], *share["ci95"])


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers to one question."""

    question: Pair
    expected: Side
    given: tuple[str, str]
    """Answers in the question's order, and with its texts swapped: first, second or tie, in the question's own order;
    or the status of a judgement without a label."""
    answer: Side | None
    """The answer from both orders combined, as in a label; None without an answer."""

    @property
    def right(self) -> bool:
        return self.answer == self.expected


@dataclass(frozen=True, slots=True)
class Findings:
    """The answers to all questions, and the score."""

    answers: tuple[Answered, ...]
    score: Score

    def table(self) -> str:
        """Return a line or two for each question, and the score."""
        lines = []
        for number, entry in enumerate(self.answers, 1):
            mark = "right" if entry.right else "WRONG"
            answer = (
                entry.given[0] if entry.given[0] == entry.given[1] else f"{entry.given[0]}, exchanged {entry.given[1]}"
            )
            lines.append(f"{number:>3}  {mark}  expected {entry.expected}, given {answer}")
            for side, text in (("first ", entry.question.first), ("second", entry.question.second)):
                lines += textwrap.wrap(text, WIDTH, initial_indent=f"       {side}  ", subsequent_indent=" " * 15)
        return "\n".join([*lines, "", f"score  {self.score}"])


def ask(annotator: Annotator, probe: Probe) -> Findings:
    """Ask a judge all questions, each in both orders."""
    annotator.prepare(probe.asked)
    judged = list(judge(annotator, probe.asked))
    forth, back = judged[: len(probe.questions)], judged[len(probe.questions) :]
    answers = tuple(
        Answered(question, expected, (_side(a), TURNED.get(_side(b), _side(b))), _together(a, b))
        for question, expected, a, b in zip(probe.questions, probe.expected, forth, back, strict=True)
    )
    return Findings(answers, probe.score([answer.answer for answer in answers]))


def _side(judgement: Judgement) -> str:
    if judgement.p_first is None:
        return judgement.status
    return "first" if judgement.p_first > 0.5 else "second" if judgement.p_first < 0.5 else "tie"


def _together(forth: Judgement, back: Judgement) -> Side | None:
    """Return the side of the mean over both orders, as for a chat model that is asked in both."""
    labels = [] if forth.p_first is None else [forth.p_first]
    labels += [] if back.p_first is None else [1 - back.p_first]
    if not labels:
        return None
    lean = sum(labels) / len(labels) - 0.5
    return "tie" if abs(lean) < 1e-12 else "first" if lean > 0 else "second"


def has_probe(env_id: str) -> bool:
    """Whether there are questions for an environment."""
    return any(fnmatch(env_id, pattern) for pattern in probed_ids())


def load_probe(env_id: str) -> Probe:
    """Load the questions for an environment, whose captions do not name the action.

    Raises:
        AnnotationError: the environment has no probe.
    """
    for file in sorted(FOLDER.glob("*.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        if any(fnmatch(env_id, pattern) for pattern in content["ids"]):
            pairs = [(pair["better"], pair["worse"]) for pair in content["questions"]]
            questions = [Pair(*(pair if i % 2 == 0 else pair[::-1])) for i, pair in enumerate(pairs)]
            expected: list[Side] = ["first" if i % 2 == 0 else "second" for i in range(len(pairs))]
            return Probe(tuple(questions), tuple(expected))
    raise AnnotationError(
        f"env.id: there are no questions with known answers for {env_id}; they come with environments of Gymnasium, "
        "MiniGrid and Laurel. Compare the annotator with your own labels instead: laurel annotate review --gold FILE."
    )


def probed_ids() -> tuple[str, ...]:
    """Return the patterns of the environment ids that have questions."""
    contents = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in FOLDER.glob("*.yaml")]
    return tuple(sorted(pattern for content in contents for pattern in content["ids"]))
