"""The key of an answer in the store: a digest of everything the answer depends on, without rendering the prompt.

The part shared by all questions of a run is digested once: model, prompt with the environment's texts, sampling, answer
format. A question adds its item and the number of the vote.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any, Generic

from laurel.feedback.question import Item, Question
from laurel.llm.chat import Identity, Sampling

_BYTES = 16
"""Bytes of a digest: a collision is to be expected only among some 2^64 questions."""


class QuestionKeys(Generic[Item]):
    """The keys of a run's questions.

    Args:
        question: its kind and prompt.
        sampling: sampling settings; the seed is the vote's number.
    """

    def __init__(self, identity: Identity, question: Question[Item, Any], sampling: Sampling) -> None:
        shared = {
            "identity": asdict(identity),
            "sampling": {**sampling.recorded(), "seed": None},
            **question.shared(),
        }
        self._shared = json.dumps(shared, sort_keys=True)
        self._question = question
        self._begun: dict[int, hashlib.blake2b] = {}

    def of(self, item: Item, variant: int = 0, vote: int = 0) -> str:
        """Return the key of an answer by item, variant and vote."""
        begun = self._begun.get(vote)
        if begun is None:
            begun = self._begun[vote] = hashlib.blake2b(f"{vote}:{self._shared}".encode(), digest_size=_BYTES)
        digest = begun.copy()
        digest.update(self._question.content(item, variant).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    @staticmethod
    def follow_up(key: str, answer: str) -> str:
        """Return the key of the answer to a follow-up by the question's key and the unreadable answer."""
        answered = f"{key}:{answer}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(answered, digest_size=_BYTES).hexdigest()
