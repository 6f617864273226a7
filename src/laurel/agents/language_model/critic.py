"""What a state in words is worth: a value fitted to returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from laurel.envs.base import FloatArray

Floats = npt.NDArray[np.float64]
RIDGE = 1e-2
"""Pull on the weights of the encoder's head, a state each counting by how often it was met."""


class Critic(Protocol):
    """Values states."""

    def fit(self, states: Sequence[str], returns: FloatArray) -> None:
        """Fit the values to returns (N,) that followed states, forgetting what was fitted before."""
        ...

    def values(self, states: Sequence[str]) -> FloatArray:
        """Return the values (N,); 0 before the first fit."""
        ...

    def state(self) -> dict[str, Floats]:
        """Return what was fitted, as arrays."""
        ...

    def restore(self, state: Mapping[str, Floats]) -> None:
        """Go on from a `state`."""
        ...


class TableCritic:
    """The mean return of each text; of one that was not met, the mean of all."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}
        self._mean = 0.0

    def fit(self, states: Sequence[str], returns: FloatArray) -> None:
        texts, means, counts = _means(states, returns)
        self._means = dict(zip(texts, means.tolist(), strict=True))
        self._mean = float(np.average(means, weights=counts))

    def values(self, states: Sequence[str]) -> FloatArray:
        return np.array([self._means.get(state, self._mean) for state in states], dtype=np.float32)

    def state(self) -> dict[str, Floats]:
        text = "\0".join(self._means).encode()
        means = np.array([self._mean, *self._means.values()])
        return {"means": means, "texts": np.frombuffer(text, dtype=np.uint8).astype(np.float64)}

    def restore(self, state: Mapping[str, Floats]) -> None:
        text = state["texts"].astype(np.uint8).tobytes().decode()
        self._mean, *means = state["means"].tolist()
        self._means = dict(zip(text.split("\0") if text else (), means, strict=True))


class EncoderCritic:
    """Ridge regression of returns on a sentence encoder's vectors of the states.

        w = argmin Σ_s n(s) (Ḡ(s) - w·φ(s))² + RIDGE N |w|²,

    where Ḡ(s) is the mean return after s, met n(s) of N times. Vectors are kept on this machine, so that a text is
    encoded once.

    Args:
        encoder: a sentence-transformers model, a directory or a name on the hub.
    """

    def __init__(self, encoder: str) -> None:
        self._encoder = encoder
        self._vectors: dict[str, Floats] = {}
        self._weights: Floats | None = None

    def fit(self, states: Sequence[str], returns: FloatArray) -> None:
        texts, means, counts = _means(states, returns)
        features = self._features(texts)
        share = counts / counts.sum()
        pull = np.full(features.shape[1], RIDGE / len(texts))
        pull[-1] = 0  # of the constant
        squares = features.T @ (share[:, None] * features) + np.diag(pull)
        self._weights = np.linalg.solve(squares, features.T @ (share * means))

    def values(self, states: Sequence[str]) -> FloatArray:
        if self._weights is None:
            return np.zeros(len(states), dtype=np.float32)
        distinct = list(dict.fromkeys(states))
        values = dict(zip(distinct, (self._features(distinct) @ self._weights).tolist(), strict=True))
        return np.array([values[state] for state in states], dtype=np.float32)

    def _features(self, texts: Sequence[str]) -> Floats:
        """Return vectors (N, E + 1), the last of them 1."""
        from laurel.llm.embedding_cache import encode_cached

        new = [text for text in texts if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, encode_cached(self._encoder, new).astype(np.float64), strict=True))
        return np.array([[*self._vectors[text], 1.0] for text in texts])

    def state(self) -> dict[str, Floats]:
        return {} if self._weights is None else {"weights": self._weights}

    def restore(self, state: Mapping[str, Floats]) -> None:
        self._weights = state.get("weights")


def _means(states: Sequence[str], returns: FloatArray) -> tuple[list[str], Floats, Floats]:
    """Return distinct texts, in the order in which they came, with their mean returns and how often each was met."""
    place = {text: number for number, text in enumerate(dict.fromkeys(states))}
    which = np.array([place[state] for state in states])
    counts = np.bincount(which).astype(np.float64)
    return list(place), np.bincount(which, weights=returns.astype(np.float64)) / counts, counts
