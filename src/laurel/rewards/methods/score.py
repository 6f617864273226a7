"""Rewards captions with a judge's scores of groups of captions, after RULER (OpenPipe's ART).

Each question shows a group of texts and asks for a score of each, so that one call covers k texts instead of two.
Each text is in several groups, which puts the scores on one scale. Captions without a score, such as those that are in
no segment, get the mean reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from laurel.arrays import DoubleArray, FloatArray, IntArray
from laurel.data.captions import Segments, read_segments, read_vocabulary
from laurel.data.json_file import write_json
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.chat_annotator import ChatAnnotator, judge_of_texts
from laurel.feedback.questions.score import ScoreQuestion
from laurel.feedback.rates import Rate
from laurel.feedback.text_judge import TextJudge
from laurel.params.fields import Count
from laurel.params.rewards import RewardParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import ScoredCaptions
from laurel.rewards.method import LATER, QUALITY, Collected, Inputs, Method, PayTable, RewardContext
from laurel.rewards.normalizer import Normalizer
from laurel.rewards.text_pairs import paired_rate
from laurel.seeding import generator


class ScoreParams(RewardParams):
    """Settings of score."""

    size: Annotated[int, Field(ge=1, le=50)] = 4
    """Texts per group; 1: each text alone."""
    n_groups: Count | None = None
    """Number of groups; null: enough for each text to be in four. A chat model is asked about each group once per order
    (annotate.language_model.both_orders) and vote."""
    prompt: str = "zero_to_ten"
    """Prompt of a chat model; one of `laurel prompt list`, or a .jinja file of your own."""
    goal: str | None = None
    """Task in the prompt of a chat model; null: the environment's own goal."""


ROUNDS = 4
"""Groups per text if n_groups is null."""
SHRINKAGE = 1.0
"""Prior weight, in texts, of an offset of 0 for a group's scores."""
SWEEPS = 200
COMPARED = 500
"""Number of most frequent captions whose pairs are compared with the environment's progress."""
Scores = DoubleArray


def drawn_groups(n: int, size: int, n_groups: int | None, seed: int) -> IntArray:
    """Draw groups of distinct texts (G, size), so that all texts are in about the same number of groups.

    Args:
        size: of a group; n if there are fewer texts.
        n_groups: G; None: each text is in ROUNDS groups.
    """
    size = min(size, n)
    rng = generator(seed, "score groups")
    rounds = ROUNDS if n_groups is None else -(-n_groups * size // n)
    groups = []
    for _ in range(rounds):
        order = rng.permutation(n)
        left = order[n - n % size :]
        groups += [*order[: n - n % size].reshape(-1, size)]
        if len(left):
            groups.append(np.concatenate([left, order[: size - len(left)]]))
    return np.array(groups[:n_groups], dtype=np.int64).reshape(-1, size)


def on_one_scale(groups: IntArray, scores: Scores, n: int) -> Scores:
    """Return a score (N,) per text, NaN without any score.

    A score is modelled as the text's own score plus an offset of its group, since a judge compares the texts of a
    group:

        minimise  sum (s_gi - u_i - b_g)^2 + SHRINKAGE sum b_g^2

    by coordinate descent. In groups of one, offsets cannot be distinguished from scores: b is 0.

    Args:
        groups: (G, size) text numbers.
        scores: (G, size), NaN if there was no answer.
    """
    finite = np.isfinite(scores).all(axis=1)
    groups, scores = groups[finite], scores[finite]
    size = groups.shape[1]
    counts = np.bincount(groups.reshape(-1), minlength=n)
    score_of, offset = np.zeros(n), np.zeros((len(groups), 1))
    for _ in range(SWEEPS if size > 1 else 1):
        sums = np.bincount(groups.reshape(-1), weights=(scores - offset).reshape(-1), minlength=n)
        score_of = sums / np.maximum(counts, 1)
        if size > 1:
            offset = (scores - score_of[groups]).sum(axis=1, keepdims=True) / (size + SHRINKAGE)
    return np.where(counts > 0, score_of, np.nan)


def question_of(settings: ScoreParams, context: RewardContext, adapter: EnvAdapter, size: int) -> ScoreQuestion:
    """Return the question that a chat model is asked.

    Raises:
        PromptError: the prompt does not exist, or does not fit the environment.
    """
    orders = context.annotate.language_model.both_orders
    return ScoreQuestion(
        ScoreQuestion.load_prompt(settings.prompt), adapter, settings.goal, size=size, both_orders=orders
    )


def score_judge(
    settings: ScoreParams, context: RewardContext, adapter: EnvAdapter, seed: int = 0, captions: Sequence[str] = ()
) -> ChatAnnotator | TextJudge:
    """Return the judge that scores.

    Raises:
        AnnotationError: the annotator only judges pairs.
    """
    return judge_of_texts(context.annotate, adapter, context.key(settings), "gives no scores", seed, captions)


@dataclass(frozen=True)
class Scored:
    """A judge's scores of G groups."""

    judge: str
    simulated: bool
    scores: Scores
    """(G, size), NaN if there was no answer."""
    questions: int
    """Without follow-ups."""


def asked(
    texts: Sequence[str],
    groups: IntArray,
    settings: ScoreParams,
    context: RewardContext,
    adapter: EnvAdapter,
    seed: int,
    captions: Sequence[str] = (),
) -> Scored:
    """Score groups of texts, by a chat model or another annotator (`laurel.feedback.text_judge`).

    Args:
        captions: of single steps, which texts may consist of.
    """
    judge = score_judge(settings, context, adapter, seed, captions)
    if not isinstance(judge, ChatAnnotator):
        simulated = kind_of(context.annotate).simulated
        return Scored(judge.name, simulated, judge.scores(texts, groups), len(groups))
    items = [tuple(texts[i] for i in group) for group in groups.tolist()]
    question = question_of(settings, context, adapter, groups.shape[1])
    scores = np.full(groups.shape, np.nan)
    for number, answers in enumerate(judge.answers(question, items, context.key(settings), context.account)):
        values = [answer.value for answer in answers if answer.value is not None]
        if 2 * len(values) > len(answers):
            scores[number] = np.mean(values, axis=0)
    questions = len(groups) * question.variants * context.annotate.language_model.votes
    return Scored(judge.model_name, False, scores, questions)


def caption_scores(segments: Segments, scores: Scores, n_captions: int) -> FloatArray:
    """Return a score (V,) per caption: the mean over scored segments that contain it, NaN if there is none."""
    rows, places = np.nonzero((segments.members >= 0) & np.isfinite(scores)[:, None])
    ids = segments.members[rows, places]
    counts = np.bincount(ids, minlength=n_captions)
    sums = np.bincount(ids, weights=scores[rows], minlength=n_captions)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).astype(np.float32)


