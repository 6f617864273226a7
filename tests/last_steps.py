"""Last steps of episodes, for `EnvAdapter.succeeded`."""

from __future__ import annotations

import numpy as np

from laurel.envs.base import Transitions


def last_steps(*terminated: bool) -> Transitions:
    """Return the last steps of episodes that terminated, or were cut off, of which nothing else is known."""
    n, end = len(terminated), np.array(terminated)
    nothing = np.zeros((n, 1), np.float32)
    return Transitions(nothing, np.zeros(n, np.int64), np.zeros(n, np.float32), nothing, end, ~end)
