"""Packing: any observation of a Gymnasium space as one row of numbers, and back.

EnvPool and Gymnasium batch the same observations differently (arrays, tuples, dicts); a packed row is the same for
both, fits a Parquet column, and becomes a network's input in one place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.arrays import Array, FloatArray
from laurel.errors import EnvError

UNBOUNDED = 1e6
"""Box bounds of at least this magnitude are treated as missing."""


@dataclass(frozen=True)
class Leaf:
    """One Discrete, MultiDiscrete, MultiBinary or Box space, and how to find it in an observation."""

    name: str
    """Its keys within Dict and Tuple spaces, joined by spaces; empty if it is the whole space."""
    space: gym.Space[Any]
    get: Callable[[Any], Any]
    size: int


class PackedSpace:
    """A flat view of an observation space.

    >>> space = PackedSpace(gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Discrete(2)]))
    >>> rows = space.pack((np.array([2, 0]), np.array([1, 0])))
    >>> rows.tolist(), space.unpack(rows[0]), space.features(rows).tolist()
    ([[2, 1], [0, 0]], (2, 1), [[0.0, 0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0, 0.0]])
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self.space = space
        self.leaves = leaves_of(space)
        self.size = sum(leaf.size for leaf in self.leaves)
        if self.size == 0:
            raise EnvError(
                f"Observation space {space} has no numbers that a policy could observe. Write an environment adapter "
                "that packs its observations as numbers (CONTRIBUTING.md), or wrap the environment so that it has some."
            )
        self.dtype = common_dtype(self.leaves)
        self._to_features = [_features_of(leaf.space) for leaf in self.leaves]

    def pack(self, observation: Any) -> Array:
        """Turn a batch of observations into rows (N, D)."""
        if isinstance(observation, np.ndarray) and observation.ndim == 2 and observation.shape[1] == self.size:
            return observation.astype(self.dtype, copy=False)
        columns = []
        for leaf in self.leaves:
            values = np.asarray(leaf.get(observation))
            columns.append(values.reshape(len(values), leaf.size))
        return np.concatenate(columns, axis=1).astype(self.dtype, copy=False)

    def pack_one(self, observation: Any) -> Array:
        """Turn a single observation into a row (D,)."""
        if len(self.leaves) == 1:
            return np.asarray(self.leaves[0].get(observation)).reshape(self.size).astype(self.dtype, copy=False)
        parts = [np.asarray(leaf.get(observation)).reshape(leaf.size) for leaf in self.leaves]
        return np.concatenate(parts).astype(self.dtype, copy=False)

    def unpack(self, row: Array) -> Any:
        """Turn a row (D,) back into an observation: an int, an array, a tuple or a dict."""
        return _unpack(self.space, row)[0]

    def features(self, rows: Array) -> FloatArray:
        """Turn rows (N, D) into network input (N, F): discrete parts one-hot, bounded boxes in [-1, 1]."""
        if len(self.leaves) == 1:
            return self._to_features[0](rows)
        parts = []
        start = 0
        for leaf, to_features in zip(self.leaves, self._to_features, strict=True):
            parts.append(to_features(rows[:, start : start + leaf.size]))
            start += leaf.size
        return np.concatenate(parts, axis=1)


def leaves_of(space: gym.Space[Any]) -> list[Leaf]:
    """Return the numeric parts of a space.

    Raises:
        EnvError: a part has no flat form.
    """
    return _leaves(space, "", lambda observation: observation)


def _leaves(space: gym.Space[Any], name: str, get: Callable[[Any], Any]) -> list[Leaf]:
    match space:
        case gym.spaces.Dict():
            return [
                leaf for key, part in space.spaces.items() for leaf in _leaves(part, f"{name} {key}", _item(get, key))
            ]
        case gym.spaces.Tuple():
            return [
                leaf
                for index, part in enumerate(space.spaces)
                for leaf in _leaves(part, f"{name} part {index + 1}", _item(get, index))
            ]
        case gym.spaces.Discrete():
            return [Leaf(name.strip(), space, get, 1)]
        case gym.spaces.Box() | gym.spaces.MultiDiscrete() | gym.spaces.MultiBinary():
            return [Leaf(name.strip(), space, get, int(np.prod(space.shape)))]
        case _ if _is_text(space):
            return []  # texts are skipped; an adapter that needs them packs them itself
        case _:
            raise EnvError(
                f"Observation space {space} has no flat form: Laurel packs Discrete, MultiDiscrete, MultiBinary, "
                "Box, and Dict or Tuple of them. Wrap the environment so that its observation space is one of these."
            )


