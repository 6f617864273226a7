"""Judgements of single texts by annotators other than chat models, based on a number per text.

`utility` suffices for rewards of the kinds score, goals and outcome and for online labels of single captions; the other
methods are for judges with other ways of answering these questions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

from laurel.arrays import Array, BoolArray, DoubleArray, IntArray
from laurel.errors import AnnotationError
from laurel.plugins import wrap_methods

ANSWERS = {
    "utility": ("biuf", "an array of finite numbers"),
    "scores": ("biuf", "an array of finite numbers"),
    "helpful": ("b", "an array of Booleans"),
    "reached": ("b", "an array of Booleans"),
}
"""Methods that another package's judge may define -> kinds of numpy's types, and these in words."""


class TextJudge(ABC):
    """Judges texts one by one. Its model is loaded at the first text, so that it can be made for a check."""

    name: str
    """Its display name, with its model."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        wrap_methods(
            cls, {name: partial(_checked, name, kinds, required) for name, (kinds, required) in ANSWERS.items()}
        )

    @property
    def provenance(self) -> str:
        """Its name with everything its answers depend on; may load a model."""
        return self.name

    @abstractmethod
    def utility(self, texts: Sequence[str]) -> DoubleArray:
        """Return a number (N,) per text: higher is better, and above 0 it helps towards the goal."""

    def helpful(self, texts: Sequence[str]) -> BoolArray:
        """Return whether each text, the caption of a step, helps towards the goal (N,)."""
        return self.utility(texts) > 0

    def scores(self, texts: Sequence[str], groups: IntArray) -> DoubleArray:
        """Return a score for each text of each group (G, size), where groups contain indices of texts."""
        return self.utility(texts)[groups]

    def without_outcomes(self) -> str | None:
        """Return why it cannot judge whether episodes reached the goal, as a sentence; None if it can."""
        return None

    def reached(self, texts: Sequence[str]) -> BoolArray:
        """Return whether each text, the outcome of an episode, means that the goal was reached (N,)."""
        return self.utility(texts) > 0


def _checked(name: str, kinds: str, required: str, method: Callable[..., Any]) -> Callable[..., Array]:
    """Wrap a method of another package's judge, to refuse results that are not one valid answer per text."""

    @wraps(method)
    def checked(self: TextJudge, texts: Sequence[str], groups: IntArray | None = None) -> Array:
        shape = (len(texts),) if groups is None else groups.shape
        returned = np.asarray(method(self, texts) if groups is None else method(self, texts, groups))
        if not returned.size and returned.shape == shape:
            return returned.astype(np.bool_ if kinds == "b" else np.float64)
        if returned.shape == shape and returned.dtype.kind in kinds and np.isfinite(returned).all():
            return returned.astype(np.bool_ if kinds == "b" else np.float64, copy=False)
        right = returned.shape == shape and returned.dtype.kind == "f" and "f" in kinds
        described = "NaN or infinity" if right else f"an array of shape {returned.shape} and type {returned.dtype}"
        raise AnnotationError(
            f"The judge {type(self).__module__}.{type(self).__qualname__}: its {name} returned {described} for "
            f"{len(texts):,} texts, but {required} of shape {shape} is required. Fix it."
        )

    return checked
