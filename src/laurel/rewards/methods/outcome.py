"""Rewards an episode at its end, by the answer to a yes/no question: did it reach the goal?

After Kwon et al. 2023, "Reward Design with Language Models" (arXiv 2303.00001). An episode's outcome consists of its
last captions. Each distinct outcome that collection met, or that the environment lists, is asked about once, after
examples if there are any; the table of answers is the reward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from laurel.arrays import FloatArray
from laurel.data.captions import read_captions, read_vocabulary
from laurel.data.json_file import write_json
from laurel.data.parquet import read_table, write_table
from laurel.data.trajectories import read_trajectories
from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import collapse
from laurel.errors import DataError
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.annotators.scripted import ScriptedTexts
from laurel.feedback.chat_annotator import ChatAnnotator, judge_of_texts
from laurel.feedback.questions.outcome import Example, OutcomeQuestion
from laurel.feedback.rates import rate
from laurel.feedback.text_judge import TextJudge
from laurel.feedback.yes_no import probability
from laurel.llm.encoder import load_encoder
from laurel.params.annotation import MAIN
from laurel.params.judges import ScriptedParams
from laurel.params.rewards import OutcomeParams
from laurel.rewards.base import UNPAID, Reward, Steps
from laurel.rewards.functions import permuted
from laurel.rewards.logistic import classifier
from laurel.rewards.method import LATER, QUALITY, Collected, Inputs, Method, PayTable, RewardContext
from laurel.seeding import generator

TABLE = "outcomes.parquet"


@dataclass(frozen=True)
class Outcomes:
    """V distinct outcomes."""

    texts: Sequence[str]
    counts: Sequence[int]
    """Number of collected episodes with this outcome; 0 for listed outcomes that were not met."""
    truth: Sequence[bool | None]
    """Whether most of these episodes were successful in the environment; None if unknown."""


def collected_outcomes(trajectories: Path, captions: Path, adapter: EnvAdapter, length: int) -> Outcomes:
    """Return the outcomes of collected episodes, in order of appearance, followed by the other listed ones.

    Raises:
        DataError: an input is missing or damaged, or no episode ended.
    """
    vocabulary = read_vocabulary(captions)
    counts: dict[str, int] = {}
    wins: dict[str, int] = {}
    known = True
    for (transitions, position), ids in zip(read_trajectories(trajectories), read_captions(captions), strict=True):
        returns, last, episode = 0.0, deque[int](maxlen=length), -1
        for i in range(len(ids)):
            if position.episode_id[i] != episode:
                returns, episode = 0.0, int(position.episode_id[i])
                last.clear()
            returns += float(transitions.reward[i])
            if ids[i] >= 0:
                last.append(int(ids[i]))
            if not (transitions.terminated[i] or transitions.truncated[i]) or not last:
                continue
            text = collapse([vocabulary.texts[caption_id] for caption_id in last])
            solved = adapter.succeeded(np.array([returns], np.float32), transitions[i : i + 1])
            known = known and solved is not None
            counts[text] = counts.get(text, 0) + 1
            wins[text] = wins.get(text, 0) + (solved is not None and bool(solved[0]))
    if not counts:
        raise DataError(f"{trajectories}: no episode ended, so there is no outcome to ask about. Raise collect.steps.")
    truth = {text: 2 * wins[text] > counts[text] if known else None for text in counts}
    if length == 1:
        unmet = [vocabulary.texts[i] for i in np.flatnonzero(vocabulary.counts == 0).tolist()]
        counts |= {text: 0 for text in unmet if text not in counts}
        truth |= {text: None for text in unmet if text not in truth}
    return Outcomes(list(counts), list(counts.values()), [truth[text] for text in counts])


@dataclass(frozen=True)
class OutcomeTable:
    """The artefact: the answers about outcomes."""

    answers: Mapping[str, float]
    """Probability of success, from 0 to 1; outcomes without an answer that can be read are left out."""
    counts: Sequence[int]

    def shuffled(self, seed: int) -> OutcomeTable:
        """Return the same answers permuted over outcomes, by a seed."""
        return replace(self, answers=permuted(self.answers, seed))

    def save(self, place: Path) -> None:
        """Write it into a directory."""
        columns = {"text": list(self.answers), "p": list(self.answers.values()), "count": list(self.counts)}
        write_table(place / TABLE, pa.table(columns, schema=_schema()))

    @classmethod
    def load(cls, place: Path) -> OutcomeTable:
        """Read what `save` wrote.

        Raises:
            DataError: the file is missing or damaged.
        """
        table = read_table(place / TABLE, _schema(), "train-reward")
        answers = dict(zip(table["text"].to_pylist(), table["p"].to_pylist(), strict=True))
        return cls(answers, table["count"].to_pylist())


def _schema() -> Any:
    fields = (("text", pa.string()), ("p", pa.float64()), ("count", pa.int64()))
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


class OutcomeReward:
    """Rewards the last step of each episode with the probability that its outcome is a success."""

    threshold, unseen = 0.0, 0

    def __init__(self, answers: Mapping[str, float], length: int) -> None:
        self._answers = answers
        self._length = length
        self._unmet: set[str] = set()
        self.begin(0)

    @property
    def unpaid(self) -> int:
        """Number of outcomes met that have no answer, and so no reward."""
        return len(self._unmet)

    def begin(self, n_envs: int) -> None:
        """Forget what came before: all environments begin new episodes."""
        self._last = [deque[int](maxlen=self._length) for _ in range(n_envs)]

    def pay(self, steps: Steps) -> FloatArray:
        """Return the steps' rewards (T, N), UNPAID except at the ends of episodes."""
        paid = np.full(steps.valid.shape, UNPAID)
        ended = steps.terminated | steps.truncated
        for t, n in zip(*np.nonzero(steps.valid | ended), strict=True):
            if steps.captions[t, n] >= 0:
                self._last[n].append(int(steps.captions[t, n]))
            if not steps.valid[t, n]:
                self._last[n].clear()
            elif ended[t, n]:
                text = collapse([steps.texts[caption_id] for caption_id in self._last[n]])
                if text in self._answers:
                    paid[t, n] = self._answers[text]
                else:
                    self._unmet.add(text)
                self._last[n].clear()
        return paid


