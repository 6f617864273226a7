"""Questions with a known answer: a caption of success against any other caption, where an environment has both.

A reward model's agreement with its annotator does not reveal an annotator that ranks success below ordinary steps;
these questions do. Half are against captions of progress and half against the rest, if the environment has hand-written
progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np

from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Annotator, Pair, judge
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.rates import rate
from laurel.params.annotation import AnnotateParams

SUCCESS = "success_preferred"
"""Name of the figure."""
MOST_NAMED = 5
"""Maximum number of captions ranked above success that are named."""


@dataclass(frozen=True, slots=True)
class SuccessQuestion:
    """A caption of success and another caption."""

    success: str
    other: str
    success_first: bool

    @property
    def question(self) -> Pair:
        """The question as it is asked."""
        return Pair(self.success, self.other) if self.success_first else Pair(self.other, self.success)


def success_questions(captions: Iterable[str], adapter: EnvAdapter, n: int, seed: int) -> list[SuccessQuestion]:
    """Draw up to n questions, each about another caption that is not success; none if there is no such caption.

    Args:
        captions: of single steps.
        adapter: the environment's; knows which captions are success, and lists captions that were never met.
    """
    texts = list(dict.fromkeys(captions))
    successes = list(dict.fromkeys([*adapter.success_captions(), *filter(adapter.says_success, texts)]))
    failures = [text for text in texts if text and not adapter.says_success(text)]
    if not successes:
        return []
    rng = np.random.default_rng(seed)
    progress = [text for text in failures if (adapter.oracle(text) or 0.0) > 0]
    rest = [text for text in failures if (adapter.oracle(text) or 0.0) <= 0]
    n_progress = min(len(progress), max(n // 2, n - len(rest)))
    chosen = _drawn(progress, n_progress, rng) + _drawn(rest, n - n_progress, rng)
    shown_successes = islice(cycle(_drawn(successes, len(successes), rng)), len(chosen))
    return [
        SuccessQuestion(success, failure, success_first=number % 2 == 0)
        for number, (success, failure) in enumerate(zip(shown_successes, _drawn(chosen, n, rng), strict=True))
    ]


def has_other_goal(params: AnnotateParams, adapter: EnvAdapter) -> bool:
    """Whether the annotator judges by one of the environment's goals other than success at its task."""
    return any(kind_of(voter).has_other_goal(adapter) for voter in params.voters)


def ask_success(annotator: Annotator, questions: Sequence[SuccessQuestion]) -> dict[str, Any]:
    """Ask an annotator.

    Returns:
        A share with its interval (`laurel.feedback.rates`): how often success was preferred, among questions with a
        preference; `questions`, how many were asked; `failed`, how many of them have no readable answer, if any;
        `above`, captions preferred to success, in order of confidence; `success`, the corresponding captions of
        success; `sided`, how many single answers named a side, and `first_named`, how many of these named the text
        shown first.
        Without `value`, `ci95` and `of` if there was no preference.
    """
    asked = [pair.question for pair in questions]
    annotator.prepare(asked)
    sure: list[tuple[float, SuccessQuestion]] = []
    shown_first: list[bool] = []
    unasked = failed = 0
    for pair, judgement in zip(questions, judge(annotator, asked), strict=True):
        unasked += judgement.status == "unasked"
        failed += judgement.status in ("parse_failed", "api_failed")
        sided = [answer for answer in judgement.answers if answer.verdict in ("first", "second")]
        shown_first += [(answer.verdict == "first") != bool(answer.variant) for answer in sided]
        if judgement.p_first is not None and judgement.p_first != 0.5:
            sure.append((judgement.p_first if pair.success_first else 1 - judgement.p_first, pair))
    wrong = sorted((entry for entry in sure if entry[0] < 0.5), key=lambda entry: entry[0])
    return {
        **(rate(len(sure) - len(wrong), len(sure)) or {}),
        "questions": len(questions) - unasked,
        **({"failed": failed} if failed else {}),
        "sided": len(shown_first),
        "first_named": sum(shown_first),
        "above": list(dict.fromkeys(pair.other for _, pair in wrong))[:MOST_NAMED],
        "success": list(dict.fromkeys(pair.success for _, pair in wrong))[:MOST_NAMED],
    }


def _drawn(texts: Sequence[str], n: int, rng: np.random.Generator) -> list[str]:
    return [texts[i] for i in rng.permutation(len(texts))[:n]]
