"""Judgements of single texts by annotators other than chat models, based on a number per text.

`utility` suffices for rewards of the kinds score, goals and outcome and for online labels of single captions; the other
methods are for judges with other ways of answering these questions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from laurel.arrays import BoolArray, DoubleArray, IntArray
from laurel.errors import AnnotationError
from laurel.plugins import is_ours


class TextJudge(ABC):
    """Judges texts one by one. Its model is loaded at the first text, so that it can be made for a check."""

    name: str
    """Its display name, with its model."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "utility" in vars(cls) and not is_ours(cls):
            cls.utility = _checked(cls.utility)  # type: ignore[method-assign]

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


def _checked(utility: Callable[..., Any]) -> Callable[..., DoubleArray]:
    """Wrap `utility` of another package's judge to refuse what are not finite numbers, one for each text."""

    @wraps(utility)
    def checked(self: TextJudge, texts: Sequence[str]) -> DoubleArray:
        given = utility(self, texts)
        found = np.asarray(given)
        if found.shape == (len(texts),) and found.dtype.kind in "biuf" and np.isfinite(found).all():
            return found.astype(np.float64, copy=False)
        right = found.shape == (len(texts),) and found.dtype.kind == "f"
        said = "NaN or infinity" if right else f"an array of shape {found.shape} and type {found.dtype}"
        raise AnnotationError(
            f"The judge {type(self).__module__}.{type(self).__qualname__}: its utility returned {said} for "
            f"{len(texts):,} texts, but an array of {len(texts):,} finite numbers is required. Fix it."
        )

    return checked
