"""Stopping rules: asking ends once more labels no longer change what a reward model on captions would learn.

Utilities are estimated from caption embeddings for every sampler, because the reward is learned from these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.stats import kendalltau

from laurel.arrays import DoubleArray
from laurel.feedback.posterior import EmbeddingPosterior, Labels

if TYPE_CHECKING:
    from laurel.params.annotation import StopParams

ENOUGH_HELD_OUT = 50
"""Minimum number of held-out pairs with a preference for measuring accuracy."""


class StoppingRule:
    """Checks the labels after each round.

    Args:
        embeddings: (N, E), one row per caption.
        params: rule, tolerance and patience are used; the rule is not "none".
    """

    def __init__(self, embeddings: npt.NDArray[np.floating], params: StopParams) -> None:
        self.params = params
        self._posterior = EmbeddingPosterior(embeddings)
        self._utilities: list[DoubleArray] = []
        """Estimates after the last patience + 1 rounds, the latest last."""
        self._quiet = 0
        """Consecutive rounds without a change of the order."""
        self.state = "no round is over"
        """The rule's last measurement, as text."""

    def after_round(self, labels: Labels, held_out: Labels) -> bool:
        """Return whether to stop.

        Args:
            labels: all labels so far that are used for estimates.
            held_out: all labels so far of uniformly drawn pairs that are not used for estimates.
        """
        self._posterior.fit(labels)
        self._utilities = [*self._utilities, self._posterior.utilities][-self.params.patience - 1 :]
        return self._accuracy_converged(held_out) if self.params.rule == "accuracy" else self._rank_converged()

    def _accuracy_converged(self, held_out: Labels) -> bool:
        """Compare estimates on the same pairs, since accuracies on different pairs differ by chance."""
        accuracies = [_accuracy(utilities, held_out) for utilities in self._utilities]
        decided = int((held_out.p_first != 0.5).sum())
        self.state = f"agreement with the labels {accuracies[-1]:.2f} on {decided} held-out pairs"
        if len(accuracies) <= self.params.patience or decided < ENOUGH_HELD_OUT:
            return False
        gain = max(accuracies[1:]) - accuracies[0]
        self.state += f", {gain:+z.3f} at best in {self.params.patience} rounds"
        return gain <= self.params.tolerance

    def _rank_converged(self) -> bool:
        if len(self._utilities) < 2:
            return False
        tau = float(kendalltau(self._utilities[-2], self._utilities[-1]).statistic)
        self._quiet = self._quiet + 1 if tau >= 1 - self.params.tolerance else 0  # also where tau is NaN: all equal
        self.state = f"rank correlation {tau:z.3f} with the round before"
        return self._quiet >= self.params.patience


def _accuracy(utilities: DoubleArray, held_out: Labels) -> float:
    """Return how often the better caption has the higher utility (equal: 1/2), ignoring ties."""
    decided = held_out.p_first != 0.5
    if not decided.any():
        return float("nan")
    difference = (utilities[held_out.first] - utilities[held_out.second])[decided]
    right = np.sign(difference) * np.sign(held_out.p_first[decided] - 0.5)
    return float((right + 1).mean() / 2)
