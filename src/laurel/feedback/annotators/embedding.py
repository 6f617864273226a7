"""A sentence encoder as annotator: prefers the text that is more similar to the goal than to the anti-goal.

    utility(text) = cos(text, goal) - cos(text, anti-goal)
    p(first) = sigmoid((utility(first) - utility(second)) / temperature)

The order of the texts does not matter, so there is no position bias to remove. Labels are the same on every CPU: the
encoder's vectors are rounded such that the utility is exact, and p is rounded to DECIMALS.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice

import numpy as np

from laurel.arrays import BoolArray, DoubleArray
from laurel.device import torch_device
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Judgement, Pair
from laurel.feedback.annotator_kind import Advice, Alike, AnnotatorKind, is_directory, remedy_of_ties
from laurel.feedback.goals import embedding_goals, goal_in_words
from laurel.feedback.text_judge import TextJudge
from laurel.llm.budget import Budget
from laurel.llm.encoder import SentenceEncoder, check_name, load_encoder
from laurel.params.judges import EmbeddingParams

STREAM = 4096
"""Pairs whose texts are encoded together; memory does not grow with the number of pairs."""
DECIMALS = 9
"""Decimals of a probability: coarser than the differences between implementations of tanh (1e-16), yet fine enough."""
SIMILAR = 0.9
"""Minimum cosine similarity of two tasks' goals that count as alike."""


class EmbeddingAnnotator:
    """Prefers texts similar to the goal; caches the utility of every text."""

    simulated = False

    def __init__(self, encoder: SentenceEncoder, params: EmbeddingParams, goal: str, anti_goal: str) -> None:
        self.encoder = encoder
        self.params = params
        self.goal = goal
        self.anti_goal = anti_goal
        self.name = f'embedding ({encoder.name}; goal "{goal}", anti-goal "{anti_goal}")'
        self._aims = encoder.encode([goal, anti_goal]).astype(np.float64)
        self._utilities: dict[str, float] = {}

    @classmethod
    def load(cls, params: EmbeddingParams, adapter: EnvAdapter) -> EmbeddingAnnotator:
        """Load the encoder; goal and anti-goal are the adapter's unless set in the params.

        Raises:
            AnnotationError: no goal is known, or the encoder cannot be loaded.
        """
        goals = embedding_goals(params, adapter)
        encoder = load_encoder(params.model, torch_device(params.device, "annotate.embedding.device"))
        return cls(encoder, params, *goals)

    def utility(self, texts: list[str]) -> DoubleArray:
        """Return each text's (N,) similarity to the goal minus that to the anti-goal, in [-2, 2]."""
        vectors = self.encoder.encode(texts).astype(np.float64)
        return vectors @ self._aims[0] - vectors @ self._aims[1]

    @property
    def usage(self) -> dict[str, float | None]:
        return {}

    def prepare(self, pairs: Iterable[Pair]) -> None:
        """Encode the texts of all pairs, STREAM pairs at a time."""
        stream = iter(pairs)
        while chunk := list(islice(stream, STREAM)):
            new = list(dict.fromkeys(t for q in chunk for t in (q.first, q.second) if t not in self._utilities))
            self._utilities.update(zip(new, self.utility(new).tolist(), strict=True))

    def annotate(self, pairs: Iterable[Pair]) -> Iterator[Judgement]:
        """Yield a soft judgement for each pair; differences within the tie band are ties."""
        stream = iter(pairs)
        while chunk := list(islice(stream, STREAM)):
            self.prepare(chunk)
            for pair in chunk:
                difference = self._utilities[pair.first] - self._utilities[pair.second]
                if abs(difference) <= self.params.tie_band:
                    yield Judgement("tie", 0.5)
                else:
                    # tanh is the sigmoid without an exponential that overflows
                    p = (1 + math.tanh(difference / self.params.temperature / 2)) / 2
                    yield Judgement("ok", round(p, DECIMALS))


class EmbeddingTexts(TextJudge):
    """Says yes to texts that are more similar to the goal than to the anti-goal."""

    def __init__(self, params: EmbeddingParams, adapter: EnvAdapter) -> None:
        self._params, self._adapter = params, adapter
        self.name = f"embedding ({params.model})"

    @cached_property
    def _annotator(self) -> EmbeddingAnnotator:
        return EmbeddingAnnotator.load(self._params, self._adapter)

    @property
    def provenance(self) -> str:
        return self._annotator.name

    def utility(self, texts: Sequence[str]) -> DoubleArray:
        return self._annotator.utility(list(texts))


def similar(texts: Sequence[str], model: str) -> BoolArray:
    """Return which pairs of K texts have a cosine similarity of at least SIMILAR (K, K)."""
    vectors = load_encoder(model).encode(list(texts)).astype(np.float64)
    return np.asarray(vectors @ vectors.T >= SIMILAR)


class EmbeddingKind(AnnotatorKind):
    """The annotator `embedding`."""

    Params = EmbeddingParams

    def make(
        self, adapter: EnvAdapter, seed: int, captions: Collection[str] = (), *, budget: Budget | None = None
    ) -> EmbeddingAnnotator:
        """Load the encoder; errors as in `EmbeddingAnnotator.load`."""
        return EmbeddingAnnotator.load(self.section, adapter)

    def text_judge(self, adapter: EnvAdapter, seed: int, captions: Collection[str] = ()) -> EmbeddingTexts:
        return EmbeddingTexts(self.section, adapter)

    def alike(self) -> Alike:
        return partial(similar, model=self.section.model)

    def check(self, adapter: EnvAdapter) -> None:
        """Refuse an environment without a goal, unless the params give one."""
        embedding_goals(self.section, adapter)

    def check_here(self) -> None:
        """Refuse a directory that does not hold an encoder."""
        check_name(self.section.model)

    @property
    def files(self) -> dict[str, str]:
        """The encoder's folder."""
        return {"embedding.model": self.section.model} if is_directory(self.section.model) else {}

    def goal(self, adapter: EnvAdapter) -> str:
        """Return the goal in words, to which a person's labels belong; see `embedding_goals` for what is compared."""
        return self.section.goal or goal_in_words(adapter, None)

    @property
    def advice(self) -> Advice:
        goals = "a goal and an anti-goal in the captions' words (annotate.embedding.goal and anti_goal)"
        encoder = "another encoder (annotate.embedding.model)"
        return Advice(
            asking=encoder,
            aim=f"{goals}, {encoder} or another annotator (annotate.annotator)",
            ties=remedy_of_ties(self.section.tie_band, "annotate.embedding.tie_band", goals),
        )


ANNOTATOR = EmbeddingKind