class OutcomeJudge(ABC):
    """Judges whether outcomes are the goal."""

    name: str
    simulated = False
    """Whether the answers come from the environment itself."""
    shown: Collection[str] = ()
    """Outcomes whose answers are in its question, so that they say nothing about its accuracy."""

    def named(self, labels: int) -> str:
        """Return its name in reports, if there were so many labels."""
        return self.name

    def check(self) -> str | None:
        """Return a sentence on why it cannot judge here; None if it can."""
        return None

    def estimate(self, texts: Sequence[str] | None) -> str | None:
        """Return a line with the maximum cost of asking about outcomes; None if no chat model is asked."""
        return None

    @abstractmethod
    def answers(self, texts: Sequence[str], labelled: Mapping[str, bool]) -> list[float | None]:
        """Return the probability of success for each text, None if there is no answer.

        Args:
            texts: outcomes to judge.
            labelled: outcomes whose true answer it may use.
        """


class ChatJudge(OutcomeJudge):
    """A chat model that is asked a question."""

    def __init__(
        self, kind: ChatAnnotator, settings: OutcomeParams, context: RewardContext, adapter: EnvAdapter
    ) -> None:
        self._kind, self._settings, self._context, self._adapter = kind, settings, context, adapter
        self.name = kind.model_name
        self.shown = {example.episode for example in settings.examples}

    def check(self) -> None:
        question = self._question(())
        question.messages(question.sample)

    def estimate(self, texts: Sequence[str] | None) -> str:
        if texts is None:
            return f"{self.name} is asked about each distinct outcome of the collected episodes: {LATER}"
        longest = sorted(texts, key=len, reverse=True)[: self._settings.labels]  # which ones are shown is drawn later
        question = self._question([Example(text, reached=True) for text in longest])
        return self._kind.asked(question, texts, "is asked about outcomes")

    def answers(self, texts: Sequence[str], labelled: Mapping[str, bool]) -> list[float | None]:
        shown = [Example(text, reached) for text, reached in labelled.items()]
        key = self._context.key(self._settings)
        asked = self._kind.answers(self._question(shown), texts, key, self._context.account)
        return [probability(answers) for answers in asked]

    def _question(self, extra: Sequence[Example]) -> OutcomeQuestion:
        settings = self._settings
        prompt = OutcomeQuestion.load_prompt(settings.prompt)
        examples = [*(Example(example.episode, example.reached, example.why) for example in settings.examples), *extra]
        scored = self._kind.scored(prompt)
        return OutcomeQuestion(prompt, self._adapter, settings.goal, scored=scored, examples=examples)


