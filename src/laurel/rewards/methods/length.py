"""Control: rewards a caption for its length in words, a known bias of text reward models.

Its arm is a planted fault: the report should detect that its agents' reward rises while their return falls.
Singhal et al. 2023, "A Long Way to Go: Investigating Length Correlations in RLHF" (arXiv 2310.03716).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from laurel.arrays import FloatArray
from laurel.envs.base import EnvAdapter
from laurel.params.rewards import RewardParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import ScoredCaptions
from laurel.rewards.method import Inputs, Method, RewardContext


class Length(Method[RewardParams]):
    """Counts words."""

    kind = "length"
    role = "control"
    summary = "the number of words of a caption"
    reads = ("captions",)

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.data.captions import read_vocabulary

        texts = list(read_vocabulary(inputs.captions).texts)
        ScoredCaptions.of(texts, words(texts)).save(place)

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        return ScoredCaptions.load(place)[0].reward(quantile, words)


def words(texts: Sequence[str]) -> FloatArray:
    """Return how many words each text has (N,)."""
    return np.array([len(text.split()) for text in texts], dtype=np.float32)


METHOD = Length
