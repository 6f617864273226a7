"""Normalises rewards by their standard deviation over distinct captions, rounded so that all CPUs agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from laurel.arrays import DoubleArray, FloatArray
from laurel.errors import DataError

Floats = FloatArray | DoubleArray
LEVELS = np.linspace(0, 1, 101)
"""Levels of the stored quantiles."""
GRID = 2.0**20
"""Rewards are multiples of 1 / GRID, far coarser than double-precision rounding differences."""


@dataclass(frozen=True)
class Normalizer:
    """Turns raw rewards into units of their spread over distinct captions, in multiples of 1 / GRID."""

    mean: float
    sd: float
    """Standard deviation; if 0, everything normalises to 0."""
    quantiles: tuple[float, ...]
    """Quantiles of the normalised rewards, at LEVELS."""

    @classmethod
    def of(cls, raw: Floats) -> Normalizer:
        """Fit to the raw rewards of distinct captions.

        Raises:
            DataError: one is NaN or infinite; all would be normalised to 0.
        """
        if not np.isfinite(raw).all():
            raise DataError(
                f"{np.count_nonzero(~np.isfinite(raw)):,} of {len(raw):,} captions or texts have a reward that is NaN "
                "or infinite: its model diverged (lower its learning_rate), or its method returns no numbers."
            )
        mean, sd = rounded(np.mean(raw, dtype=np.float64)), rounded(np.std(raw, dtype=np.float64))
        scale = cls(mean, sd if sd > 1e-8 else 0.0, ())
        return cls(scale.mean, scale.sd, tuple(np.quantile(scale(raw), LEVELS).tolist()))

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Normalizer:
        """Read one that `dataclasses.asdict` has written; raise KeyError or TypeError where it is damaged."""
        return cls(content["mean"], content["sd"], tuple(content["quantiles"]))

    def __call__(self, raw: Floats) -> FloatArray:
        if self.sd == 0:
            return np.zeros(raw.shape, dtype=np.float32)
        return on_grid((raw - self.mean) / self.sd)

    def threshold(self, quantile: float) -> float:
        """Return the normalised reward at a quantile, interpolated between stored ones."""
        return float(np.interp(quantile, LEVELS, self.quantiles))


def on_grid(values: Floats) -> FloatArray:
    """Round to multiples of 1 / GRID; -0.0 becomes 0.0."""
    return ((np.rint(values * GRID) + 0.0) / GRID).astype(np.float32)


def rounded(value: float) -> float:
    """Round to nine digits: the last of a double's sixteen digits depend on the CPU."""
    return float(f"{value:.9g}")
