"""A reward model of texts: learned from rows of preferences, without any environment; scores any text.

    DIR/text.json             the model's name, how it was trained, mean, sd and quantiles
    DIR/head.safetensors      weights (E,) on a sentence encoder's vectors (train: head)
    DIR/model/                the whole model, as transformers keeps it (train: all)

`train: head` leaves the sentence encoder as it is and fits a linear head on its vectors of whole texts:

    p(first better) = sigmoid(w . (e(first) - e(second))),  w ~ Normal(0, PRIOR_SD^2)

which is convex, so that there are no epochs, and the same labels give the same reward. `train: all` tunes an encoder or
a causal language model with a scalar head, through TRL (`laurel.rewards.text_tuning`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from laurel.data.directory import read_json, write_json
from laurel.data.preference_rows import PreferenceRows
from laurel.envs.base import BoolArray, FloatArray, IntArray
from laurel.errors import DataError
from laurel.feedback.rates import Rate, rate_of_variance
from laurel.rewards.logistic import logistic
from laurel.rewards.normalizer import Normalizer, rounded
from laurel.seeding import generator

Train = Literal["head", "all"]
CONFIG, HEAD, MODEL = "text.json", "head.safetensors", "model"
VERSION = 1
FOLDS = 5
PRIOR_SD = 10.0
"""Of the head's weights, whose vectors have length 1."""
EXACT = 20_000
"""Pairs up to which a head is fitted in double precision, so that it is the same on every CPU."""
Vectors = npt.NDArray[np.float32]


def joined(prompt: str, text: str) -> str:
    r"""Return a prompt with what follows it, as all reward models of texts see it.

    >>> joined("Name a fruit.", "Apple"), joined("2 + 2 =", " 4"), joined("", "Apple")
    ('Name a fruit.\nApple', '2 + 2 = 4', 'Apple')
    """
    gap = prompt and text and not prompt[-1].isspace() and not text[0].isspace()
    return f"{prompt}\n{text}" if gap else prompt + text


@dataclass(frozen=True)
class TextPairs:
    """P pairs of T distinct texts."""

    texts: Sequence[str]
    first: IntArray
    """(P,) text numbers."""
    second: IntArray
    p_first: npt.NDArray[np.float64]
    """(P,) 1/2 for ties."""
    group: IntArray
    """(T,) texts of one group are held out together: those of one prompt, or each by itself."""

    @classmethod
    def of(cls, rows: PreferenceRows) -> TextPairs:
        """Take the labelled rows whose texts differ.

        Raises:
            DataError: none of them has a side.
        """
        items: dict[str, int] = {}
        prompts: dict[str, int] = {}
        group: list[int] = []
        sides: list[tuple[int, int]] = []
        kept = np.zeros(len(rows), dtype=np.bool_)
        for number, (prompt, first, second) in enumerate(zip(rows.prompts, rows.first, rows.second, strict=True)):
            kept[number] = first != second and bool(rows.labels.usable[number])
            if not kept[number]:
                continue
            for text in (joined(prompt, first), joined(prompt, second)):
                if text not in items:
                    items[text] = len(items)
                    group.append(prompts.setdefault(prompt or text, len(prompts)))
            sides.append((items[joined(prompt, first)], items[joined(prompt, second)]))
        p_first = rows.labels.p_first[kept]
        if not (p_first != 0.5).any():
            raise DataError(f"{rows.labels.annotator}: no row names a better text, so there is nothing to learn from.")
        places = np.array(sides, dtype=np.int64)
        return cls(list(items), places[:, 0], places[:, 1], p_first, np.array(group, dtype=np.int64))

    def folds(self, seed: int) -> IntArray:
        """Return a fold (T,) from 0 on for each text."""
        groups = int(self.group.max()) + 1
        return (generator(seed, "text folds").permutation(groups) % FOLDS)[self.group]


