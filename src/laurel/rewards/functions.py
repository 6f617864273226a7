"""Rewards of captions, from a table, and of observations; in normalised units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from laurel.arrays import FloatArray
from laurel.data.json_file import read_json, write_json
from laurel.data.parquet import read_table, write_table
from laurel.envs.base import EnvAdapter, Transitions
from laurel.errors import DataError
from laurel.llm.encoder import SentenceEncoder, check_encoder, load_encoder
from laurel.params.annotation import BudgetParams
from laurel.rewards.base import (
    UNPAID,
    AskingReward,
    LimitedReward,
    Memoryless,
    ReportingReward,
    Reward,
    Steps,
    paid,
)
from laurel.rewards.normalizer import Normalizer
from laurel.seeding import generator

if TYPE_CHECKING:
    from laurel.rewards.model import RewardModel

CONFIG, TABLE = "config.json", "captions.parquet"
Scorer = Callable[[list[str]], FloatArray]


@dataclass
class CaptionReward:
    """A reward per caption, looked up by id; captions not in the table are scored when first met."""

    known: Mapping[str, float]
    """Precomputed rewards; empty for a function that needs none."""
    threshold: float
    score: Scorer
    """Scores texts that are not `known`."""
    unseen: int = 0
    _table: FloatArray = field(default_factory=lambda: np.full(1, UNPAID))
    """_table[id + 1] is the reward of a caption; id -1 means no caption."""
    _met: dict[str, float] = field(default_factory=dict)
    """Rewards of captions that had an id, also of earlier ids."""

    def begin(self, n_envs: int) -> None:
        """Clear the ids of captions; a caption has the same reward in all episodes."""
        self.unseen, self._table = 0, np.full(1, UNPAID)

    def pay(self, steps: Steps) -> FloatArray:
        if len(steps.texts) >= len(self._table):
            self._extend(steps.texts[len(self._table) - 1 :])
        return self._table[steps.captions + 1]

    def _extend(self, texts: Sequence[str]) -> None:
        self.unseen += sum(text not in self.known for text in texts) if self.known else 0
        new = [text for text in texts if text not in self._met]
        self._met |= zip(new, self.scored(new).tolist(), strict=True)
        self._table = np.append(self._table, np.array([self._met[text] for text in texts], dtype=np.float32))

    def scored(self, texts: Sequence[str]) -> FloatArray:
        """Return the rewards (N,) of N texts."""
        new = [text for text in texts if text not in self.known]
        scored = dict(zip(new, self.score(new).tolist(), strict=True)) if new else {}
        return np.array([self.known.get(text, scored.get(text)) for text in texts], dtype=np.float32)


@dataclass
class ObservationReward(Memoryless):
    """The reward model applied to the observations before and after a step, instead of to the caption."""

    model: RewardModel
    threshold: float
    features: Callable[[Transitions], FloatArray]

    def pay(self, steps: Steps) -> FloatArray:
        scores = self.model.score(self.features(steps.transitions)).reshape(steps.captions.shape)
        return np.where(steps.captions >= 0, scores, UNPAID)


@dataclass(frozen=True)
class ScoredCaptions:
    """The artefact of a method that scores captions one by one: their normalised rewards, and the normaliser."""

    known: Mapping[str, float]
    normalizer: Normalizer

    @classmethod
    def of(cls, texts: Sequence[str], raw: FloatArray) -> ScoredCaptions:
        """Normalise the raw scores (V,) of distinct captions."""
        normalizer = Normalizer.of(raw)
        return cls(dict(zip(texts, normalizer(raw).tolist(), strict=True)), normalizer)

    def reward(self, quantile: float, score: Scorer) -> CaptionReward:
        """Return the reward; `score` gives raw scores of captions that are not known."""
        return CaptionReward(
            self.known, self.normalizer.threshold(quantile), lambda texts: self.normalizer(score(texts))
        )

    def shuffled(self, seed: int) -> ScoredCaptions:
        """Return the same rewards permuted over captions, by a seed."""
        return replace(self, known=permuted(self.known, seed))

    def save(self, place: Path, **config: Any) -> None:
        """Write it into a directory, with what the method needs to score other captions."""
        columns = {"text": list(self.known), "reward": np.array(list(self.known.values()), dtype=np.float32)}
        write_table(place / TABLE, pa.table(columns, schema=_schema()))
        write_json(place / CONFIG, {**config, "normalizer": asdict(self.normalizer)})

    @classmethod
    def load(cls, place: Path) -> tuple[ScoredCaptions, dict[str, Any]]:
        """Read the output of `save`.

        Raises:
            DataError: a file is missing or damaged.
        """
        config = read_json(place / CONFIG)
        table = read_table(place / TABLE, _schema(), "train-reward")
        try:
            normalizer = Normalizer.read(config["normalizer"])
        except (KeyError, TypeError) as error:
            raise DataError(f"{place / CONFIG}: lacks {error}. Run laurel train-reward again.") from None
        return cls(dict(zip(table["text"].to_pylist(), table["reward"].to_pylist(), strict=True)), normalizer), config


def permuted(values: Mapping[str, float], seed: int) -> dict[str, float]:
    """Give the values to other texts: the labels of `shuffled_labels`, by a seed."""
    order = generator(seed, "shuffled_labels").permutation(len(values))
    in_order = list(values.values())
    return {text: in_order[i] for text, i in zip(values, order.tolist(), strict=True)}


def _schema() -> Any:
    return pa.schema([pa.field("text", pa.string(), nullable=False), pa.field("reward", pa.float32(), nullable=False)])


def transition_features(adapter: EnvAdapter, transitions: Transitions) -> FloatArray:
    """Return the input of a reward model on observations: features before and after (N, 2F)."""
    before, after = adapter.features(transitions.observation), adapter.features(transitions.next_observation)
    return np.concatenate([before, after], axis=1)


def learned(model: RewardModel, adapter: EnvAdapter, quantile: float) -> Reward:
    """Return the reward that a reward model defines."""
    threshold = model.normalizer.threshold(quantile)
    if model.input == "observation":
        return ObservationReward(model, threshold, lambda transitions: transition_features(adapter, transitions))
    return CaptionReward(dict(zip(model.texts, model.rewards.tolist(), strict=True)), threshold, _scorer(model))


def _scorer(model: RewardModel) -> Scorer:
    """Score texts with a reward model; its encoder is loaded when the first unseen caption turns up.

    Raises:
        DataError: the encoder is no longer the one that the reward was trained with.
    """

    @cache
    def encoder() -> SentenceEncoder:
        loaded = load_encoder(model.encoder)
        if model.embeddings.size:
            check_encoder(loaded, model.texts[0], model.embeddings[0])
        return loaded

    return lambda texts: model.score(encoder().encode(texts).astype(np.float64))


@dataclass
class WeightedSum:
    """A weighted sum of rewards; one that does not score a step counts with its threshold."""

    parts: Sequence[tuple[Reward, float]]

    @property
    def threshold(self) -> float:
        return sum(weight * part.threshold for part, weight in self.parts)

    @property
    def unseen(self) -> int:
        return max(part.unseen for part, _ in self.parts)

    def begin(self, n_envs: int) -> None:
        for part, _ in self.parts:
            part.begin(n_envs)

    def pay(self, steps: Steps) -> FloatArray:
        total = np.zeros(steps.captions.shape, dtype=np.float64)
        scored = np.zeros(steps.captions.shape, dtype=np.bool_)
        for part, weight in self.parts:
            raw = paid(part, steps)
            total += weight * np.where(raw > UNPAID, raw, part.threshold)
            scored |= raw > UNPAID
        return np.where(scored, total, UNPAID).astype(np.float32)


def accounts_of(reward: Reward | None) -> list[Mapping[str, Any]]:
    """Return the accounts of the parts of a reward that have asked a language model about steps."""
    return [part.account for part in parts_of(reward) if isinstance(part, AskingReward) and part.account]


def when_answered(reward: Reward | None, call: Callable[[], None]) -> None:
    """Call a function after each answer that a part of a reward gets from a language model."""
    for part in parts_of(reward):
        if isinstance(part, ReportingReward):
            part.when_answered(call)


def limit(reward: Reward | None, budget: BudgetParams) -> None:
    """Let the parts of a reward that ask a language model keep to a stage's budget."""
    for part in parts_of(reward):
        if isinstance(part, LimitedReward):
            part.limit(budget)


def parts_of(reward: Reward | None) -> Iterator[Reward]:
    """Yield the terms of a sum of rewards, the reward itself if it is not a sum, and nothing for None."""
    if isinstance(reward, WeightedSum):
        for part, _ in reward.parts:
            yield from parts_of(part)
    elif reward is not None:
        yield reward
