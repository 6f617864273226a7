"""Reward earned by each caption in each third of an agent's training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from laurel.arrays import BoolArray
from laurel.rewards.paying import Pay

CREDIT = "credit.parquet"
THIRDS = ("early", "mid", "late")
SCHEMA = pa.schema(
    [
        ("third", pa.string()),
        ("caption", pa.string()),  # empty: steps without one
        ("pay", pa.float64()),  # shaped, before its weight
        ("steps", pa.int64()),
    ]
)


class Credit:
    """Sums the reward of each caption."""

    def __init__(self) -> None:
        self._pay = np.zeros((len(THIRDS), 1))
        self._steps = np.zeros((len(THIRDS), 1), dtype=np.int64)

    def add(self, pay: Pay, valid: BoolArray, done: float) -> None:
        """Add the rewards of a rollout.

        Args:
            pay: of T steps of N environments.
            valid: (T, N) False where the environment was reset instead of stepped.
            done: fraction of the training before it.
        """
        third = min(int(done * len(THIRDS)), len(THIRDS) - 1)
        ids = pay.captions[valid] + 1
        self._make_room(int(ids.max(initial=0)) + 1)
        width = self._pay.shape[1]
        self._pay[third] += np.bincount(ids, pay.shaped[valid], minlength=width)
        self._steps[third] += np.bincount(ids, minlength=width)

    def restore(self, rows: Sequence[Mapping[str, Any]], ids: Mapping[str, int]) -> None:
        """Continue from the rows of a `table`; `ids` maps its captions to their current ids."""
        self._make_room(len(ids) + 1)
        for row in rows:
            place = THIRDS.index(row["third"]), ids[row["caption"]] + 1 if row["caption"] else 0
            self._pay[place], self._steps[place] = row["pay"], row["steps"]

    def _make_room(self, size: int) -> None:
        if size > self._pay.shape[1]:
            grown = ((0, 0), (0, 2 * size - self._pay.shape[1]))
            self._pay, self._steps = np.pad(self._pay, grown), np.pad(self._steps, grown)

    def table(self, texts: Sequence[str]) -> pa.Table:
        """Return a row for each third and caption that occurred in it; texts[id] is the caption."""
        rows = [
            {"third": name, "caption": ("", *texts)[place], "pay": float(pay[place]), "steps": int(steps[place])}
            for name, pay, steps in zip(THIRDS, self._pay, self._steps, strict=True)
            for place in np.flatnonzero(steps).tolist()
        ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)