class OutcomeTexts(OutcomeJudge):
    """An annotator that is not a chat model, or the environment's own success."""

    def __init__(self, judge: TextJudge, name: str, simulated: bool) -> None:
        self._judge, self.name, self.simulated = judge, name, simulated

    def check(self) -> str | None:
        return self._judge.without_outcomes()

    def answers(self, texts: Sequence[str], labelled: Mapping[str, bool]) -> list[float | None]:
        return [float(reached) for reached in self._judge.reached(texts)]


class SupervisedJudge(OutcomeJudge):
    """Logistic regression on embeddings of labelled outcomes."""

    def __init__(self, settings: OutcomeParams, context: RewardContext) -> None:
        self._settings, self._model = settings, context.annotate.embedding.model
        self.name = "supervised"

    def named(self, labels: int) -> str:
        return f"{self.name} ({labels} label{'s' * (labels != 1)})"

    def check(self) -> str | None:
        return None if self._settings.labels else "its judge is supervised, so labels must be 1 or more."

    def answers(self, texts: Sequence[str], labelled: Mapping[str, bool]) -> list[float | None]:
        if not labelled:
            raise DataError(
                "rewards of kind outcome: judge is supervised, but the environment does not say of the collected "
                "episodes which ones succeeded, so there are no true answers to learn from."
            )
        if len({*labelled.values()}) < 2:  # there is only one class
            return [float(all(labelled.values()))] * len(texts)
        encoder = load_encoder(self._model)
        rows = encoder.encode([*labelled, *texts]).astype(np.float64)
        known, asked = rows[: len(labelled)], rows[len(labelled) :]
        weights = classifier(known, np.array([*labelled.values()], dtype=np.float64))
        return [float(value > 0) for value in np.column_stack([asked, np.ones(len(asked))]) @ weights]


def outcome_judge(settings: OutcomeParams, context: RewardContext, adapter: EnvAdapter, seed: int = 0) -> OutcomeJudge:
    """Return the judge that the settings name.

    Raises:
        AnnotationError: the annotator only judges pairs.
    """
    if settings.judge == "supervised":
        return SupervisedJudge(settings, context)
    if settings.judge == "truth":
        return OutcomeTexts(ScriptedTexts(ScriptedParams(), adapter, seed, ()), "truth", simulated=True)
    cannot = "cannot judge whether an outcome is the goal"
    judge = judge_of_texts(context.annotate, adapter, context.key(settings), cannot, seed)
    if isinstance(judge, ChatAnnotator):
        return ChatJudge(judge, settings, context, adapter)
    return OutcomeTexts(judge, judge.name, kind_of(context.annotate).simulated)


