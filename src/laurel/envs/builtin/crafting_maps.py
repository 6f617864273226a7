"""Random maps of the crafting world, in batches: meadows with trees and cows, water, and mountains with ore."""

from __future__ import annotations

import numpy as np

from laurel.arrays import BoolArray, ByteArray, DoubleArray
from laurel.envs.builtin.crafting_rules import MATERIALS

COARSE = 5
"""Nodes of the noise along a side; heights between them are interpolated."""
HILLS, LAKES, SHORE, WOODS = 0.38, 0.08, 0.05, 0.08
"""Shares of a map's squares that are mountain, water, sand beside it, and trees."""
ORES = {"diamond": 0.005, "iron": 0.012, "coal": 0.025, "path": 0.04}
"""Shares of a map's squares that are ore, or a cave, in the mountains; at least two of each."""
COWS = 0.012
MEADOW = 2.5
"""Squares around the start that are kept free."""

Maps = ByteArray


def make_maps(number: int, size: int, rng: np.random.Generator) -> Maps:
    """Return maps (number, size, size) of materials; the start is at (size // 2, size // 2), on grass."""
    code = {name: place for place, name in enumerate(MATERIALS)}
    squares = size * size
    distance = np.hypot(*(np.indices((size, size)) - size // 2)).ravel()
    start = 3.0 * np.exp(-((distance / 4) ** 2))
    open_ground = distance > MEADOW

    mountain = _noise(number, size, rng) - start
    maps = np.full((number, squares), code["grass"], dtype=np.uint8)
    free = np.broadcast_to(open_ground, maps.shape)
    hills = _highest(mountain, free, round(HILLS * squares))
    maps[hills] = code["stone"]
    water = _noise(number, size, rng) - start
    shore = _highest(water, free & ~hills, round((LAKES + SHORE) * squares))
    maps[shore] = code["sand"]
    maps[_highest(water, free & ~hills, round(LAKES * squares))] = code["water"]
    scattered = rng.random(maps.shape)
    taken = np.zeros_like(hills)
    for name, share in ORES.items():
        taken_now = _highest(scattered, hills & ~taken, max(2, round(share * squares)))
        maps[taken_now] = code[name]
        taken |= taken_now
    grass = (maps == code["grass"]) & free
    woods = _highest(_noise(number, size, rng) + scattered, grass, round(WOODS * squares))
    maps[woods] = code["tree"]
    cows = _highest(rng.random(maps.shape), grass & ~woods & (distance > 3), max(2, round(COWS * squares)))
    maps[cows] = code["cow"]
    return maps.reshape(number, size, size)


def _noise(number: int, size: int, rng: np.random.Generator) -> DoubleArray:
    """Return smooth heights (number, size * size): normal at the nodes of a coarse grid, linear between them."""
    places = np.linspace(0, COARSE - 1, size)
    weights = np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(COARSE)))
    nodes = rng.standard_normal((number, COARSE, COARSE))
    return np.asarray((weights @ nodes @ weights.T).reshape(number, -1))


def _highest(height: DoubleArray, mask: BoolArray, count: int) -> BoolArray:
    """Return which `count` squares of each map (number, size * size) are the highest of those in `mask`."""
    shown = np.where(mask, height, -np.inf)
    order = np.argpartition(-shown, min(count, shown.shape[1] - 1), axis=1)[:, :count]
    chosen = np.zeros(shown.shape, dtype=np.bool_)
    np.put_along_axis(chosen, order, values=True, axis=1)
    return chosen & mask
