"""An actor made of a function, for tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from laurel.agents.actor import Acted, Actor, View
from laurel.arrays import Array, FloatArray


class Acting(Actor):
    """Acts by a function: features (N, F) -> actions (N,) or (N, A)."""

    def __init__(self, function: Callable[[FloatArray], Array]) -> None:
        self.function = function

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        return Acted(self.function(view.features))