def _scored(texts: Sequence[str], values: FloatArray) -> ScoredCaptions:
    """Normalise the scores (V,) of captions over those that have one; the others, NaN, are rewarded with the mean."""
    known = ~np.isnan(values)
    normalizer = Normalizer.of(values[known] if known.any() else np.zeros(1))
    rewards = np.where(known, normalizer(values), 0.0)
    return ScoredCaptions(dict(zip(texts, rewards.tolist(), strict=True)), normalizer)


def right_order(texts: Sequence[str], values: FloatArray, counts: IntArray, adapter: EnvAdapter) -> Rate | None:
    """Return the share of caption pairs with different environment progress that scores put in the right order.

    None if the environment has no progress, or the same for all. Equal scores count as wrong, captions without a score
    (NaN) not at all.
    """
    if adapter.oracle("") is None:
        return None
    order = np.argsort(-counts, kind="stable")
    order = order[~np.isnan(values[order])][:COMPARED]
    progress = np.array([adapter.oracle(texts[i]) or 0.0 for i in order])
    first, second = np.triu_indices(len(order), 1)
    differs = progress[first] != progress[second]
    first, second = first[differs], second[differs]
    right = (values[order][first] - values[order][second]) * (progress[first] - progress[second]) > 0
    return paired_rate(right.astype(np.float64), first, second)


class Score(Method[ScoreParams]):
    """Stores a score for each caption."""

    kind = "score"
    summary = "the annotator's scores of groups of captions"
    Settings = ScoreParams
    asks = True
    reads = ("captions",)

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        kind = score_judge(self.settings, context, adapter)
        if isinstance(kind, ChatAnnotator):
            kind.check_question(question_of(self.settings, context, adapter, 1))
        else:
            kind_of(context.annotate).check(adapter)
        return None

    def estimate(self, context: RewardContext, collected: Collected | None, adapter: EnvAdapter) -> str | None:
        settings, kind = self.settings, score_judge(self.settings, context, adapter)
        if not isinstance(kind, ChatAnnotator):
            return None
        if collected is None:
            return f"{kind.model_name} is asked for scores of captions: {LATER}"
        texts = read_segments(collected.captions).texts
        groups = drawn_groups(len(texts), settings.size, settings.n_groups, 0)
        items = [tuple(texts[i] for i in group) for group in groups.tolist()]
        return kind.asked(question_of(settings, context, adapter, groups.shape[1]), items, "is asked for scores")

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        settings = self.settings
        vocabulary, segments = read_vocabulary(inputs.captions), read_segments(inputs.captions)
        if not segments.texts:
            raise DataError(f"{inputs.captions}: holds no caption to score. Collect more steps (collect.steps).")
        groups = drawn_groups(len(segments), settings.size, settings.n_groups, seed)
        answers = asked(segments.texts, groups, settings, context, adapter, seed, vocabulary.texts)
        scores = on_one_scale(groups, answers.scores, len(segments))
        values = caption_scores(segments, scores, len(vocabulary))
        _scored(vocabulary.texts, values).save(place, counts=vocabulary.counts.tolist())
        quality: dict[str, Any] = {
            "judge": answers.judge,
            "simulated": answers.simulated,
            "questions": answers.questions,
            "groups": len(groups),
            "unanswered": int((answers.scores != answers.scores).all(axis=1).sum()),
            "unscored": int((scores != scores).sum()),
            "right_order": right_order(vocabulary.texts, values, vocabulary.counts, adapter),
        }
        write_json(place / QUALITY, quality)

    def check_shuffled(self, name: str, context: RewardContext, adapter: EnvAdapter) -> str | None:
        return None

    def fit_shuffled(self, context: RewardContext, inputs: Inputs, made: Path, seed: int, place: Path) -> None:
        """Permute the scores over captions; nothing is asked again."""
        scored, config = ScoredCaptions.load(made)
        scored.shuffled(seed).save(place, counts=config["counts"])

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        scored, _ = ScoredCaptions.load(place)
        return scored.reward(quantile, lambda texts: np.full(len(texts), scored.normalizer.mean, dtype=np.float32))

    def table(self, place: Path, quantile: float) -> PayTable:
        return PayTable.of_captions(place, quantile)


METHOD = Score
