"""Counts of captions and segments over shards of steps; memory grows only with the number of distinct ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from laurel.data.captions import Segments, Vocabulary
from laurel.data.trajectories import Position
from laurel.envs.base import IntArray
from laurel.envs.captioner import NOTHING, collapse


class CaptionTally:
    """How often each caption occurred, and where first."""

    def __init__(self) -> None:
        self.transitions = 0
        self._counts = np.zeros(0, dtype=np.int64)
        self._first_episode = np.zeros(0, dtype=np.int64)
        self._first_t = np.zeros(0, dtype=np.int32)

    @property
    def captioned(self) -> int:
        """Steps about which there was something to say."""
        return int(self._counts.sum())

    @property
    def distinct(self) -> int:
        return int((self._counts > 0).sum())

    def update(self, position: Position, ids: IntArray) -> None:
        """Count the captions of N steps, ids (N,), later ones than those counted before."""
        self.transitions += len(ids)
        present = np.flatnonzero(ids != NOTHING)
        met, first, counts = np.unique(ids[present], return_index=True, return_counts=True)
        self._grow(int(met.max(initial=-1)) + 1)
        new = self._counts[met] == 0
        rows = present[first[new]]
        self._first_episode[met[new]] = position.episode_id[rows]
        self._first_t[met[new]] = position.t[rows]
        self._counts[met] += counts

    def vocabulary(self, texts: Sequence[str]) -> Vocabulary:
        """Join the counts with what the ids say."""
        self._grow(len(texts))
        return Vocabulary(texts, self._counts, self._first_episode, self._first_t)

    def _grow(self, size: int) -> None:
        more = size - len(self._counts)
        if more > 0:
            self._counts = np.pad(self._counts, (0, more))
            self._first_episode = np.pad(self._first_episode, (0, more), constant_values=-1)
            self._first_t = np.pad(self._first_t, (0, more), constant_values=-1)


class SegmentTally:
    """How often each sequence of captions occurred in non-overlapping windows of an episode's steps.

    Args:
        length: L, steps of a window; the last of an episode may be shorter. Steps about which there is
            nothing to say are left out, and so are windows without any caption.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self._counts: dict[bytes, int] = {}

    def update(self, position: Position, ids: IntArray) -> None:
        """Count the windows of whole episodes, ids (N,)."""
        begins = position.t % self.length == 0
        present = ids != NOTHING
        window = np.cumsum(begins) - 1
        ordinal = np.cumsum(present) - 1  # among all captions; minus that of the window's first: its place
        place = ordinal[present] - (np.cumsum(present) - present)[begins][window[present]]
        rows = np.full((int(begins.sum()), self.length), NOTHING, dtype=np.int32)
        rows[window[present], place] = ids[present]
        rows = rows[rows[:, 0] != NOTHING]
        distinct, first, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
        for i in np.argsort(first):  # in order of appearance, which settles ids and ties
            key = distinct[i].tobytes()
            self._counts[key] = self._counts.get(key, 0) + int(counts[i])

    def segments(self, texts: Sequence[str], at_most: int) -> tuple[Segments, int]:
        """Return the most frequent segments in order of appearance, and how many were dropped."""
        counts = np.array(list(self._counts.values()), dtype=np.int64)
        kept = np.sort(np.argsort(-counts, kind="stable")[:at_most])
        keys = list(self._counts)
        members = np.frombuffer(b"".join(keys[i] for i in kept), dtype=np.int32).reshape(-1, self.length)
        joined = [collapse([texts[caption] for caption in row if caption != NOTHING]) for row in members.tolist()]
        return Segments(joined, counts[kept], members.astype(np.int64)), len(counts) - len(kept)
