"""Pays captions what a judge scores them, in groups that it compares at once, after RULER (OpenPipe's ART).

Each question shows a group of texts and asks for a number for each, so that k texts take one call where pairs take one
for two. Texts stand in several groups, which puts the scores on one scale. What collection never met is paid as the
mean caption, since no judge was asked about it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from laurel.data.json_file import write_json
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError
from laurel.feedback.annotator_kind import kind_of
from laurel.params.fields import Count
from laurel.params.rewards import RewardParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import ScoredCaptions
from laurel.rewards.method import QUALITY, Inputs, Method, PayTable, RewardContext


class ScoreParams(RewardParams):
    """Settings of score."""

    size: Annotated[int, Field(ge=1, le=50)] = 4
    """Texts that are scored at once; 1: each by itself."""
    n_groups: Count | None = None
    """Groups in all; null: as many as each text stands in four. A chat model is asked about each group once for each
    order (annotate.language_model.both_orders) and vote."""
    prompt: str = "zero_to_ten"
    """Prompt of a chat model; one of `laurel prompt list`, or a .jinja file of your own."""
    goal: str | None = None
    """The task that a chat model is given; null: the environment's own goal."""


class Score(Method[ScoreParams]):
    """Keeps a score for each caption."""

    kind = "score"
    summary = "a score that the annotator gave, in groups of captions"
    Settings = ScoreParams
    asks = True
    reads = ("captions",)

    def check(self, params: RewardContext, adapter: EnvAdapter) -> str | None:
        from laurel.rewards.scores import judge_of, question_of

        own = self.settings
        if judge_of(params) is None:
            kind_of(params.annotate).check(adapter)
        else:
            question = question_of(own.prompt, own.goal, params, adapter, 1)
            question.messages(question.sample)
        return None

    def estimate(self, params: RewardContext, adapter: EnvAdapter, captions: Path) -> str | None:
        from laurel.data.captions import read_segments
        from laurel.rewards.scores import drawn_groups, judge_of, question_of

        own, kind = self.settings, judge_of(params)
        if kind is None:
            return None
        texts = read_segments(captions).texts
        groups = drawn_groups(len(texts), own.size, own.n_groups, 0)
        items = [tuple(texts[i] for i in group) for group in groups.tolist()]
        found = kind.estimate_of(question_of(own.prompt, own.goal, params, adapter, groups.shape[1]), items)
        cost = found.costs(found.price)
        return f"{kind.identity()[0].model} is asked for scores: {found.calls:,} calls at most, cost {cost}"

    def fit(self, params: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.data.captions import read_segments, read_vocabulary
        from laurel.rewards.scores import asked, caption_scores, drawn_groups, on_one_scale, right_order

        own = self.settings
        vocabulary, segments = read_vocabulary(inputs.captions), read_segments(inputs.captions)
        if not segments.texts:
            raise DataError(f"{inputs.captions}: holds no caption to score. Collect more steps (collect.steps).")
        groups = drawn_groups(len(segments), own.size, own.n_groups, seed)
        answers = asked(segments.texts, groups, own.prompt, own.goal, params, adapter, seed, vocabulary.texts)
        scores = on_one_scale(groups, answers.scores, len(segments))
        values = caption_scores(segments, scores, len(vocabulary))
        ScoredCaptions.of(vocabulary.texts, values).save(place, counts=vocabulary.counts.tolist())
        quality: dict[str, Any] = {
            "judge": answers.judge,
            "simulated": answers.simulated,
            "calls": answers.calls,
            "groups": len(groups),
            "unanswered": int((answers.scores != answers.scores).all(axis=1).sum()),
            "unscored": int((scores != scores).sum()),
            "right_order": right_order(vocabulary.texts, values, vocabulary.counts, adapter),
        }
        write_json(place / QUALITY, quality)

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        scored, _ = ScoredCaptions.load(place)
        return scored.reward(quantile, lambda texts: np.full(len(texts), scored.normalizer.mean, dtype=np.float32))

    def table(self, place: Path, quantile: float) -> PayTable:
        return PayTable.of_captions(place, quantile)


METHOD = Score
