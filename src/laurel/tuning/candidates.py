"""Candidates that do not depend on results: the same list on every machine.

The current parameters come first, as the baseline, if the space contains them.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal

import numpy as np
from pydantic import JsonValue

from laurel.errors import ParamsError
from laurel.params import Params
from laurel.params.search import Searched, Space, is_whole, value_of
from laurel.seeding import derive_seed, generator

Sampler = Literal["tpe", "sobol", "random", "grid"]
LEARNS = "tpe"
"""The sampler that depends on results; the others are implemented here."""

Candidate = dict[str, JsonValue]
"""Name of a parameter -> the value to try."""


def own_values(space: Space, params: Params) -> Candidate | None:
    """Return the parameters' current values; None if the space does not contain them."""
    values = {name: value_of(params, name) for name in space}
    return values if all(space[name].holds(value) for name, value in values.items()) else None


def candidates(space: Space, params: Params, n: int, sampler: str, seed: int) -> list[Candidate]:
    """Return the first n candidates, which do not depend on n.

    Args:
        params: their own values come first.
        n: how many; a grid may have fewer.
        sampler: sobol (evenly spread), random, or grid (every combination of choices).

    Raises:
        ParamsError: a grid is to be drawn from a range, or the sampler is unknown.
    """
    current = own_values(space, params)
    first = [] if current is None else [current]
    if sampler == "grid":
        drawn = _grid(space)
        return [*first, *(candidate for candidate in drawn if candidate != current)][:n]
    match sampler:
        case "sobol":
            from scipy.stats import qmc

            engine = qmc.Sobol(len(space), rng=np.random.default_rng(derive_seed(seed, "tune", "sobol")))
            unit = engine.random_base2(math.ceil(math.log2(n)))  # a power of two, for its balance
        case "random":
            unit = generator(seed, "tune", "random").random((n, len(space)))
        case _:
            raise ParamsError(f"--sampler is {sampler}, which needs results, so candidates cannot be drawn beforehand.")
    rest = [_at(space, row) for row in unit.tolist()]
    return [*first, *rest][:n]


def _at(space: Space, place: list[float]) -> Candidate:
    """Return the candidate at a place of the unit cube."""
    return {name: _value(name, space[name], u) for name, u in zip(space, place, strict=True)}


def _value(name: str, searched: Searched, u: float) -> JsonValue:
    if searched.choices is not None:
        return searched.choices[min(int(u * len(searched.choices)), len(searched.choices) - 1)]
    assert searched.low is not None
    assert searched.high is not None
    is_integer = is_whole(name, searched)
    low, high = searched.low, searched.high + is_integer  # each integer has an interval of the same length
    value = low * (high / low) ** u if searched.log else low + u * (high - low)
    return min(int(value), int(searched.high)) if is_integer else searched.rounded(value)


def _grid(space: Space) -> list[Candidate]:
    for name, searched in space.items():
        if searched.choices is None:
            raise ParamsError(f"--sampler grid needs choices, but {name} is a range: write --search {name}=A,B,C")
    combinations = itertools.product(*(searched.choices or () for searched in space.values()))
    return [dict(zip(space, values, strict=True)) for values in combinations]
