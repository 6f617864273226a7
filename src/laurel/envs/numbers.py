"""Observations and actions as numbers for generated code, with descriptions for a language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.arrays import Array
from laurel.envs.base import EnvAdapter
from laurel.envs.spaces import UNBOUNDED

Number = int | float


@dataclass(frozen=True)
class Numbers:
    """The numbers of an environment's observations and its actions, with descriptions."""

    adapter: EnvAdapter

    @property
    def names(self) -> tuple[str, ...]:
        """Names by which code refers to the numbers; () if by index."""
        return tuple(feature.name for feature in self.adapter.observation_features)

    def of(self, observation: Array) -> list[list[Number]]:
        """Return the numbers of packed observations (N, D), one list per row; whole numbers are ints."""
        values = self.adapter.feature_values(observation)
        features = self.adapter.observation_features
        are_integers = [feature.whole for feature in features] or [values.dtype.kind in "iub"] * values.shape[1]
        if all(are_integers):
            return values.astype(np.int64).tolist()
        columns = [
            column.astype(np.int64).tolist() if is_whole else column.tolist()
            for column, is_whole in zip(values.T, are_integers, strict=True)
        ]
        return [list(row) for row in zip(*columns, strict=True)]

    @property
    def observation(self) -> str:
        """Description of an observation, with a line for each number."""
        features = self.adapter.observation_features
        if features:
            lines = [
                f'observation["{feature.name}"] ({"int" if feature.whole else "float"}): {feature.meaning}'
                for feature in features
            ]
            return "\n".join(["A dict of numbers:", *lines])
        lines, start = [], 0
        for leaf in self.adapter.packed.leaves:
            places = f"observation[{start}]" + (f" to observation[{start + leaf.size - 1}]" if leaf.size > 1 else "")
            named = f" ({leaf.name})" if leaf.name else ""
            lines.append(f"{places}{named}: {_bounds(leaf.space)}")
            start += leaf.size
        return "\n".join(["A list of numbers, whose meaning is not known:", *lines])

    @property
    def action(self) -> str:
        """Description of an action."""
        space = self.adapter.action_space
        if not isinstance(space, gym.spaces.Discrete):
            return f"A list of numbers: {_bounds(space)}"
        named = [f"{number}: {self.adapter.action_name(np.int64(number))}" for number in range(int(space.n))]
        return f"An integer. {'; '.join(named)}" if self.adapter.action_names else f"An integer: {_bounds(space)}"


def _bounds(space: gym.Space[Any]) -> str:
    match space:
        case gym.spaces.Discrete():
            return f"a whole number from {space.start} to {space.start + space.n - 1}"
        case gym.spaces.MultiDiscrete():
            return f"whole numbers from {space.start.min()} to {(space.start + space.nvec).max() - 1}"
        case gym.spaces.Box():
            low, high = float(space.low.min()), float(space.high.max())
            kind = "whole numbers" if space.dtype is not None and space.dtype.kind in "iu" else "real numbers"
            bounded = abs(low) < UNBOUNDED and abs(high) < UNBOUNDED
            return f"{kind} from {low:g} to {high:g}" if bounded else f"{kind} without a limit"
        case _:
            return "0 or 1"
