"""Knowledge probes: questions to a judge whose answer is beyond dispute, a file of them for an environment.

Whoever gets these wrong knows too little of the environment, or cannot follow the prompt. Knows nothing about models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import yaml

from laurel.errors import AnnotationError
from laurel.feedback.annotator import Question
from laurel.feedback.verdicts import Answer

FOLDER = Path(__file__).with_name("probes")
Z = 1.959963984540054
"""Quantile of the normal distribution for an interval of 95%."""


@dataclass(frozen=True, slots=True)
class Score:
    """How many questions were answered rightly."""

    right: int
    of: int
    fraction: float
    low: float
    """Of the 95% Wilson interval, as `high`."""
    high: float


@dataclass(frozen=True, slots=True)
class Probe:
    """The questions for an environment."""

    questions: tuple[Question, ...]
    """The better caption stands first in every other one, so that naming a side always earns a half."""
    expected: tuple[Answer, ...]

    def score(self, answers: Sequence[Answer | None]) -> Score:
        """Score the answers to all questions, in their order; no answer, a tie and an abstention are wrong.

        The interval is Wilson's (1927): centre (p + z²/2n) / (1 + z²/n), also sensible where all are right.
        """
        n = len(self.expected)
        right = sum(given == known for given, known in zip(answers, self.expected, strict=True))
        p, z2 = right / n, Z**2
        centre = (p + z2 / (2 * n)) / (1 + z2 / n)
        half = Z / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n**2))
        low, high = max(0.0, centre - half), min(1.0, centre + half)
        return Score(right, n, p, low if right else 0.0, high if right < n else 1.0)


def load_probe(env_id: str) -> Probe:
    """Load the questions for an environment, whose captions do not name the action.

    Raises:
        AnnotationError: there are none for it.
    """
    for file in sorted(FOLDER.glob("*.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        if any(fnmatch(env_id, pattern) for pattern in content["ids"]):
            pairs = [(pair["better"], pair["worse"]) for pair in content["questions"]]
            questions = [Question(*(pair if i % 2 == 0 else pair[::-1])) for i, pair in enumerate(pairs)]
            expected: list[Answer] = ["first" if i % 2 == 0 else "second" for i in range(len(pairs))]
            return Probe(tuple(questions), tuple(expected))
    known = ", ".join(probed_ids())
    raise AnnotationError(f"env.id: there are no questions with known answers for {env_id}. There are for {known}.")


def probed_ids() -> tuple[str, ...]:
    """Return the patterns of the ids that there are questions for."""
    contents = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.yaml"))]
    return tuple(pattern for content in contents for pattern in content["ids"])