def texts_of(space: gym.Space[Any], name: str = "") -> list[str]:
    """Return the names of the parts of a Dict or Tuple space that are texts."""
    match space:
        case gym.spaces.Dict():
            return [text for key, part in space.spaces.items() for text in texts_of(part, f"{name} {key}")]
        case gym.spaces.Tuple():
            parts = enumerate(space.spaces, start=1)
            return [text for index, part in parts for text in texts_of(part, f"{name} part {index}")]
        case _:
            return [name.strip()] if _is_text(space) else []


def _is_text(space: gym.Space[Any]) -> bool:
    """Whether a space is Gymnasium's Text, or a package's own space of strings, as MiniGrid's missions."""
    return isinstance(space, gym.spaces.Text) or (space.dtype is not None and space.dtype.kind == "U")


def _item(get: Callable[[Any], Any], key: Any) -> Callable[[Any], Any]:
    return lambda observation: get(observation)[key]


def common_dtype(leaves: list[Leaf]) -> np.dtype[Any]:
    """Return a common dtype for all parts; 32 bits if that represents all integers exactly."""
    dtype: np.dtype[Any] = np.result_type(*[leaf.space.dtype for leaf in leaves if leaf.space.dtype is not None])
    if dtype == np.float64:
        return np.dtype(np.float32)
    if dtype == np.int64 and all(_fits_int32(leaf.space) for leaf in leaves):
        return np.dtype(np.int32)
    return dtype


def _fits_int32(space: gym.Space[Any]) -> bool:
    match space:
        case gym.spaces.Discrete():
            low, high = int(space.start), int(space.start) + int(space.n) - 1
        case gym.spaces.MultiDiscrete():
            low, high = int(space.start.min()), int((space.start + space.nvec).max()) - 1
        case gym.spaces.Box():
            low, high = int(space.low.min()), int(space.high.max())
        case _:
            return True
    return low >= -(2**31) and high < 2**31


def _unpack(space: gym.Space[Any], row: Array) -> tuple[Any, Array]:
    match space:
        case gym.spaces.Dict():
            values = {}
            for key, part in space.spaces.items():
                values[key], row = _unpack(part, row)
            return values, row
        case gym.spaces.Tuple():
            items = []
            for part in space.spaces:
                item, row = _unpack(part, row)
                items.append(item)
            return tuple(items), row
        case gym.spaces.Discrete():
            return int(row[0]), row[1:]
        case _ if _is_text(space):
            return "", row
        case _:
            shape = space.shape or ()
            size = int(np.prod(shape))
            return row[:size].reshape(shape).astype(space.dtype, copy=False), row[size:]


def _features_of(space: gym.Space[Any]) -> Callable[[Array], FloatArray]:
    """Return the function that turns the columns of a leaf (N, size) into network input."""
    match space:
        case gym.spaces.Discrete():
            n, start = int(space.n), int(space.start)
            return lambda rows: one_hot(rows[:, 0].astype(np.int64) - start, n)
        case gym.spaces.MultiDiscrete():
            sizes, starts = space.nvec.reshape(-1).tolist(), space.start.reshape(-1)
            return lambda rows: np.concatenate(
                [one_hot(column, size) for column, size in zip((rows - starts).T, sizes, strict=True)], axis=1
            )
        case gym.spaces.Box():
            low, high = (bound.reshape(-1).astype(np.float64) for bound in (space.low, space.high))
            bounded = (np.abs(low) < UNBOUNDED) & (np.abs(high) < UNBOUNDED) & (high > low)
            low, high = np.where(bounded, low, -1), np.where(bounded, high, 1)
            middle, half = ((low + high) / 2).astype(np.float32), ((high - low) / 2).astype(np.float32)
            return lambda rows: (rows.astype(np.float32) - middle) / half
        case _:
            return lambda rows: rows.astype(np.float32)


def n_features_of(space: gym.Space[Any]) -> int:
    """Return how many numbers of network input a leaf becomes."""
    match space:
        case gym.spaces.Discrete():
            return int(space.n)
        case gym.spaces.MultiDiscrete():
            return int(space.nvec.sum())
        case _:
            return math.prod(space.shape or ())


def one_hot(values: Array, size: int) -> FloatArray:
    """Return one-hot rows (N, size) of values (N,)."""
    hot = np.zeros((len(values), size), dtype=np.float32)
    hot[np.arange(len(values)), values.astype(np.int64)] = 1.0
    return hot
