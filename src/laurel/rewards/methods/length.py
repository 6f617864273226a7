"""Control: pays a caption for its length in words, what reward models of texts are known to fall for.

An arm that it pays is a planted fault: the report is to find that its agents are paid more while they do worse.
Singhal et al. 2023, "A Long Way to Go: Investigating Length Correlations in RLHF" (arXiv 2310.03716).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from laurel.params.rewards import RewardParams
from laurel.rewards.method import Inputs, Method, RewardContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laurel.envs.base import EnvAdapter, FloatArray
    from laurel.rewards.base import Reward


class Length(Method[RewardParams]):
    """Counts words."""

    kind = "length"
    role = "control"
    summary = "the number of words of a caption"
    reads = ("captions",)

    def fit(self, params: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.data.captions import read_vocabulary
        from laurel.rewards.functions import ScoredCaptions

        texts = list(read_vocabulary(inputs.captions).texts)
        ScoredCaptions.of(texts, words(texts)).save(place)

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        from laurel.rewards.functions import ScoredCaptions

        return ScoredCaptions.load(place)[0].reward(quantile, words)


def words(texts: Sequence[str]) -> FloatArray:
    """Return how many words each text has (N,)."""
    import numpy as np

    return np.array([len(text.split()) for text in texts], dtype=np.float32)


METHOD = Length
