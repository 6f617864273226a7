"""Normalises rewards to units of their spread over distinct captions, rounded so that all CPUs give the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laurel.arrays import DoubleArray, FloatArray

Floats = FloatArray | DoubleArray
LEVELS = np.linspace(0, 1, 101)
"""Levels at which a normaliser keeps quantiles."""
GRID = 2.0**20
"""Rewards are multiples of 1 / GRID, far coarser than what the order of additions changes in double precision."""


@dataclass(frozen=True)
class Normalizer:
    """Turns raw rewards into units of their spread over distinct captions, in multiples of 1 / GRID."""

    mean: float
    sd: float
    """0 if there is no spread: then everything normalises to 0."""
    quantiles: tuple[float, ...]
    """Quantiles of the normalised rewards, at LEVELS."""

    @classmethod
    def of(cls, raw: Floats) -> Normalizer:
        """Fit to the raw rewards of distinct captions."""
        mean, sd = rounded(np.mean(raw, dtype=np.float64)), rounded(np.std(raw, dtype=np.float64))
        scale = cls(mean, sd if sd > 1e-8 else 0.0, ())
        return cls(scale.mean, scale.sd, tuple(np.quantile(scale(raw), LEVELS).tolist()))

    def __call__(self, raw: Floats) -> FloatArray:
        if self.sd == 0:
            return np.zeros(raw.shape, dtype=np.float32)
        return on_grid((raw - self.mean) / self.sd)

    def threshold(self, quantile: float) -> float:
        """Return the normalised reward at a quantile, interpolated between those that are kept."""
        return float(np.interp(quantile, LEVELS, self.quantiles))


def on_grid(values: Floats) -> FloatArray:
    """Round to multiples of 1 / GRID; -0.0 becomes 0.0."""
    return ((np.rint(values * GRID) + 0.0) / GRID).astype(np.float32)


def rounded(value: float) -> float:
    """Keep nine digits: the last of a double's sixteen depend on the CPU."""
    return float(f"{value:.9g}")
