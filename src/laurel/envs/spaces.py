"""Packing: any observation of a Gymnasium space as one row of numbers, and back.

EnvPool and Gymnasium batch the same observations differently (arrays, tuples, dicts); a packed row is
the same for both, fits a Parquet column, and turns into a network's input in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.envs.base import Array, FloatArray
from laurel.errors import EnvError


@dataclass(frozen=True)
class _Leaf:
    """One Discrete, MultiDiscrete, MultiBinary or Box space, and how to find it in an observation."""

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
        self._leaves = list(_leaves(space, lambda observation: observation))
        self.size = sum(leaf.size for leaf in self._leaves)
        kinds = [leaf.space.dtype for leaf in self._leaves]
        self.dtype: np.dtype[Any] = np.result_type(*[kind for kind in kinds if kind is not None])
        if self.dtype == np.float64:
            self.dtype = np.dtype(np.float32)
        elif self.dtype == np.int64:
            self.dtype = np.dtype(np.int32)

    def pack(self, observation: Any) -> Array:
        """Turn a batch of observations into rows (N, D)."""
        if isinstance(observation, np.ndarray) and observation.ndim == 2 and observation.shape[1] == self.size:
            return observation.astype(self.dtype, copy=False)
        columns = []
        for leaf in self._leaves:
            values = np.asarray(leaf.get(observation))
            columns.append(values.reshape(len(values), leaf.size))
        return np.concatenate(columns, axis=1).astype(self.dtype, copy=False)

    def pack_one(self, observation: Any) -> Array:
        """Turn a single observation into a row (D,)."""
        parts = [np.asarray(leaf.get(observation)).reshape(leaf.size) for leaf in self._leaves]
        return np.concatenate(parts).astype(self.dtype, copy=False)

    def unpack(self, row: Array) -> Any:
        """Turn a row (D,) back into an observation: an int, an array, a tuple or a dict."""
        return _unpack(self.space, row)[0]

    def features(self, rows: Array) -> FloatArray:
        """Turn rows (N, D) into network input (N, F): discrete parts one-hot, bounded boxes in [-1, 1]."""
        parts = []
        start = 0
        for leaf in self._leaves:
            parts.append(_leaf_features(leaf.space, rows[:, start : start + leaf.size]))
            start += leaf.size
        return np.concatenate(parts, axis=1)


def _leaves(space: gym.Space[Any], get: Callable[[Any], Any]) -> list[_Leaf]:
    match space:
        case gym.spaces.Dict():
            return [leaf for key, part in space.spaces.items() for leaf in _leaves(part, _item(get, key))]
        case gym.spaces.Tuple():
            return [leaf for index, part in enumerate(space.spaces) for leaf in _leaves(part, _item(get, index))]
        case gym.spaces.Discrete():
            return [_Leaf(space, get, 1)]
        case gym.spaces.Box() | gym.spaces.MultiDiscrete() | gym.spaces.MultiBinary():
            return [_Leaf(space, get, int(np.prod(space.shape)))]
        case gym.spaces.Text():
            return []  # no number in it; a room that needs the text packs it itself
        case _:
            raise EnvError(
                f"Observation space {space} has no flat form: Laurel packs Discrete, MultiDiscrete, MultiBinary, "
                "Box, and Dict or Tuple of them. Wrap the environment so that it gives one of these."
            )


def _item(get: Callable[[Any], Any], key: Any) -> Callable[[Any], Any]:
    return lambda observation: get(observation)[key]


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
        case gym.spaces.Text():
            return "", row
        case gym.spaces.Discrete():
            return int(row[0]), row[1:]
        case _:
            size = int(np.prod(space.shape or (1,)))
            return row[:size].reshape(space.shape or (1,)), row[size:]


def _leaf_features(space: gym.Space[Any], rows: Array) -> FloatArray:
    match space:
        case gym.spaces.Discrete():
            return one_hot(rows[:, 0].astype(np.int64) - int(space.start), int(space.n))
        case gym.spaces.MultiDiscrete():
            sizes = space.nvec.reshape(-1)
            return np.concatenate([one_hot(rows[:, i], int(size)) for i, size in enumerate(sizes)], axis=1)
        case gym.spaces.Box():
            low = space.low.reshape(-1).astype(np.float32)
            high = space.high.reshape(-1).astype(np.float32)
            bounded = np.isfinite(low) & np.isfinite(high) & (high > low) & (np.abs(high) < 1e6)
            middle = np.where(bounded, (low + high) / 2, 0).astype(np.float32)
            half = np.where(bounded, (high - low) / 2, 1).astype(np.float32)
            return (rows.astype(np.float32) - middle) / half
        case _:
            return rows.astype(np.float32)


def one_hot(values: Array, size: int) -> FloatArray:
    """Return rows (N, size) with a single one at each value (N,)."""
    hot = np.zeros((len(values), size), dtype=np.float32)
    hot[np.arange(len(values)), values.astype(np.int64)] = 1.0
    return hot