@dataclass
class TextReward:
    """A fitted reward model of texts."""

    model: str
    """The sentence encoder, or what was tuned."""
    train: Train
    normalizer: Normalizer
    weights: npt.NDArray[np.float64] | None = None
    """(E,) of the head; None where the whole model was tuned."""
    place: Path | None = None
    """Where a tuned model is."""
    max_length: int = 512
    """Tokens of a text that a tuned model reads."""
    _tuned: Any = field(default=None, repr=False)

    def score(self, texts: Sequence[str]) -> FloatArray:
        """Return rewards (N,), in units of their spread over the texts that it was trained on."""
        return self.normalizer(self.raw(texts))

    def raw(self, texts: Sequence[str]) -> FloatArray:
        """Return rewards (N,) before normalisation."""
        if not texts:
            return np.zeros(0, dtype=np.float32)
        if self.weights is None:
            return self._whole.score(texts)
        return (self._encoder.encode(list(texts)).astype(np.float64) @ self.weights).astype(np.float32)

    @cached_property
    def _encoder(self) -> Any:
        from laurel.llm.encoder import load_encoder

        return load_encoder(self.model)

    @cached_property
    def _whole(self) -> Any:
        from laurel.rewards.text_tuning import Tuned

        assert self.place is not None
        return Tuned.load(self.place, self.max_length)

    def save(self, place: Path) -> None:
        """Write it into a directory; a tuned model is there already, or is copied."""
        import shutil

        from safetensors.numpy import save

        if self.weights is not None:
            (place / HEAD).write_bytes(save({"weights": self.weights}))
        elif self.place != place / MODEL:
            assert self.place is not None
            shutil.copytree(self.place, place / MODEL)
        kept = {"version": VERSION, "model": self.model, "train": self.train, "max_length": self.max_length}
        write_json(place / CONFIG, {**kept, "normalizer": asdict(self.normalizer)})

    @classmethod
    def load(cls, place: Path) -> TextReward:
        """Read what `save` wrote.

        Raises:
            DataError: a file is missing or damaged, or of another version.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        if not (place / CONFIG).is_file():
            raise DataError(
                f"{place}: holds no reward model of texts. Make one: laurel reward fit ROWS --output {place}."
            )
        config = read_json(place / CONFIG)
        try:
            if config["version"] != VERSION:
                raise DataError(f"{place}: was written by another version of Laurel. Fit it again.")
            scale = config["normalizer"]
            normalizer = Normalizer(scale["mean"], scale["sd"], tuple(scale["quantiles"]))
            whole = config["train"] == "all"
            weights = None if whole else load_file(place / HEAD)["weights"]
            return cls(
                config["model"],
                config["train"],
                normalizer,
                weights,
                place / MODEL if whole else None,
                config["max_length"],
            )
        except (OSError, SafetensorError, KeyError, TypeError) as error:
            raise DataError(f"{place}: is not a whole reward model of texts ({error}). Fit it again.") from None


def fit_head(model: str, pairs: TextPairs, vectors: Vectors, seed: int) -> tuple[TextReward, dict[str, Any]]:
    """Fit a head on vectors (T, E) of the texts.

    Returns:
        The model, and its quality on pairs with a text of a fold that it was not trained on.
    """
    exact = len(pairs.first) <= EXACT
    apart = vectors[pairs.first] - vectors[pairs.second]
    apart = apart.astype(np.float64) if exact else apart
    fold = pairs.folds(seed)
    held_out = (fold[pairs.first, None] == np.arange(FOLDS)) | (fold[pairs.second, None] == np.arange(FOLDS))
    counts = np.concatenate([~held_out, np.ones((len(held_out), 1), dtype=np.bool_)], axis=1).astype(apart.dtype)
    ridges = 1 / (2 * PRIOR_SD**2 * np.maximum(counts.sum(axis=0), 1))
    weights = logistic(apart, pairs.p_first, counts, ridges.astype(np.float64))
    logits = apart @ weights[:, :FOLDS].astype(apart.dtype)
    judged = (logits * held_out).sum(axis=1) / held_out.sum(axis=1)
    head = weights[:, FOLDS]
    raw = (vectors.astype(apart.dtype) @ head.astype(apart.dtype)).astype(np.float32)
    fitted = TextReward(model, "head", Normalizer.of(raw), head)
    return fitted, quality(pairs, np.ones(len(judged), dtype=np.bool_), judged)


def quality(pairs: TextPairs, held_out: BoolArray, logits: npt.NDArray[Any]) -> dict[str, Any]:
    """Say how often predictions agree with labels that were held out, beside what needs no learning.

    Args:
        held_out: (P,) which pairs are judged.
        logits: (P,) of p(first better), by a model that has not seen one of the texts.

    Returns:
        pairs, ties, texts; heldout_pairs, those with a side; heldout_agreement with `heldout_ci95`; heldout_loss, over
        ties, too; and baselines: the longer text, and the first.
    """
    target = pairs.p_first[held_out]
    side = target != 0.5
    lengths = np.array([len(text) for text in pairs.texts])
    longer = np.sign(lengths[pairs.first] - lengths[pairs.second])[held_out]
    right = ((logits[held_out] > 0) == (target > 0.5))[side]
    agreement = paired_rate(right, pairs.first[held_out][side], pairs.second[held_out][side])
    loss = np.logaddexp(0, logits[held_out]) - target * logits[held_out]
    firsts = float((target[side] > 0.5).mean()) if side.any() else 0.5
    told = np.where(longer[side] == 0, 0.5, (longer[side] > 0) == (target[side] > 0.5))
    return {
        "pairs": len(pairs.first),
        "ties": int((pairs.p_first == 0.5).sum()),
        "texts": len(pairs.texts),
        "heldout_pairs": int(side.sum()),
        "heldout_agreement": agreement["value"] if agreement else None,
        "heldout_ci95": agreement["ci95"] if agreement else None,
        "heldout_loss": rounded(float(loss.mean())) if len(loss) else None,
        "baselines": {"longer": float(told.mean()) if side.any() else None, "majority": max(firsts, 1 - firsts)},
    }


def paired_rate(right: BoolArray, first: IntArray, second: IntArray) -> Rate | None:
    """Return a share of pairs, of which those that have a text in common depend on each other.

    The variance is the dyadic one (Aronow, Samii and Assenova 2015, Political Analysis 23(4)): with e the errors,

        v = (sum over texts of (sum of e of its pairs)^2 - sum e^2) / n^2
    """
    if not len(right):
        return None
    p = float(right.mean())
    errors = right - p
    size = int(max(first.max(), second.max())) + 1
    sums = np.bincount(first, weights=errors, minlength=size) + np.bincount(second, weights=errors, minlength=size)
    alone = float(np.square(errors).sum())
    variance = max(float(np.square(sums).sum()) - alone, alone) / len(right) ** 2
    return rate_of_variance(p, variance, len(right), len(np.unique(np.concatenate([first, second]))))


def fit_rows(
    rows: PreferenceRows,
    model: str,
    *,
    train: Train,
    seed: int,
    place: Path,
    encode: Callable[[list[str]], Vectors],
    epochs: int = 1,
    learning_rate: float = 1e-4,
    batch_size: int = 16,
    max_length: int = 512,
) -> tuple[TextReward, dict[str, Any]]:
    """Fit a reward model and write it into a directory; return it with its quality.

    Args:
        encode: gives vectors of distinct texts where a head is trained.
        epochs: of `train: all`, as the following.

    Raises:
        DataError: no row names a better text.
        AnnotationError: there is no such model.
        MissingPackageError: TRL is needed and not installed.
    """
    pairs = TextPairs.of(rows)
    if train == "head":
        fitted, found = fit_head(model, pairs, encode(list(pairs.texts)), seed)
    else:
        from laurel.rewards.text_tuning import Tuning, tune

        how = Tuning(epochs, learning_rate, batch_size, max_length)
        tuned, logits, held_out = tune(model, pairs, how, seed, place / MODEL)
        normalizer = Normalizer.of(tuned.score(pairs.texts))
        fitted = TextReward(model, "all", normalizer, place=place / MODEL, max_length=max_length)
        found = {"trained_pairs": int((~held_out).sum()), **quality(pairs, held_out, logits)}
    fitted.save(place)
    return fitted, {"model": model, "train": train, **found}
