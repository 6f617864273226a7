"""Parses a segment's text back into the captions of its steps: `A (x2) B` is A, A, B."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_REPEATED = re.compile(r"(.*) \(x([1-9]\d{0,8})\)\Z", re.DOTALL)
REMEMBERED = 100_000
"""Texts whose steps are remembered."""


class StepReader:
    """Undoes what `laurel.envs.captioner.collapse` does.

    Args:
        captions: of single steps. A text that is not made of them is taken for one step.

    >>> StepReader(["You turn.", "You stop. You wait."]).steps("You turn. (x2) You stop. You wait.")
    (('You turn.', 2), ('You stop. You wait.', 1))
    """

    def __init__(self, captions: Iterable[str]) -> None:
        self._captions = frozenset(captions) - {""}
        self._longest = max((caption.count(" ") for caption in self._captions), default=0) + 2  # of "caption (x2)"
        self.steps = lru_cache(REMEMBERED)(self._steps)

    def _steps(self, text: str) -> tuple[tuple[str, int], ...]:
        """Return (caption, how often in a row) in order; of several readings the one with the fewest parts."""
        if not text:
            return ()
        if text in self._captions:
            return ((text, 1),)
        ends = [i for i, char in enumerate(text) if char == " "] + [len(text)]
        best: dict[int, tuple[tuple[str, int], ...]] = {-1: ()}  # position of the space before -> what was read so far
        for number, end in enumerate(ends):
            starts = [*ends[max(0, number - self._longest) : number]]
            for start in [-1, *starts] if number < self._longest else starts:
                if start not in best:
                    continue
                part = self._part(text[start + 1 : end])
                if part is not None and (end not in best or len(best[start]) + 1 < len(best[end])):
                    best[end] = (*best[start], part)
        return best.get(len(text), ((text, 1),))

    def _part(self, text: str) -> tuple[str, int] | None:
        if text in self._captions:
            return text, 1
        repeated = _REPEATED.match(text)
        return (repeated[1], int(repeated[2])) if repeated and repeated[1] in self._captions else None
