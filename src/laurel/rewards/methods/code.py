"""Rewards each step with a function written by a language model.

After Eureka (Ma et al. 2023, arXiv 2310.12931): several functions are written in each of a few rounds; each is run on
collected steps, in a sandbox, and is scored; the next round is shown the best one with statistics of its components.
The score is the environment's own return after a short training run, or, cheaper, the rank correlation of the
function's sums over collected episodes with their returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from laurel.data.json_file import write_json
from laurel.envs.base import EnvAdapter
from laurel.envs.numbers import Numbers
from laurel.errors import AnnotationError, DataError, ParamsError, PromptError
from laurel.extras import need
from laurel.feedback.annotator_kind import AnnotatorKind, kind_of
from laurel.params.annotation import MAIN
from laurel.params.fields import Count, NonNegative
from laurel.params.rewards import RewardParams, TrialParams
from laurel.rewards.base import Reward
from laurel.rewards.code import load, program
from laurel.rewards.method import QUALITY, Collected, Inputs, Method, Program, RewardContext
from laurel.rewards.sandbox import PACKAGE

if TYPE_CHECKING:
    from laurel.feedback.chat_annotator import ChatAnnotator
    from laurel.feedback.questions.code import CodeQuestion, Writer


class CodeParams(RewardParams):
    """Settings of code."""

    writer: str = MAIN
    """The writer: main, the annotator of the section annotate, or one of annotate.judges; a chat model, or scripted, a
    simulated writer."""
    rounds: Annotated[int, Field(ge=1, le=100)] = 3
    """Rounds of functions; each round is shown the results of the previous one."""
    samples: Annotated[int, Field(ge=1, le=100)] = 4
    """Number of functions per round."""
    select: Literal["training", "agreement"] = "training"
    """training: select by the environment's return after a short training run; agreement: by the rank correlation with
    the returns of collected episodes, which must differ."""
    trial: TrialParams = TrialParams()
    """select: training only."""
    temperature: NonNegative = 1.0
    """Sampling temperature; with 0 all functions of a round are the same."""
    max_tokens: Count = 1500
    """Maximum number of tokens per answer."""
    prompt: str = "write"
    """Prompt of the first round: a packaged prompt, or your own .jinja file."""
    reflection: str = "reflect"
    """The prompt of later rounds."""
    goal: str | None = None
    """Task in the prompt; null: the environment's own goal."""


