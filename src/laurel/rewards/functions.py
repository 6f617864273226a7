"""The rewards of today's arms, in normalised units, with the threshold above which shaping pays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from laurel.envs.base import EnvAdapter, FloatArray, Transitions
from laurel.errors import ParamsError
from laurel.rewards.base import UNPAID, Reward, Steps
from laurel.rewards.bradley_terry import Comparisons, fit
from laurel.rewards.model import Normalizer, RewardModel, raw_rewards
from laurel.seeding import derive_seed, generator

if TYPE_CHECKING:
    from laurel.params.judges import EmbeddingParams
    from laurel.params.training import RewardParams

Scorer = Callable[[list[str]], FloatArray]


@dataclass
class CaptionReward:
    """A reward for each caption, looked up by id; captions not in the table are scored when they are met."""

    known: Mapping[str, float]
    """Rewards known beforehand; empty for a function that needs none."""
    threshold: float
    score: Scorer
    """Scores texts that are not `known`."""
    unseen: int = 0
    _table: FloatArray = field(default_factory=lambda: np.full(1, UNPAID))
    """_table[id + 1]; id -1 has nothing to say."""

    def begin(self, n_envs: int) -> None:
        """Do nothing: a caption is paid alike in all episodes."""

    def pay(self, steps: Steps) -> FloatArray:
        if len(steps.texts) >= len(self._table):
            self._extend(steps.texts[len(self._table) - 1 :])
        return self._table[steps.captions + 1]

    def _extend(self, texts: Sequence[str]) -> None:
        new = [text for text in texts if text not in self.known]
        scored = dict(zip(new, self.score(new).tolist(), strict=True)) if new else {}
        self.unseen += len(new) if self.known else 0
        values = [self.known[text] if text in self.known else scored[text] for text in texts]
        self._table = np.append(self._table, np.array(values, dtype=np.float32))


@dataclass
class ObservationReward:
    """The reward model read on observations before and after, instead of on the caption."""

    model: RewardModel
    threshold: float
    features: Callable[[Transitions], FloatArray]
    unseen: int = 0

    def begin(self, n_envs: int) -> None:
        """Do nothing: a transition is paid alike in all episodes."""

    def pay(self, steps: Steps) -> FloatArray:
        scores = self.model.score(self.features(steps.transitions)).reshape(steps.captions.shape)
        return np.where(steps.captions >= 0, scores, UNPAID)


def transition_features(adapter: EnvAdapter, transitions: Transitions) -> FloatArray:
    """Return what a reward model on observations sees: features before and after (N, 2F)."""
    before, after = adapter.features(transitions.observation), adapter.features(transitions.next_observation)
    return np.concatenate([before, after], axis=1)


def learned(model: RewardModel, adapter: EnvAdapter, quantile: float) -> Reward:
    """The reward model's own answer."""
    threshold = model.normalizer.threshold(quantile)
    if model.input == "observation":
        return ObservationReward(model, threshold, lambda transitions: transition_features(adapter, transitions))
    return CaptionReward(dict(zip(model.texts, model.rewards.tolist(), strict=True)), threshold, _scorer(model))


def shuffled_labels(
    model: RewardModel, comparisons: Comparisons, params: RewardParams, quantile: float, adapter: EnvAdapter, seed: int
) -> Reward:
    """Control: a reward model of the same form, trained on the same answers given to the wrong pairs."""
    if model.input == "observation":
        raise ParamsError('agent.arms: "shuffled_labels" needs reward.input "caption".')
    order = generator(seed, "shuffled_labels").permutation(len(comparisons))
    shuffled = Comparisons(
        comparisons.members, comparisons.group, comparisons.first, comparisons.second, comparisons.p_first[order]
    )
    features = model.embeddings.astype(np.float64)
    ensemble = fit(features, shuffled, params, model.epochs, derive_seed(seed, "shuffled_labels"))
    raw = raw_rewards(ensemble, features).mean(axis=0)
    normalizer = Normalizer.of(raw)
    control = RewardModel(
        ensemble, normalizer, model.input, model.encoder, model.epochs, model.texts,
        normalizer(raw), np.zeros(len(raw), dtype=np.float32), model.counts, model.embeddings,
    )  # fmt: skip
    return learned(control, adapter, quantile)


def random_reward(texts: tuple[str, ...], quantile: float, seed: int) -> Reward:
    """Control: a standard normal draw for each caption, the same whenever it is met."""

    def score(new: list[str]) -> FloatArray:
        return np.array([generator(seed, "random_reward", text).standard_normal() for text in new], dtype=np.float32)

    raw = score(list(texts))
    normalizer = Normalizer.of(raw)
    known = dict(zip(texts, normalizer(raw).tolist(), strict=True))
    return CaptionReward(known, normalizer.threshold(quantile), lambda new: normalizer(score(new)))


def utilities(texts: tuple[str, ...], params: EmbeddingParams, adapter: EnvAdapter) -> FloatArray:
    """Return the sentence encoder's utility of each text (N,): what `similarity` pays."""
    from laurel.feedback.annotators.embedding import EmbeddingAnnotator

    return EmbeddingAnnotator.load(params, adapter).utility(list(texts)).astype(np.float32)


def similarity(
    texts: tuple[str, ...], utility: FloatArray, params: EmbeddingParams, quantile: float, adapter: EnvAdapter
) -> Reward:
    """Comparison: the sentence encoder's utility as reward directly, without pairs or a reward model."""
    normalizer = Normalizer.of(utility)
    known = dict(zip(texts, normalizer(utility).tolist(), strict=True))
    return CaptionReward(
        known, normalizer.threshold(quantile), lambda new: normalizer(utilities(tuple(new), params, adapter))
    )


def oracle(adapter: EnvAdapter) -> Reward:
    """Upper bound: the environment's hand-written progress, paid as it is."""
    return CaptionReward(
        {}, 0.0, lambda texts: np.array([adapter.oracle(text) or 0 for text in texts], dtype=np.float32)
    )


def _scorer(model: RewardModel) -> Scorer:
    """Score texts with a reward model; its encoder is loaded when the first unseen caption turns up."""

    def score(texts: list[str]) -> FloatArray:
        from laurel.llm.encoder import load_encoder

        return model.score(load_encoder(model.encoder).encode(texts).astype(np.float64))

    return score
