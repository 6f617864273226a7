"""Fits an online reward to the labels so far, by ranking, classification, or a table of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from laurel.arrays import DoubleArray, FloatArray, IntArray
from laurel.llm.encoder import SentenceEncoder, load_encoder
from laurel.params.rewards import OnlineParams, PreferenceParams
from laurel.rewards.base import UNPAID
from laurel.rewards.bradley_terry import Comparisons, fit
from laurel.rewards.logistic import classifier
from laurel.rewards.model import RewardModel, raw_rewards
from laurel.rewards.normalizer import on_grid
from laurel.rewards.online_artefact import Made, YesNoTable, classified
from laurel.seeding import derive_seed

Answers = DoubleArray
"""(L,) probabilities, one for each label."""


class CaptionLearner:
    """Learns rewards of captions from labels; `quantile`, from shaping, determines the threshold."""

    def __init__(self, settings: OnlineParams, quantile: float, seed: int) -> None:
        self.made: Made = None
        self.threshold = 0.0
        self._own, self._quantile, self._seed = settings, quantile, seed
        self._model = PreferenceParams(
            encoder=settings.encoder, ensemble=settings.ensemble, max_epochs=settings.epochs, kind="preference"
        )
        self._embeddings = np.zeros((0, 0), dtype=np.float32)

    def fit(
        self,
        texts: Sequence[str],
        ids: Mapping[str, int],
        counts: IntArray,
        usable: Sequence[Mapping[str, Any]],
        answers: Answers,
    ) -> None:
        """Fit to all labels, from scratch.

        Args:
            texts: (V,) captions so far.
            ids: caption -> its number.
            counts: (V,) how often each caption was met.
            usable: (L,) questions with labels to learn from.
            answers: (L,) their probabilities.
        """
        if self._own.form != "ranking":
            self.made = self._yes_no(texts, ids, usable, answers)
            return
        first, second = (np.array([ids[row[side]] for row in usable], dtype=np.int64) for side in ("first", "second"))
        indices = np.arange(len(texts), dtype=np.int64)
        comparisons = Comparisons(indices[:, None], indices, first, second, answers)
        features = self._embedded(texts).astype(np.float64)
        ensemble = fit(features, comparisons, self._model, self._own.epochs, derive_seed(self._seed, "fit"))
        self.made = RewardModel.of(
            ensemble,
            raw_rewards(ensemble, features),
            texts,
            input="caption",
            encoder=self._own.encoder,
            epochs=self._own.epochs,
            counts=counts.copy(),
            embeddings=self._embeddings,
        )
        self.threshold = self.made.normalizer.threshold(self._quantile)

    def paid(self, texts: Sequence[str], start: int) -> FloatArray:
        """Return the rewards of the captions from index `start` on."""
        if isinstance(self.made, RewardModel):
            return self.made.score(self._embedded(texts)[start:].astype(np.float64))
        if self.made is None:
            return np.full(len(texts) - start, UNPAID)
        if self.made.weights is not None:
            return classified(self._embedded(texts)[start:], self.made.weights)
        table = self.made.paid
        return np.array([table.get(text, UNPAID) for text in texts[start:]], dtype=np.float32)

    def _yes_no(
        self,
        texts: Sequence[str],
        ids: Mapping[str, int],
        usable: Sequence[Mapping[str, Any]],
        answers: Answers,
    ) -> YesNoTable:
        answer_of = dict(zip([row["first"] for row in usable], answers.tolist(), strict=True))
        if self._own.form == "retrieval":
            return YesNoTable(answer_of)
        rows = self._embedded(texts)[[ids[text] for text in answer_of]].astype(np.float64)
        return YesNoTable(answer_of, on_grid(classifier(rows, answers)).astype(np.float64), self._own.encoder)

    def _embedded(self, texts: Sequence[str]) -> FloatArray:
        """Return the embeddings of all captions (V, E)."""
        new = list(texts[len(self._embeddings) :])
        if new:
            rows = _encoder(self._own.encoder).encode(new)
            self._embeddings = np.concatenate([self._embeddings, rows]) if len(self._embeddings) else rows
        return self._embeddings


@cache
def _encoder(name: str) -> SentenceEncoder:
    """Load a sentence encoder, once for all agents of a process."""
    return load_encoder(name)