def answered(
    outcomes: Outcomes, settings: OutcomeParams, context: RewardContext, adapter: EnvAdapter, seed: int
) -> tuple[OutcomeTable, dict[str, Any]]:
    """Judge all outcomes; return the answers, and their agreement with the environment."""
    judge = outcome_judge(settings, context, adapter, seed)
    truth = {text: known for text, known in zip(outcomes.texts, outcomes.truth, strict=True) if known is not None}
    if adapter.success_captions():  # then the truth is also known for outcomes that were never met
        truth = {text: adapter.says_success(text) for text in outcomes.texts}
    drawn = generator(seed, "outcome labels").permutation(len(truth))[: settings.labels]
    labelled = {text: truth[text] for text in (list(truth)[i] for i in drawn)}
    asked = [text for text in outcomes.texts if text not in labelled]
    verdicts = dict(zip(asked, judge.answers(asked, labelled) if asked else (), strict=True))
    answers = {text: p for text, p in verdicts.items() if p is not None} | {
        text: float(labelled[text]) for text in labelled
    }
    counts = dict(zip(outcomes.texts, outcomes.counts, strict=True))
    kept = {text: answers[text] for text in outcomes.texts if text in answers}
    # Neither yes nor no (1/2) counts as wrong, whatever the outcome.
    judged = [text for text in asked if text in kept and text in truth and text not in judge.shown]
    right = [kept[text] != 0.5 and (kept[text] > 0.5) == truth[text] for text in judged]
    quality: dict[str, Any] = {
        "judge": judge.named(len(labelled)),
        "simulated": judge.simulated,
        "outcomes": len(outcomes.texts),
        "labelled": len(labelled),
        "unanswered": len(outcomes.texts) - len(kept),
        "yes": sum(p > 0.5 for p in kept.values()) / max(len(kept), 1),
        "accuracy": rate(sum(right), len(right)) if right else None,
    }
    return OutcomeTable(kept, [counts[text] for text in kept]), quality


class Outcome(Method[OutcomeParams]):
    """Stores a probability of success for each outcome."""

    kind = "outcome"
    summary = "at an episode's end, whether its outcome is the goal by the annotator"
    Settings = OutcomeParams
    asks = True
    of_endings = True
    reads = ("trajectories", "captions")

    def __init__(self, settings: OutcomeParams) -> None:
        super().__init__(settings)
        if settings.judge != "annotator":
            judge = {"supervised": "a classifier of true answers", "truth": "the environment itself"}[settings.judge]
            self.summary = f"at an episode's end, whether its outcome is the goal by {judge}"
        if settings.judge == "truth":
            self.role = "bound"

    def asked_in_fit(self) -> str | None:
        return MAIN if self.settings.judge == "annotator" else None

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        reason = outcome_judge(self.settings, context, adapter).check()
        if reason is None and self.settings.labels and not (adapter.success_captions() or adapter.defines_success()):
            return f"{adapter.env_id} does not say which episodes succeed, so there are no true answers for labels."
        return reason

    def estimate(self, context: RewardContext, collected: Collected | None, adapter: EnvAdapter) -> str | None:
        settings, texts = self.settings, None
        if collected is not None:
            texts = collected_outcomes(collected.trajectories, collected.captions, adapter, settings.captions).texts
        return outcome_judge(settings, context, adapter).estimate(texts)

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        assert inputs.trajectories is not None
        settings = self.settings
        outcomes = collected_outcomes(inputs.trajectories, inputs.captions, adapter, settings.captions)
        table, quality = answered(outcomes, settings, context, adapter, seed)
        table.save(place)
        write_json(place / QUALITY, quality)

    def check_shuffled(self, name: str, context: RewardContext, adapter: EnvAdapter) -> str | None:
        return None

    def fit_shuffled(self, context: RewardContext, inputs: Inputs, made: Path, seed: int, place: Path) -> None:
        """Permute the answers over outcomes; nothing is asked again."""
        OutcomeTable.load(made).shuffled(seed).save(place)

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        return OutcomeReward(OutcomeTable.load(place).answers, self.settings.captions)

    def table(self, place: Path, quantile: float) -> PayTable:
        outcomes = OutcomeTable.load(place)
        values = np.array([outcomes.answers[text] for text in outcomes.answers], dtype=np.float32)
        unknown, counts = np.zeros_like(values), np.array(outcomes.counts)
        return PayTable(list(outcomes.answers), values, unknown, counts, 0.0, normalised=False, of="outcome")


METHOD = Outcome
