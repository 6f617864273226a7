"""What an annotator that asks no chat model says of single texts, from a number that it gives each of them.

`utility` is enough for rewards of the kinds score, goals and outcome and for online labels of single captions; the
other methods are for judges that answer those questions in ways of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from laurel.arrays import BoolArray, DoubleArray, IntArray


class TextJudge(ABC):
    """Judges texts one by one. Loads what it needs at the first text, so that it can be made for a check."""

    name: str
    """Its name for a reader, with its model's."""

    @property
    def provenance(self) -> str:
        """Its name with all that its answers depend on; may load a model."""
        return self.name

    @abstractmethod
    def utility(self, texts: Sequence[str]) -> DoubleArray:
        """Return a number (N,) for each text: more is better, and above 0 it serves the goal."""

    def helpful(self, texts: Sequence[str]) -> BoolArray:
        """Return whether each text, the caption of a step, helps towards the goal (N,)."""
        return self.utility(texts) > 0

    def scores(self, texts: Sequence[str], groups: IntArray) -> DoubleArray:
        """Return a score for each text of each group (G, size), where groups hold numbers of texts."""
        return self.utility(texts)[groups]

    def without_outcomes(self) -> str | None:
        """Return why it cannot say here whether episodes reached the goal, as a sentence; None if it can."""
        return None

    def reached(self, texts: Sequence[str]) -> BoolArray:
        """Return whether each text, the outcome of an episode, says that the goal was reached (N,)."""
        return self.utility(texts) > 0
