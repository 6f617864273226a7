"""Comparisons with a known truth, and the settings of a small ensemble that learns from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from laurel.params.rewards import PreferenceParams
from laurel.rewards.bradley_terry import Comparisons


def params(**changes: Any) -> PreferenceParams:
    return PreferenceParams.model_validate({"ensemble": 3, "hidden": [16], "max_epochs": 60, "patience": 10, **changes})


def units(features: np.ndarray, first: Any, second: Any, p_first: Any) -> Comparisons:
    """Comparisons of items, each a segment and a group of its own."""
    n = np.arange(len(features), dtype=np.int64)
    return Comparisons(n[:, None], n, np.asarray(first), np.asarray(second), np.asarray(p_first, dtype=np.float64))


def planted(
    n_items: int = 60, n_pairs: int = 600, *, noise: float = 0.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, Comparisons]:
    """Features, a linear utility of them, and which of a pair has the higher one; `noise` of the answers are lies."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_items, 8)).astype(np.float32)
    utility = features @ rng.standard_normal(8)
    first, second = rng.integers(0, n_items, (2, n_pairs))
    second = np.where(first == second, (second + 1) % n_items, second)
    truth = utility[first] > utility[second]
    lies = rng.random(n_pairs) < noise
    return features, utility, units(features, first, second, (truth != lies).astype(float))
