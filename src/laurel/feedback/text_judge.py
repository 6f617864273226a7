"""Judgements of single texts by annotators other than chat models, based on a number per text.

`utility` suffices for rewards of the kinds score, goals and outcome and for online labels of single captions; the other
methods are for judges with other ways of answering these questions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from laurel.arrays import BoolArray, DoubleArray, IntArray


class TextJudge(ABC):
    """Judges texts one by one. Its model is loaded at the first text, so that it can be made for a check."""

    name: str
    """Its display name, with its model."""

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
