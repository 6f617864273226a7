"""A chat model as annotator: asked about each pair in both orders, optionally with several votes.

    p(first) = mean over the orders of the mean over their readable answers; an answer in words counts 1, 0 or
               1/2 (a tie), one in log-probabilities its probability

A pair has a label only if most votes in each order are readable and choose: with only one order, a model that always
names the text shown first would give confident labels. Where all orders were answered, but one declined to choose, the
annotator abstains: nothing is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from laurel.data.asked import Asked
from laurel.feedback.annotator import Answer, Judgement, OnJudged, Pair, ignore
from laurel.feedback.asker import FAILED, UNASKED, UNREAD, Asker


class LanguageModelAnnotator:
    """Asks a chat model which of two texts is better.

    Args:
        tie_band: probabilities within this of 1/2 are ties.
    """

    simulated = False

    def __init__(self, asker: Asker[Pair, float], tie_band: float = 0.0) -> None:
        self.name = asker.name
        self.on_judged: OnJudged = ignore
        self.at_once = asker.at_once
        self._asker = asker
        self._orders = asker.question.variants
        self._tie_band = tie_band

    @property
    def usage(self) -> dict[str, float | None]:
        return self._asker.usage

    @property
    def asked_sample(self) -> list[Asked]:
        return self._asker.asked_sample

    @property
    def failures(self) -> dict[str, dict[str, int]]:
        return self._asker.failures

    def prepare(self, pairs: Iterable[Pair]) -> None:
        """Do nothing: each pair is judged by itself."""

    def annotate(self, pairs: Iterable[Pair]) -> Iterator[Judgement]:
        """Yield a judgement for each pair, in order; errors as in `Asker.ask`."""
        self._asker.on_judged = self.on_judged
        for answers in self._asker.ask(pairs):
            yield self._judgement(answers)

    def _judgement(self, asked: Sequence[Answer[float]]) -> Judgement:
        answers = tuple([answer for answer in asked if answer.verdict != UNASKED])
        sums, numbers, read = [0.0, 0.0], [0, 0], [0, 0]
        for answer in answers:
            read[answer.variant] += answer.verdict not in (UNREAD, FAILED)
            if answer.value is not None:
                sums[answer.variant] += answer.value
                numbers[answer.variant] += 1
        labels = numbers[0] + numbers[1]
        if any(2 * number <= self._asker.votes for number in numbers[: self._orders]):
            all_read = all(2 * number > self._asker.votes for number in read[: self._orders])
            return _unlabelled(answers, labels, all_asked=len(answers) == len(asked), all_read=all_read)
        p = sum(sums[order] / numbers[order] for order in range(self._orders)) / self._orders
        tie = abs(p - 0.5) <= self._tie_band
        consistent = _side(sums[0], numbers[0]) == _side(sums[1], numbers[1]) if self._orders == 2 else None
        return Judgement("tie" if tie else "ok", 0.5 if tie else p, labels, consistent, answers)


def _unlabelled(answers: tuple[Answer[float], ...], labels: int, *, all_asked: bool, all_read: bool) -> Judgement:
    """Judge a pair with only `labels` answers that choose, too few for a label; `all_read`: most were read."""
    if not all_asked:
        return Judgement("unasked", None, 0, None, answers)
    if labels and not all_read:
        return Judgement("incomplete", None, labels, None, answers)
    verdicts = {answer.verdict for answer in answers}
    if "abstain" in verdicts:
        return Judgement("abstain", None, len(answers), None, answers)
    return Judgement("parse_failed" if UNREAD in verdicts else "api_failed", None, 0, None, answers)


def _side(total: float, number: int) -> int:
    """Return which text most answers in one order prefer: 1 the first, -1 the second, 0 neither."""
    return (2 * total > number) - (2 * total < number)
