"""Under which key an answer is kept: a digest of all that it depends on, made without putting the question in words.

What all questions of a run share is digested once: who is asked, the prompt with the words of the environment, the
sampling, the form of the answer. A question adds its captions in their order and the number of the vote. Knows
nothing about where answers are kept.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from laurel.envs.base import EnvAdapter
from laurel.feedback.prompt import LONGEST, Prompt, as_text
from laurel.llm.chat import Identity, Sampling

_BYTES = 16
"""Of a digest: two of 2^64 questions share one by chance."""
_SCHEMA = (
    '{"type": "object", "properties": {"analysis": {"type": "string"}, "best_description": {"enum": [1, 2, null]}}, '
    '"required": ["analysis", "best_description"], "additionalProperties": false}'
)
"""Stands for what `Prompt.schema` allows, as it was first written, so that its wording changes no key."""
_SAMPLE = ('Say "é" & {{ x }}\n\x00\u2028', "x" * (LONGEST + 1))
"""Captions that show all that is done to a caption before it stands in a prompt."""


class QuestionKeys:
    """The keys of a run's questions.

    Args:
        identity: who is asked.
        prompt: in which words.
        adapter: has the words of the task.
        goal: what to steer by, as for `Prompt.messages`.
        sampling: how answers are drawn; the seed is the vote's.
        choices: answers whose probabilities are wanted.
    """

    def __init__(
        self,
        identity: Identity,
        prompt: Prompt,
        adapter: EnvAdapter,
        goal: str | None,
        sampling: Sampling,
        choices: tuple[str, ...],
    ) -> None:
        sample = prompt.messages(*_SAMPLE, adapter, goal)
        shared = {
            "identity": asdict(identity),
            "prompt": prompt.digest,  # a template may ask what a caption says, which no sample shows
            "words": prompt.words(adapter, goal),
            "sample": [asdict(message) for message in (*sample, *prompt.follow_up((), ""))],
            "sampling": {**sampling.told(), "seed": None},
            "choices": choices,
            "schema": _SCHEMA if prompt.answer == "json" else None,
        }
        self._shared = json.dumps(shared, sort_keys=True)
        self._begun: dict[int, hashlib.blake2b] = {}

    def of(self, first: str, second: str, vote: int) -> str:
        """Return the key of the answer to a question: the captions as they are shown, and which vote it is."""
        begun = self._begun.get(vote)
        if begun is None:
            begun = self._begun[vote] = hashlib.blake2b(f"{vote}:{self._shared}".encode(), digest_size=_BYTES)
        digest = begun.copy()
        digest.update(f"{len(first)}:{first}{second}".encode("utf-8", "surrogatepass"))
        if ("<" in first or "<" in second or "[" in first or "[" in second) and as_text(
            first + second
        ) != first + second:
            digest.update(
                b":as text"
            )  # they were once shown as they are, which a model may have taken for its own turns
        return digest.hexdigest()

    @staticmethod
    def follow_up(key: str, answer: str) -> str:
        """Return the key of the answer to a follow-up: to which question, and what had been answered."""
        said = f"{key}:{answer}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(said, digest_size=_BYTES).hexdigest()