class Code(Method[CodeParams]):
    """Stores the best function, and the results of all functions."""

    kind = "code"
    summary = "a function written by the annotator"
    Settings = CodeParams
    asks = True
    reads = ("trajectories",)

    def __init__(self, settings: CodeParams) -> None:
        super().__init__(settings)
        if settings.writer != MAIN:
            self.summary = f"a function written by the judge {settings.writer}"

    def asked_in_fit(self) -> str:
        return self.settings.writer

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        settings = self.settings
        need(PACKAGE)
        if settings.select == "training":
            _check_trial(settings.trial)
        kind = _kind(settings, context)
        chat = _chat(kind, settings)
        if chat is None:
            _other_writer(kind, settings, adapter, 0)
        else:
            for question in _questions(settings, adapter):
                question.messages(question.sample)
        return None

    def estimate(self, context: RewardContext, collected: Collected | None, adapter: EnvAdapter) -> str:
        from laurel.feedback.questions.code import Assignment

        settings = self.settings
        kind = _kind(settings, context)
        chat = _chat(kind, settings)
        agents = f"{settings.trial.seeds} agent{'s' * (settings.trial.seeds > 1)}"
        trained = f", each tried by training {agents} for {settings.trial.steps:,} steps"
        functions = f"{settings.samples} function{'s' * (settings.samples > 1)}"
        rounds = f"{settings.rounds} round{'s' * (settings.rounds > 1)} of {functions}"
        asked = f"{rounds}{trained if settings.select == 'training' else ''}"
        if chat is None:
            writer = _other_writer(kind, settings, adapter, 0)
            return f"{writer.name} writes {asked}, at no cost{f'; {writer.remark}' if writer.remark else ''}"
        numbers = Numbers(adapter)
        first_round = chat.estimate_of(
            _questions(settings, adapter)[0], [Assignment(numbers.observation, numbers.action)]
        )
        cost = first_round.costs(first_round.price)
        # What later rounds show is not known yet.
        number = first_round.calls + (settings.rounds - 1) * first_round.distinct
        calls = f"{number:,} call{'s' * (number != 1)} at most without follow-ups"
        later = "; later rounds show the best function, too, so each costs more" if settings.rounds > 1 else ""
        return f"{chat.model_name} writes {asked}: {calls}, cost of the first round {cost}{later}"

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.rewards.code_search import ChatWriter, Sample, Search, save

        assert inputs.trajectories is not None
        settings, numbers = self.settings, Numbers(adapter)
        sample = Sample.read(inputs.trajectories, numbers)
        if settings.select == "agreement" and np.ptp(sample.returns) == 0:
            raise DataError(
                "rewards of kind code: select is agreement, but all collected episodes have the same return, so "
                "functions cannot be ranked. Set select to training, or collect with other policies."
            )
        kind = _kind(settings, context)
        chat = _chat(kind, settings)
        writer: Writer
        if chat is None:
            writer = _other_writer(kind, settings, adapter, seed)
        else:
            writer = ChatWriter(chat, *_questions(settings, adapter), context.account)
        trial = None
        if settings.select == "training":
            assert inputs.trial is not None, "train-reward gives one"
            trial = partial(inputs.trial, settings=settings.trial)
        search = Search(numbers, sample, writer, trial, settings.trial.shaping.quantile)
        best, candidates = search.run(settings.rounds)
        write_json(place / QUALITY, save(place, search, best, candidates))

    def notes(self, name: str, qualities: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Yield notes on functions that were taken without a score."""
        reason = (
            f"too few episodes ended in so short a training. Raise rewards.{name}.trial.steps, or lower "
            "trial.ppo.n_envs"
            if self.settings.select == "training"
            else "no function pays one collected episode more than another"
        )
        for quality in qualities:
            if quality["score"] is None:
                yield (
                    f"The function of the reward {name} was taken without a score ({quality['chosen_by']}), so it may "
                    f"be no better than the others: {reason}."
                )

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        return load(place, adapter, quantile)

    def program(self, place: Path) -> Program:
        return program(place)


def _check_trial(trial: TrialParams) -> None:
    """Refuse trials that end with their first update: they measure the untrained agent, whatever the function."""
    update = trial.ppo.n_envs * trial.ppo.n_steps
    if trial.steps <= update:
        raise ParamsError(
            f"rewards of kind code: trial.steps is {trial.steps:,}, but agents learn nothing before {update:,} steps "
            "(trial.ppo.n_envs x n_steps), so that all functions would have the same score. Raise trial.steps, or "
            "lower n_envs or n_steps."
        )


def _kind(settings: CodeParams, context: RewardContext) -> AnnotatorKind:
    return kind_of(context.annotate.judge_named(settings.writer, "rewards of kind code: writer"))


def _chat(kind: AnnotatorKind, settings: CodeParams) -> ChatAnnotator | None:
    """Return the chat model that writes; None if the annotator is not one."""
    from laurel.feedback.chat_annotator import ChatAnnotator

    if isinstance(kind, ChatAnnotator):
        return kind.sampled(settings.samples, settings.temperature, settings.max_tokens)
    return None


def _other_writer(kind: AnnotatorKind, settings: CodeParams, adapter: EnvAdapter, seed: int) -> Writer:
    """Return the writer of an annotator that is not a chat model.

    Raises:
        AnnotationError: it has none.
    """
    writer = kind.code_writer(adapter, seed, settings.samples)
    if writer is None:
        raise AnnotationError(
            f"rewards of kind code: the annotator {kind.params.annotator} writes no code. Name a chat model (openai, "
            "huggingface) in annotate.annotator, or as one of annotate.judges and as the reward's writer; scripted is "
            "a simulated writer."
        )
    return writer


def _questions(settings: CodeParams, adapter: EnvAdapter) -> tuple[CodeQuestion, CodeQuestion]:
    from laurel.feedback.questions.code import CodeQuestion

    first, later = (CodeQuestion.load_prompt(name) for name in (settings.prompt, settings.reflection))
    if not {"best", "feedback"} <= later.used:
        raise PromptError(
            f"prompt {later.name}: it must show the best function and the results: use the slots best and feedback."
        )
    return CodeQuestion(first, adapter, settings.goal), CodeQuestion(later, adapter, settings.goal)


METHOD = Code
