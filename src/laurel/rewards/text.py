"""A text reward model, learned from preference rows without any environment; scores any text.

    DIR/text.json             the model's name, how it was trained, mean, sd and quantiles
    DIR/head.safetensors      weights (E,) on a sentence encoder's embeddings, and the probe (E,), the vector of PROBE,
                              by which a replaced encoder is noticed (train: head)
    DIR/model/                the whole model, in transformers' format (train: all)

`train: head` fits a linear head on a frozen sentence encoder's embeddings of whole texts:

    p(first better) = sigmoid(w . (e(first) - e(second))),  w ~ Normal(0, PRIOR_SD^2)

which is convex, so there are no epochs, and the same labels give the same reward. `train: all` tunes an encoder or
a causal language model with a scalar head, through TRL (`laurel.rewards.text_tuning`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from laurel.arrays import DoubleArray, FloatArray
from laurel.data.json_file import read_json, write_json
from laurel.data.manifest import MANIFEST, checked_manifest
from laurel.data.preference_rows import PreferenceRows
from laurel.errors import DataError
from laurel.llm.encoder import check_encoder, load_encoder
from laurel.rewards.logistic import logistic
from laurel.rewards.normalizer import Normalizer
from laurel.rewards.text_pairs import FOLDS, TextPairs, quality
from laurel.rewards.text_tuning import Tuned, Tuning, tune

Train = Literal["head", "all"]
CONFIG, HEAD, MODEL = "text.json", "head.safetensors", "model"
VERSION = 1
PROBE = "The key fits, and the door opens."
"""A text whose vector identifies the encoder."""
PRIOR_SD = 10.0
"""Standard deviation of the prior over the head's weights; sentence vectors have length 1."""
EXACT = 20_000
"""Up to this many pairs a head is fitted in double precision, so that the result is the same on every CPU."""
Vectors = FloatArray


