"""Comparison: a sentence encoder's utility as reward directly, without pairs or a reward model."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from laurel.arrays import FloatArray
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotators.embedding import EmbeddingAnnotator
from laurel.feedback.goals import embedding_goals
from laurel.params.judges import EmbeddingParams
from laurel.params.rewards import RewardParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import ScoredCaptions
from laurel.rewards.method import Inputs, Method, RewardContext


class SimilarityParams(RewardParams):
    """Settings of similarity."""

    embedding: EmbeddingParams | None = None
    """The encoder and the goal; null: annotate.embedding."""


class Similarity(Method[SimilarityParams]):
    """Rewards captions with the utility of the embedding annotator."""

    kind = "similarity"
    summary = "the sentence encoder's similarity to the goal, without pairs or a reward model"
    Settings = SimilarityParams
    reads = ("captions",)

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        embedding_goals(self._embedding(context), adapter)
        return None

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.data.captions import read_vocabulary

        embedding = self._embedding(context)
        texts = list(read_vocabulary(inputs.captions).texts)
        scored = ScoredCaptions.of(texts, utilities(texts, embedding, adapter))
        scored.save(place, embedding=embedding.model_dump(mode="json"))

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        scored, config = ScoredCaptions.load(place)
        embedding = EmbeddingParams.model_validate(config["embedding"])
        load = cache(lambda: EmbeddingAnnotator.load(embedding, adapter))  # only for captions that were not collected
        return scored.reward(quantile, lambda texts: load().utility(list(texts)).astype(np.float32))

    def _embedding(self, context: RewardContext) -> EmbeddingParams:
        return self.settings.embedding or context.annotate.embedding


def utilities(texts: list[str], params: EmbeddingParams, adapter: EnvAdapter) -> FloatArray:
    """Return the sentence encoder's utility of each text (N,), before normalisation."""
    return EmbeddingAnnotator.load(params, adapter).utility(texts).astype(np.float32)


METHOD = Similarity
