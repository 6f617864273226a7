"""Additions to TRL's trainer for KTO: rows whose answers are mismatched within a batch, and an imitation term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.llm.shared_batches import share_of

if TYPE_CHECKING:
    from torch import Tensor


def mismatched(pairs: Sequence[tuple[str, str, str]], size: int, seed: int) -> list[dict[str, Any]]:
    """Return KTO's rows of pairs, each a prompt, its chosen and its rejected answer, in batches of `size` pairs.

    KTO estimates its KL divergence from answers to other prompts: to each row's prompt, TRL takes the answer of the
    row before it, within a batch, and keeps the order of the rows. So pairs come in random order, as those of a prompt
    follow each other, and the chosen answers of a batch before the rejected ones, as a pair's answers have one prompt.
    """
    order = np.random.default_rng(seed).permutation(len(pairs)).tolist()
    return [
        {"prompt": pairs[i][0], "completion": pairs[i][1 if good else 2], "label": good}
        for start in range(0, len(order), size)
        for good in (True, False)
        for i in order[start : start + size]
    ]


def imitating(base: Any, weight: float) -> Any:
    """Return TRL's KTO with the imitation term of its DPO and SimPO: the chosen answers' negative log-likelihood per
    token.
    """

    class Imitating(base):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: Any, return_outputs: bool) -> Any:
            logs: list[Tensor] = []

            def recorded(**given: Any) -> Any:
                outputs = model(**given)
                logs.append(outputs.log_probs)
                return outputs

            loss = super()._compute_loss(recorded, inputs, return_outputs)
            mask = inputs["completion_mask"][:, 1:] * inputs["label"].bool()[:, None]
            chosen = logs[-1][:, -mask.shape[1] :] * mask  # the first pass is of mismatched answers
            factor = weight * share_of(mask.sum())
            return loss - factor * chosen.sum() / mask.sum().clamp(min=1)

    return Imitating
