"""A chat model's choices among named options, such as actions, asked once per distinct state description.

Answers are cached in the response store, so repeated questions cost nothing in the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from laurel.arrays import DoubleArray
from laurel.data.asked import ASKED
from laurel.data.usage import ASKER, new_asker
from laurel.errors import AnnotationError, ParamsError
from laurel.feedback.annotator import Answer
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.asker import FAILED, UNASKED, Asker
from laurel.feedback.chat_annotator import ChatAnnotator
from laurel.feedback.questions.action import ActionQuestion, Choice
from laurel.llm.budget import Budget
from laurel.params.annotation import MAIN, AnnotateParams

LIKELIEST, CHOOSE = "likeliest", "choose"
"""The packaged prompts for a model that scores its options, and for one that generates."""


@dataclass(frozen=True)
class Asking:
    """How an actor asks a judge's chat model; these are also options of such actors in params."""

    key: str
    """The actor, for messages."""
    judge: str = MAIN
    """`main`, the annotator of the section annotate itself, or one of annotate.judges."""
    prompt: str | None = None
    """A name or file; None: the packaged one that fits the model."""
    goal: str | None = None
    """None: the environment's own."""
    per_token: bool = False
    """Compare the mean log-likelihood of the options' tokens instead of the sum."""


class Chooser:
    """Asks the chat model of a judge, which is loaded at the first question.

    Args:
        question: about states, with the options.
    """

    def __init__(self, kind: ChatAnnotator, question: ActionQuestion) -> None:
        self.question = question
        self.model = kind.model_name
        self.unread = 0
        """Number of states for which no answer named an option."""
        self.answered: Callable[[], None] = lambda: None
        """Called after each answer of the model."""
        self._kind, self._id = kind, new_asker()
        self._asker: Asker[str, Choice] | None = None
        self._known: dict[str, DoubleArray] = {}
        question.messages(question.sample)  # raises now if the prompt does not fit the environment

    def probabilities(self, states: Sequence[str]) -> DoubleArray:
        """Return the probability of each option in each state (N, K); uniform if no answer can be read.

        Raises:
            AnnotationError: the model gives no answer, or the budget is spent; answers that came are kept.
        """
        new = [state for state in dict.fromkeys(states) if state not in self._known]
        if new:
            self._asker = asker = self._asker or self._new_asker()
            answered = list(asker.ask(new))  # all: an error about one would drop pending answers, which are paid for
            for state, answers in zip(new, answered, strict=True):
                self._known[state] = self._read(answers, asker)
        return np.array([self._known[state] for state in states])

    def _new_asker(self) -> Asker[str, Choice]:
        budget = Budget(self._kind.params.budget)
        budget.answered = lambda: self.answered()
        return self._kind.asker(self.question, budget, lazy=True)

    def _read(self, answers: Sequence[Answer[Choice]], asker: Asker[str, Choice]) -> DoubleArray:
        values = [answer.value for answer in answers if answer.value is not None]
        if values:
            mean = np.mean(values, axis=0)
            probabilities: DoubleArray = mean / mean.sum()
            return probabilities
        verdicts = {answer.verdict for answer in answers}
        if UNASKED in verdicts:
            raise AnnotationError(
                f"The budget for {self.model} is spent after {len(self._known):,} states. Its answers are kept: raise "
                f"a limit of annotate.budget and run the same command again."
            )
        if FAILED in verdicts:
            reasons = "; ".join(reason for by_key in asker.failures.values() for reason in by_key)
            raise AnnotationError(
                f"{self.model} gave no answer about a state, so none of its options can be chosen ({reasons}). Its "
                "answers are kept: fix that, and run the same command again."
            )
        self.unread += 1
        options = len(self.question.options)
        return np.full(options, 1 / options)

    def estimate(self, states: Sequence[str]) -> str:
        """Estimate the cost of asking in one line, from a sample of states; asks nothing.

        Raises:
            AnnotationError: a prompt is longer than the model takes, so that it could not act.
        """
        sampled = list(dict.fromkeys(states))
        needs = self._kind.estimate_of(self.question, sampled)
        if needs.too_long:
            raise AnnotationError(
                f"{self.model} cannot read its prompts about states ({self.question.prompt.label}): {needs.too_long}. "
                "Use a shorter prompt, or another model."
            )
        times = max(1, needs.distinct // max(len(sampled), 1))  # with several votes each is a question
        length = (
            f", in about {needs.input_tokens / needs.calls:,.0f} tokens ({needs.counted_by})" if needs.calls else ""
        )
        noun = (
            "sampled states"
            if times == 1
            else f"questions about {len(sampled)} sampled state{'s' * (len(sampled) != 1)}"
        )
        asked = f"{needs.calls} of {needs.distinct} {noun} are still to be asked"
        return (
            f"{self.model} is asked about each distinct state {'once' if times == 1 else f'{times} times'}{length}; "
            f"{asked}, cost {needs.costs(needs.price)}"
        )

    @property
    def account(self) -> dict[str, Any]:
        """The model and usage: distinct states, those without a readable answer, calls, tokens, and who asked."""
        facts = {"model": self.model, "states": len(self._known), "unread": self.unread, ASKER: self._id}
        return {**facts, **({**self._asker.usage, ASKED: self._asker.asked_sample} if self._asker else {})}


def chat_of(annotate: AnnotateParams | None, asking: Asking) -> ChatAnnotator:
    """Return the chat model of a judge, checked to be usable on this machine.

    Args:
        annotate: the section of the run, if there is one.

    Raises:
        ParamsError: no judge has that name, or it is not a chat model.
        LaurelError: this machine lacks what the model needs.
    """
    key, judge = asking.key, asking.judge
    if annotate is None:
        raise ParamsError(f"{key}: it asks the chat model of annotate, so it can only be an arm's actor.")
    asked = annotate.judge_named(judge, f"{key}: judge")
    kind = kind_of(asked)
    if not isinstance(kind, ChatAnnotator):
        place = "annotate" if judge == MAIN else f"annotate.judges.{judge}"
        raise ParamsError(
            f"{key}: the annotator {asked.annotator} ({place}) judges texts and chooses nothing. Set {place}.annotator "
            "to huggingface or openai, or name a judge that is one: annotate.judges: {player: {annotator: "
            "huggingface, huggingface: {model: smollm2}}}, and judge: player."
        )
    kind.check_here()
    return kind


def chooser(
    kind: ChatAnnotator,
    ask: type[ActionQuestion],
    adapter: Any,
    options: Sequence[str],
    asking: Asking,
) -> Chooser:
    """Make a chooser.

    Args:
        options: their texts, all different.

    Raises:
        ParamsError: per_token is set, but the model writes answers instead of scoring options.
        PromptError: the prompt does not exist, or does not fit the environment.
        AnnotationError: the prompt does not fit the model.
    """
    scores = ask.load_for(LIKELIEST, options)
    reads_off = not kind.writes(scores)
    loaded = scores if asking.prompt is None and reads_off else ask.load_for(asking.prompt or CHOOSE, options)
    scored = kind.scored(loaded)
    if asking.per_token and not (scored and reads_off):
        raise ParamsError(
            f"{asking.key}: per_token compares likelihoods, which {kind.title} does not give for whole texts."
        )
    return Chooser(kind, ask(loaded, adapter, options, asking.goal, scored=scored, per_token=asking.per_token))
