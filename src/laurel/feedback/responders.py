"""Judges that answer questions about captions, or pairs of them, while agents are trained.

A responder is made from the section `annotate`, with the same store and budget as the stage annotate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from laurel.data.asked import Asked
from laurel.data.usage import Usage, added
from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Answer, Pair, Status, annotated, ignore, questions_asked, usage_of
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.asker import FAILED, UNASKED, UNREAD, Asker
from laurel.feedback.chat_annotator import JUDGES_OF_TEXTS, ChatAnnotator
from laurel.feedback.estimate import Estimate
from laurel.feedback.online_quality import joined, packed, require_success_preferred
from laurel.feedback.question_queue import Item, Shown, Verdict
from laurel.feedback.questions.helpful import HelpfulQuestion
from laurel.feedback.text_judge import TextJudge
from laurel.feedback.voting import voted
from laurel.feedback.yes_no import probability
from laurel.llm.budget import Budget
from laurel.params.annotation import AnnotateParams

BLOCK = 64
"""Questions per call of `answers`, unless a model supports more."""


class Responder(ABC):
    """Answers questions of one kind."""

    name: str
    simulated: bool
    """Whether no language model answers."""
    at_once: int = BLOCK
    """Maximum number of questions per call of `answers`."""

    @property
    @abstractmethod
    def usage(self) -> Usage:
        """Return the usage so far."""

    @property
    def asked(self) -> list[Asked]:
        """Return samples of questions to a chat model."""
        return []

    def known_answers(self) -> dict[str, Any]:
        """Ask questions with known answers; return the judge's results, empty if there are none.

        Raises:
            RefusedLabelsError: the judge answers wrongly (annotate.gates.min_success_preferred).
        """
        return {}

    @abstractmethod
    def answers(self, items: Sequence[Item]) -> Iterator[Verdict]:
        """Yield the answer to each question, in order; errors as in `laurel.feedback.asker.Asker.ask`."""


class PairResponder(Responder):
    """An annotator of pairs."""

    def __init__(self, annotate: AnnotateParams, adapter: EnvAdapter, seed: int, budget: Budget) -> None:
        self._annotator = kind_of(annotate).make(adapter, seed, (), budget=budget)
        self.name, self.simulated = self._annotator.name, self._annotator.simulated
        self.at_once = max(BLOCK, getattr(self._annotator, "at_once", 0))
        self._asked_first = annotate, self._annotator, adapter, seed

    @property
    def usage(self) -> Usage:
        return usage_of(self._annotator)

    @property
    def asked(self) -> list[Asked]:
        return questions_asked(self._annotator)

    def known_answers(self) -> dict[str, Any]:
        return require_success_preferred(*self._asked_first)

    def answers(self, items: Sequence[Item]) -> Iterator[Verdict]:
        pairs = [Pair(*item) for item in items]
        self._annotator.prepare(pairs)
        for judgement in annotated(self._annotator, pairs, ignore):
            answers = judgement.answers or [answer for _, member in judgement.members for answer in member.answers]
            status = judgement.status
            if status == "incomplete" and answers and all(answer.verdict != FAILED for answer in answers):
                status = "parse_failed"  # asked again, it would get the same answers
            yield Verdict(status, judgement.p_first, judgement.swap_consistent, packed(answers))


class CaptionResponder(Responder):
    """Judges whether captions help, by a chat model or another annotator. Several annotators vote
    (`laurel.feedback.voting.voted`).
    """

    def __init__(
        self,
        annotate: AnnotateParams,
        adapter: EnvAdapter,
        seed: int,
        budget: Budget,
        prompt: str | None,
        goal: str | None,
    ) -> None:
        self._voters = [_voter(voter, adapter, seed, budget, prompt, goal) for voter in annotate.voters]
        self._weights, self._tie_band = annotate.weights, annotate.tie_band
        self.name = ", ".join(voter.name for voter in self._voters)
        self.simulated = any(voter.simulated for voter in self._voters)
        self.at_once = max(voter.at_once for voter in self._voters)

    @property
    def usage(self) -> Usage:
        total: Usage = {}
        for voter in self._voters:
            total = added(total, voter.usage)
        return total

    @property
    def asked(self) -> list[Asked]:
        return [sample for voter in self._voters for sample in voter.asked]

    def answers(self, items: Sequence[Item]) -> Iterator[Verdict]:
        # one voter after the other: an error of one, or Ctrl-C, would drop pending answers of the others
        all_votes = [list(voter.answers(items)) for voter in self._voters]
        for votes in zip(*all_votes, strict=True):
            status, p = voted(self._weights, [(vote.status, vote.p) for vote in votes], self._tie_band)
            if status == "incomplete" and all(vote.status != "api_failed" for vote in votes):
                status = "parse_failed"  # asked again, it would get the same answers
            yield Verdict(status, p, None, joined(vote.answers for vote in votes))


def check_captions(annotate: AnnotateParams, adapter: EnvAdapter, prompt: str | None, goal: str | None) -> None:
    """Refuse annotators that cannot judge whether a single caption helps.

    Raises:
        AnnotationError: an annotator only judges pairs, or has no goal.
        PromptError: the prompt does not fit the environment or the model.
    """
    for voter in annotate.voters:
        kind = kind_of(voter)
        if isinstance(kind, ChatAnnotator):
            question = _question(kind, adapter, prompt, goal)
            question.messages(question.sample)
        elif kind.text_judge(adapter, 0):
            kind.check(adapter)
        else:
            raise AnnotationError(
                f"the annotator {voter.annotator} judges pairs, and cannot judge whether a single caption helps. "
                f"Set the reward's form to ranking, or annotate.annotator to {JUDGES_OF_TEXTS}."
            )


def _question(kind: ChatAnnotator, adapter: EnvAdapter, prompt: str | None, goal: str | None) -> HelpfulQuestion:
    scores = getattr(kind.section, "mode", "generate") == "score"
    loaded = HelpfulQuestion.load_prompt(prompt or ("answer_only" if scores else "yes_no"))
    return HelpfulQuestion(loaded, adapter, goal, scored=kind.scored(loaded))


def estimates(
    shown: Shown,
    annotate: AnnotateParams,
    adapter: EnvAdapter,
    texts: Sequence[str],
    prompt: str | None,
    goal: str | None,
) -> list[Estimate]:
    """Return, for each chat model at a server among a judge's annotators, what it takes to ask about captions, or about
    pairs of neighbours in the sequence.
    """
    kinds = [kind for kind in map(kind_of, annotate.voters) if isinstance(kind, ChatAnnotator) and not kind.local]
    if shown == "pair":
        pairs = [Pair(*pair) for pair in pairwise(texts)]
        return [kind.estimate(adapter, pairs) for kind in kinds]
    return [kind.estimate_of(_question(kind, adapter, prompt, goal), texts) for kind in kinds]


def _voter(
    annotate: AnnotateParams, adapter: EnvAdapter, seed: int, budget: Budget, prompt: str | None, goal: str | None
) -> Responder:
    kind = kind_of(annotate)
    if isinstance(kind, ChatAnnotator):
        return _ChatResponder(kind.asker(_question(kind, adapter, prompt, goal), budget))
    judge = kind.text_judge(adapter, seed)
    assert judge is not None, "check_captions accepted it"
    return _TextResponder(judge, kind.simulated)


class _ChatResponder(Responder):
    simulated = False

    def __init__(self, asker: Asker[str, float]) -> None:
        self._asker = asker
        self.name, self.at_once = asker.name, max(BLOCK, asker.at_once)

    @property
    def usage(self) -> Usage:
        return self._asker.usage

    @property
    def asked(self) -> list[Asked]:
        return self._asker.asked_sample

    def answers(self, items: Sequence[Item]) -> Iterator[Verdict]:
        for answers in self._asker.ask([text for text, _ in items]):
            yield _verdict(answers)._replace(answers=packed(answers))


def _verdict(answers: Sequence[Answer[float]]) -> Verdict:
    verdicts = {answer.verdict for answer in answers}
    p = probability(answers)
    if p is not None:
        return Verdict("tie" if p == 0.5 else "ok", p)
    return Verdict(next((status for verdict, status in _WITHOUT_A_LABEL if verdict in verdicts), "abstain"), None)


_WITHOUT_A_LABEL: tuple[tuple[str, Status], ...] = (
    (UNASKED, "unasked"),
    (FAILED, "api_failed"),
    (UNREAD, "parse_failed"),
)
"""Answer -> status of a verdict without a label; by precedence, the first one found decides."""


class _TextResponder(Responder):
    """An annotator that asks no chat model."""

    usage: Usage = {}  # noqa: RUF012 - asking costs nothing

    def __init__(self, judge: TextJudge, simulated: bool) -> None:
        self._judge, self.name, self.simulated = judge, judge.provenance, simulated

    def answers(self, items: Sequence[Item]) -> Iterator[Verdict]:
        for helps in self._judge.helpful([text for text, _ in items]):
            yield Verdict("ok", float(helps))


def make_responder(
    shown: Shown,
    annotate: AnnotateParams,
    adapter: EnvAdapter,
    seed: int,
    budget: Budget,
    prompt: str | None = None,
    goal: str | None = None,
) -> Responder:
    """Return the responder that answers questions of one kind.

    Args:
        shown: the kind of question.
        seed: for annotators that draw at random, as in the stage annotate.
        budget: limit of the cost of all responders together.
        prompt: of a chat model that is shown a caption; None: the packaged one.
        goal: the goal in that prompt; None: the environment's own.

    Raises:
        AnnotationError: its model cannot be loaded or asked, or has no criterion for this environment.
        DataError: the store of answers cannot be used.
    """
    if shown == "pair":
        return PairResponder(annotate, adapter, seed, budget)
    return CaptionResponder(annotate, adapter, seed, budget, prompt, goal)
