"""Captions of transitions as dictionary-encoded text, for both collected data and the reward during training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from laurel.arrays import BoolArray, IntArray
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.guard import NOT_OURS, failure, not_text
from laurel.errors import EnvError, LaurelError
from laurel.plugins import in_short

NO_CAPTION = -1
"""Caption id of a transition without a caption."""


class Captioner:
    """Maps transitions to caption ids; `texts[id]` is the caption.

    Ids are numbered by first occurrence, so they are valid for this object only; the texts are a pure function of the
    transitions. Distinct events with the same text share an id.
    """

    def __init__(self, adapter: EnvAdapter, *, enumerate_events: bool = False) -> None:
        self.adapter = adapter
        self.texts: list[str] = []
        self._ids: dict[str, int] = {}
        self._known: dict[int, int] = {}
        self._dense = np.zeros(0, dtype=np.int64)
        if enumerate_events:
            for event in adapter.events():
                self._id_of(int(event))

    def ids(self, transitions: Transitions) -> IntArray:
        """Return the caption id of each transition (N,), NO_CAPTION where it has no caption.

        Raises:
            EnvError: the adapter fails, a caption is not text, or the transitions lack fields of `info` that the
                adapter names.
        """
        if len(transitions) == 0:
            return np.zeros(0, dtype=np.int64)
        missing = set(self.adapter.info_fields) - set(transitions.info)
        if missing:
            raise EnvError(
                f"{self.adapter.env_id}: these steps were stored without {', '.join(sorted(missing))} of the "
                "environment's info, which its adapter needs now. Run laurel collect again."
            )
        try:  # not a context manager: this is done in every step of training
            events = self.adapter.encode(transitions)
        except LaurelError:
            raise
        except NOT_OURS as error:
            raise failure(self.adapter.env_id, "adapter's encode", error) from error
        if not isinstance(events, np.ndarray) or events.shape != (len(transitions),) or events.dtype.kind not in "iu":
            raise EnvError(
                f"{self.adapter.env_id}: the adapter's encode returned {in_short(events)} for {len(transitions)} "
                f"transitions, but an array of {len(transitions)} whole numbers is required. Fix its adapter."
            )
        if events.min() >= 0 and events.max() < 1 << 20:
            return self._ids_dense(events)
        distinct, inverse = np.unique(events, return_inverse=True)
        return np.array([self._id_of(int(event)) for event in distinct], dtype=np.int64)[inverse]

    def ids_of(self, transitions: Transitions, valid: BoolArray) -> IntArray:
        """Return caption ids as `ids` does, NO_CAPTION for rows that are not `valid` (N,), i.e. resets."""
        if valid.all():
            return self.ids(transitions)
        ids = np.full(len(transitions), NO_CAPTION, dtype=np.int64)
        ids[valid] = self.ids(transitions[valid])
        return ids

    def restore(self, texts: Sequence[str]) -> None:
        """Restore the numbering of captions from an earlier run, in this order."""
        for text in texts:
            if text not in self._ids:
                self._ids[text] = len(self.texts)
                self.texts.append(text)

    def _ids_dense(self, events: IntArray) -> IntArray:
        """Look small event numbers up in an array: the fast path during training, without sorting."""
        if events.max() >= len(self._dense):
            grown = np.full(int(events.max()) + 1, NO_CAPTION - 1, dtype=np.int64)
            grown[: len(self._dense)] = self._dense
            self._dense = grown
        ids = self._dense[events]
        unmet = ids == NO_CAPTION - 1
        if unmet.any():
            for event in dict.fromkeys(events[unmet].tolist()):  # in order of appearance
                self._dense[event] = self._id_of(event)
            ids = self._dense[events]
        return ids

    def _id_of(self, event: int) -> int:
        if event not in self._known:
            try:
                text = self.adapter.describe(event)
            except LaurelError:
                raise
            except NOT_OURS as error:
                raise failure(self.adapter.env_id, "adapter's describe", error) from error
            if text and text not in self._ids:
                self._check_text(text)
                self._ids[text] = len(self.texts)
                self.texts.append(text)
            self._known[event] = self._ids[text] if text else NO_CAPTION
        return self._known[event]

    def _check_text(self, caption: object) -> None:
        if not isinstance(caption, str):
            raise not_text(self.adapter.env_id, caption)
        try:
            caption.encode()
        except UnicodeEncodeError as error:
            raise EnvError(
                f"{self.adapter.env_id}: a caption is not text, {caption[:60]!a}: {error.reason} at character "
                f"{error.start}. Fix its adapter."
            ) from None


def collapse(texts: list[str]) -> str:
    """Join a segment's captions; consecutive repeats read `text (xN)` (Motif, arXiv 2310.00166).

    >>> collapse(["You turn.", "You turn.", "", "You bump into a wall."])
    'You turn. (x2) You bump into a wall.'
    """
    runs: list[tuple[str, int]] = []
    for text in texts:
        if not text:
            continue
        if runs and runs[-1][0] == text:
            runs[-1] = (text, runs[-1][1] + 1)
        else:
            runs.append((text, 1))
    return " ".join(text if count == 1 else f"{text} (x{count})" for text, count in runs)
