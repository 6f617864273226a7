"""Types of NumPy arrays by dtype (shapes are given in docstrings), and a compact copy of actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]


def compact(actions: Array) -> Array:
    """Copy actions, as bytes if there are few distinct ones."""
    small = actions.dtype.kind in "iu" and actions.size and actions.min() >= 0 and actions.max() <= 255
    return actions.astype(np.uint8) if small else actions.copy()
