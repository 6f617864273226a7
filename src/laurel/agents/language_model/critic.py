"""Values of states in words, fitted to returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from laurel.arrays import DoubleArray, FloatArray
from laurel.llm.embedding_cache import encode_cached

if TYPE_CHECKING:
    import torch

RIDGE = 1e-3
"""Ridge penalty on the weights of the encoder's head, for vectors that are centred and of mean length 1."""


class Critic(Protocol):
    """Values states."""

    def fit(self, states: Sequence[str], returns: FloatArray) -> None:
        """Refit the values from scratch to returns (N,) that followed states."""
        ...

    def values(self, states: Sequence[str]) -> FloatArray:
        """Return the values (N,); 0 before the first fit."""
        ...

    def state(self) -> dict[str, DoubleArray]:
        """Return the fitted weights, as arrays."""
        ...

    def restore(self, state: Mapping[str, DoubleArray]) -> None:
        """Restore a `state`."""
        ...


class TableCritic:
    """The mean return of each text; for an unseen text, the mean of all."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}
        self._mean = 0.0

    def fit(self, states: Sequence[str], returns: FloatArray) -> None:
        texts, means, counts = _means(states, returns)
        self._means = dict(zip(texts, means.tolist(), strict=True))
        self._mean = float(np.average(means, weights=counts))

    def values(self, states: Sequence[str]) -> FloatArray:
        return np.array([self._means.get(state, self._mean) for state in states], dtype=np.float32)

    def state(self) -> dict[str, DoubleArray]:
        text = "\0".join(self._means).encode()
        means = np.array([self._mean, *self._means.values()])
        return {"means": means, "texts": np.frombuffer(text, dtype=np.uint8).astype(np.float64)}

    def restore(self, state: Mapping[str, DoubleArray]) -> None:
        text = state["texts"].astype(np.uint8).tobytes().decode()
        self._mean, *means = state["means"].tolist()
        self._means = dict(zip(text.split("\0") if text else (), means, strict=True))


class EncoderCritic:
    """Ridge regression of returns on a sentence encoder's vectors of the states.

        w = argmin Σ_s n(s)/N (Ḡ(s) - b - w·φ(s))² + RIDGE |w|²,

    where Ḡ(s) is the mean return after s, met n(s) of N times, and φ its vector, centred and scaled to a mean length of
    1, because the texts of one environment are much alike. Vectors are cached on this machine: a text is encoded once.

    Args:
        encoder: a sentence-transformers model, a directory or a name on the hub.
        device: that it runs on; None: the CPU.
    """

    def __init__(self, encoder: str, device: torch.device | None = None) -> None:
        self._encoder, self._device = encoder, device
        self._vectors: dict[str, DoubleArray] = {}
        self._fitted: dict[str, DoubleArray] = {}

    def fit(self, states: Sequence[str], returns: FloatArray) -> None:
        texts, means, counts = _means(states, returns)
        vectors, share = self._encoded(texts), counts / counts.sum()
        centre = share @ vectors
        scale = 1 / max(float(np.sqrt(share @ np.square(vectors - centre).sum(axis=1))), 1e-9)
        mean = share @ means
        features = (vectors - centre) * scale
        squares = features.T @ (share[:, None] * features) + RIDGE * np.eye(features.shape[1])
        weights = np.linalg.solve(squares, features.T @ (share * (means - mean)))
        self._fitted = {"centre": centre, "weights": weights * scale, "mean": np.array([mean])}

    def values(self, states: Sequence[str]) -> FloatArray:
        if not self._fitted:
            return np.zeros(len(states), dtype=np.float32)
        distinct = list(dict.fromkeys(states))
        predicted = (self._encoded(distinct) - self._fitted["centre"]) @ self._fitted["weights"] + self._fitted["mean"]
        values = dict(zip(distinct, predicted.tolist(), strict=True))
        return np.array([values[state] for state in states], dtype=np.float32)

    def _encoded(self, texts: Sequence[str]) -> DoubleArray:
        """Return vectors (N, E)."""
        new = [text for text in texts if text not in self._vectors]
        if new:
            vectors = encode_cached(self._encoder, new, device=self._device).astype(np.float64)
            self._vectors.update(zip(new, vectors, strict=True))
        return np.stack([self._vectors[text] for text in texts])

    def state(self) -> dict[str, DoubleArray]:
        return self._fitted

    def restore(self, state: Mapping[str, DoubleArray]) -> None:
        self._fitted = dict(state)


def _means(states: Sequence[str], returns: FloatArray) -> tuple[list[str], DoubleArray, DoubleArray]:
    """Return distinct texts in order of first occurrence, with their mean returns and counts."""
    place = {text: number for number, text in enumerate(dict.fromkeys(states))}
    index = np.array([place[state] for state in states])
    counts = np.bincount(index).astype(np.float64)
    return list(place), np.bincount(index, weights=returns.astype(np.float64)) / counts, counts