@dataclass
class TextReward:
    """A fitted text reward model."""

    model: str
    """The sentence encoder, or the tuned model."""
    train: Train
    normalizer: Normalizer
    weights: DoubleArray | None = None
    """(E,) of the head; None if the whole model was tuned."""
    probe: Vectors | None = None
    """(E,) the vector of PROBE when the head was fitted; None if the whole model was tuned."""
    place: Path | None = None
    """Directory of a tuned model."""
    max_length: int = 512
    """Maximum number of tokens per text, for a tuned model."""

    def score(self, texts: Sequence[str]) -> FloatArray:
        """Return rewards (N,), normalised by their standard deviation over the training texts."""
        return self.normalizer(self.raw(texts))

    def raw(self, texts: Sequence[str]) -> FloatArray:
        """Return rewards (N,) before normalisation.

        Raises:
            DataError: the sentence encoder is no longer the one that the head was fitted with.
        """
        if not texts:
            return np.zeros(0, dtype=np.float32)
        if self.weights is None:
            return self._tuned.score(texts)
        return (self._encoder.encode(list(texts)).astype(np.float64) @ self.weights).astype(np.float32)

    @cached_property
    def _encoder(self) -> Any:
        encoder = load_encoder(self.model)
        if self.probe is not None:
            check_encoder(encoder, PROBE, self.probe)
        return encoder

    @cached_property
    def _tuned(self) -> Any:
        assert self.place is not None
        return Tuned.load(self.place, self.max_length)

    def save(self, place: Path) -> None:
        """Write it into a directory; a tuned model is copied unless it is already there."""
        from safetensors.numpy import save

        if self.weights is not None:
            probe = {} if self.probe is None else {"probe": self.probe}
            (place / HEAD).write_bytes(save({"weights": self.weights, **probe}))
        elif self.place != place / MODEL:
            assert self.place is not None
            shutil.copytree(self.place, place / MODEL)
        config = {"version": VERSION, "model": self.model, "train": self.train, "max_length": self.max_length}
        write_json(place / CONFIG, {**config, "normalizer": asdict(self.normalizer)})

    @classmethod
    def load(cls, place: Path) -> TextReward:
        """Read what `save` wrote.

        Raises:
            DataError: a file is missing, damaged, of another version, or changed since `laurel reward fit` wrote it.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        if place.is_file():
            raise DataError(
                f"{place}: is a file, but a directory with a reward model is needed. If it holds preferences: laurel "
                f"reward fit {place} --output DIR."
            )
        if not (place / CONFIG).is_file():
            raise DataError(
                f"{place}: holds no reward model of texts. Make one: laurel reward fit ROWS --output {place}."
            )
        if (place / MANIFEST).exists():
            checked_manifest(place)
        config = read_json(place / CONFIG)
        try:
            if config["version"] != VERSION:
                raise DataError(f"{place}: was written by another version of Laurel. Fit it again.")
            normalizer = Normalizer.read(config["normalizer"])
            tunes_all = config["train"] == "all"
            head = {} if tunes_all else load_file(place / HEAD)
            return cls(
                config["model"],
                config["train"],
                normalizer,
                None if tunes_all else head["weights"],
                head.get("probe"),
                place / MODEL if tunes_all else None,
                config["max_length"],
            )
        except (OSError, SafetensorError, KeyError, TypeError) as error:
            raise DataError(f"{place}: is not a complete reward model of texts ({error}). Fit it again.") from None


def fit_head(model: str, pairs: TextPairs, vectors: Vectors, seed: int) -> tuple[TextReward, dict[str, Any]]:
    """Fit a head on vectors (T, E) of the texts.

    Returns:
        The model, and its cross-validated quality. A fold is skipped if without it no training pair names a better
        text.
    """
    exact = len(pairs.first) <= EXACT
    differences = vectors[pairs.first] - vectors[pairs.second]
    differences = differences.astype(np.float64 if exact else np.float32, copy=False)
    fold = pairs.folds(seed)
    held_out = (fold[pairs.first, None] == np.arange(FOLDS)) | (fold[pairs.second, None] == np.arange(FOLDS))
    counts = np.concatenate([~held_out, np.ones((len(held_out), 1), dtype=np.bool_)], axis=1).astype(differences.dtype)
    ridges = 1 / (2 * PRIOR_SD**2 * np.maximum(counts.sum(axis=0), 1))
    weights = logistic(differences, pairs.p_first, counts, ridges.astype(np.float64))
    logits = differences @ weights[:, :FOLDS].astype(differences.dtype)
    taught = (~held_out & (pairs.p_first != 0.5)[:, None]).any(axis=0)
    judges = held_out & taught
    judged = (logits * judges).sum(axis=1) / np.maximum(judges.sum(axis=1), 1)
    head = weights[:, FOLDS]
    raw = (vectors.astype(differences.dtype, copy=False) @ head.astype(differences.dtype)).astype(np.float32)
    fitted = TextReward(model, "head", Normalizer.of(raw), head)
    return fitted, quality(pairs, judges.any(axis=1), judged)


def fit_rows(
    rows: PreferenceRows,
    model: str,
    *,
    tuning: Tuning | None = None,
    seed: int,
    place: Path,
    encode: Callable[[list[str]], Vectors],
) -> tuple[TextReward, dict[str, Any]]:
    """Fit a reward model and write it into a directory; return it with its quality.

    Args:
        tuning: how the whole model is tuned; None: only a head is trained.
        encode: returns embeddings of distinct texts if a head is trained.

    Raises:
        DataError: no row names a better text.
        AnnotationError: there is no such model.
        MissingPackageError: TRL is needed and not installed.
    """
    pairs = TextPairs.of(rows)
    if tuning is None:
        vectors = encode([*pairs.texts, PROBE])
        fitted, figures = fit_head(model, pairs, vectors[:-1], seed)
        fitted.probe = vectors[-1]
    else:
        tuned, logits, held_out = tune(model, pairs, tuning, seed, place / MODEL)
        normalizer = Normalizer.of(tuned.score(pairs.texts))
        fitted = TextReward(model, "all", normalizer, place=place / MODEL, max_length=tuning.max_length)
        taught = ~held_out & (pairs.p_first != 0.5)
        figures = {"trained_pairs": int(taught.sum()), **quality(pairs, held_out, logits)}
    fitted.save(place)
    return fitted, {"model": model, "train": fitted.train, **figures}
