"""The bonus of random network distillation; see `laurel.rewards.methods.rnd`. Learns from the steps that it pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from laurel.adam import Adam
from laurel.arrays import Array, DoubleArray, FloatArray
from laurel.rewards.base import UNPAID, Steps
from laurel.seeding import derive_seed

CLIP = 5.0
"""Normalised features are clipped at this value, as in the paper."""
TINY = 1e-8
ALIKE = 1e-6
"""Share of the squared mean of the sums below which their variance counts as 0."""


@dataclass
class Moments:
    """Mean and variance of all rows so far (Chan et al. 1979, parallel form)."""

    mean: DoubleArray = field(default_factory=lambda: np.zeros(1))
    variance: DoubleArray = field(default_factory=lambda: np.ones(1))
    count: int = 0

    def update(self, rows: DoubleArray) -> None:
        """Add rows (N, F)."""
        n, mean, variance = len(rows), rows.mean(axis=0), rows.var(axis=0)
        total, shift = self.count + n, mean - self.mean
        spread = self.variance * self.count + variance * n + shift**2 * self.count * n / total
        self.mean, self.variance, self.count = self.mean + shift * n / total, spread / total, total


class Distillation:
    """Rewards steps with the prediction error of a network that is trained to match a fixed random one.

    Args:
        features: packed observations (N, D) -> (N, F).
        seed: draws the networks.
        batch_size: steps per gradient step; each step is used once.
        gamma: discount of the sums that normalise the bonus.
    """

    threshold, unseen = 0.0, 0

    def __init__(
        self,
        features: Callable[[Array], FloatArray],
        *,
        seed: int,
        width: int,
        learning_rate: float,
        batch_size: int,
        gamma: float,
    ) -> None:
        self._features, self._seed, self._width = features, seed, width
        self._learning_rate, self._batch_size, self._gamma = learning_rate, batch_size, gamma
        self._networks: tuple[nn.Module, nn.Module] | None = None

    def begin(self, n_envs: int) -> None:
        """Discard everything learned: a new training run or evaluation begins."""
        self._networks = None
        self._seen, self._sums = Moments(), Moments()
        self._discounted = np.zeros(n_envs)

    def pay(self, steps: Steps) -> FloatArray:
        """Return the bonus of each step (T, N), then learn from the steps."""
        valid = steps.valid
        paid = np.full(valid.shape, UNPAID)
        if not valid.any():
            return paid
        features = self._features(steps.transitions.next_observation)[valid.reshape(-1)].astype(np.float64)
        self._seen.update(features)
        scaled = (features - self._seen.mean) / np.sqrt(self._seen.variance + TINY)
        rows = torch.from_numpy(np.clip(scaled, -CLIP, CLIP).astype(np.float32))
        target, predictor = self._network_pair(rows.shape[1])
        with torch.no_grad():
            wanted = target(rows)
            error = ((predictor(rows) - wanted) ** 2).mean(dim=1).double().numpy()
        bonus, sums = np.zeros(valid.shape), np.empty(valid.shape)
        bonus[valid] = error
        for t, live in enumerate(valid):  # as in the paper, novelty is non-episodic: sums continue across episodes
            self._discounted[live] = self._gamma * self._discounted[live] + bonus[t, live]
            sums[t] = self._discounted
        self._sums.update(sums[valid].reshape(-1, 1))
        paid[valid] = error / np.sqrt(self._spread() + TINY)
        self._learn(rows, wanted)
        return paid

    def _spread(self) -> float:
        """Return the variance of the sums; their square where all are equal, as after one step of one environment.

        Divided by a variance of 0, the first bonus would be thousands of times the later ones.
        """
        variance, square = float(self._sums.variance[0]), float(self._sums.mean[0] ** 2)
        return variance if variance > ALIKE * square else square

    def _network_pair(self, n_features: int) -> tuple[nn.Module, nn.Module]:
        if self._networks is None:
            with torch.random.fork_rng():
                torch.manual_seed(derive_seed(self._seed, "rnd"))
                target, predictor = (_network(n_features, self._width) for _ in range(2))
            self._networks = target, predictor
            self._optimizer = Adam(predictor.parameters(), self._learning_rate, fused=None)
        return self._networks

    def _learn(self, rows: torch.Tensor, wanted: torch.Tensor) -> None:
        assert self._networks is not None
        for start in range(0, len(rows), self._batch_size):
            part = slice(start, start + self._batch_size)
            loss = ((self._networks[1](rows[part]) - wanted[part]) ** 2).mean()
            self._optimizer.zero_grad()
            torch.autograd.backward(loss)
            self._optimizer.step()


def _network(n_features: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_features, width), nn.ReLU(), nn.Linear(width, width))
