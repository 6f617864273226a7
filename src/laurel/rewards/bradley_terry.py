"""A Bradley-Terry ensemble: learns rewards of items, so that the better item of a pair has the higher reward.

    p(first better) = sigmoid(r(first) - r(second)),  r(segment) = L / n (sum of r over its n items)

with L the number of items of the longest segment (Bradley and Terry 1952; Christiano et al. 2017, arXiv 1706.03741, who
sum over segments of equal length): a shorter segment is extrapolated to length L, so that length itself has no value.
Items are rows of features of any kind. All members are trained at once, as one batched network.

Computes in the precision of the features. In double precision training gives the same weights, to single precision, on
every CPU; in single precision it takes about half the time, but weights depend on the order in which a CPU adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from laurel.adam import Adam
from laurel.arrays import Array, BoolArray, DoubleArray, IntArray
from laurel.params.rewards import Activation, PreferenceParams
from laurel.rewards.normalizer import Floats

CPU = torch.device("cpu")
WEIGHT_GRID = 2.0**24
"""Weights of a trained ensemble are multiples of 1 / WEIGHT_GRID, so that CPUs seldom differ by rounding errors."""
PREDICTED_ITEMS = 2**18
"""Maximum number of items per forward pass, which bounds memory."""
CLEAR = 0.25
"""Labels at least this far from 1/2 are clear: p(first better) up to 25% or from 75% on."""
CLEAR_MARGIN = math.log((0.5 + CLEAR) / (0.5 - CLEAR))
"""The same as a difference of rewards."""
TIE = 1e-6
"""Differences of rewards up to this may be rounding errors."""
ENOUGH = 0.99
"""Share of clear labels to follow: all of fewer than a hundred."""
DENSE = 0.5
"""From this share of judged pairs on, rewards should follow labels rather than carry over to other pairs."""


@dataclass(frozen=True)
class Comparisons:
    """P judged pairs of segments; a segment is up to L items."""

    members: IntArray
    """(S, L) item numbers of each segment, -1 where it is shorter."""
    group: IntArray
    """(S,) segments of a group have the same text, and are held out together."""
    first: IntArray
    """(P,) segments."""
    second: IntArray
    p_first: DoubleArray
    """(P,) probability that the first is better; 1/2 for ties."""

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, rows: Array) -> Comparisons:
        return Comparisons(self.members, self.group, self.first[rows], self.second[rows], self.p_first[rows])


class Ensemble(nn.Module):
    """K multi-layer perceptrons with a scalar output, evaluated as batched matrix products.

    Args:
        n_features: F, width of an item's features.
        hidden: widths of the hidden layers.
        size: K, number of members.
        seed: of the initialisation, the only difference between members before training. Biases of tanh units start
            at 0; those of ReLU units are drawn, since otherwise all would have their kink at the origin.
    """

    def __init__(
        self, n_features: int, hidden: tuple[int, ...], size: int, seed: int = 0, activation: Activation = "tanh"
    ) -> None:
        super().__init__()
        self._config = {"n_features": n_features, "hidden": hidden, "size": size, "activation": activation}
        self._activate = {"tanh": torch.tanh_, "relu": torch.relu_}[activation]
        generator = torch.Generator().manual_seed(seed)
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for n_in, n_out in pairwise((n_features, *hidden, 1)):
            bound = 1 / math.sqrt(n_in)
            self.weights.append(nn.Parameter((torch.rand(size, n_in, n_out, generator=generator) * 2 - 1) * bound))
            bias = torch.zeros(size, 1, n_out)
            if activation == "relu":
                bias.uniform_(-bound, bound, generator=generator)
            self.biases.append(nn.Parameter(bias))

    def config(self) -> dict[str, Any]:
        """Arguments to recreate it as `Ensemble(**config)`, without weights."""
        return self._config

    @torch.no_grad()
    def round_weights(self) -> None:
        """Make weights multiples of 1 / WEIGHT_GRID.

        The output bias cancels out in every comparison: its gradient consists of rounding errors.
        """
        for weight in self.parameters():
            weight.copy_((torch.round(weight * WEIGHT_GRID) + 0.0) / WEIGHT_GRID)

    def forward(self, features: Tensor) -> Tensor:
        """Return rewards (K, M) of items (M, F), in their precision."""
        x = features.expand(len(self.weights[0]), *features.shape)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias.to(x.dtype), x, weight.to(x.dtype))
            if layer < len(self.weights) - 1:
                x = self._activate(x)  # in place: the input is not needed again
        return x[..., 0]


@dataclass(frozen=True)
class CrossValidation:
    """The members' predictions for pairs with a segment that they were not trained on."""

    epochs: int
    """Epochs after which the mean held-out loss was lowest."""
    pair: IntArray
    """(H,) which comparison; each appears once for each fold that one of its sides is in."""
    member: IntArray
    """(H,) which member judges it."""
    predicted: Floats
    """(H,) p(first better)."""
    both_new: BoolArray
    """(H,) neither segment was trained on."""
    loss: float
    fold: IntArray
    """(S,) the fold of each segment: member k was trained without those of fold k."""
    taught: BoolArray
    """(H,) whether the member was trained on a pair that is not a tie; otherwise it guesses by its initial weights."""


@dataclass(frozen=True)
class Fit:
    """A trained ensemble, and how well it follows the labels that it was trained on."""

    ensemble: Ensemble
    """On the CPU, in single precision."""
    epochs: int
    """Epochs that it was trained for."""
    judged_share: float
    """Share of the pairs of judged groups that have a label."""
    clear_pairs: int
    """Number of distinct pairs of groups whose mean label is clear."""
    clear_pairs_followed: int
    """Number of them for which the better group has the higher reward, averaged over members and comparisons."""


def cross_validate(
    features: Floats,
    comparisons: Comparisons,
    params: PreferenceParams,
    seed: int,
    device: torch.device = CPU,
    advance: Callable[[int], object] = int,
) -> CrossValidation:
    """Train K members, member k without the segments of fold k, and let each predict the pairs that it has not seen.

    The split is by group, not by pair: with a split by pair the same text would be in both parts. The
    number of epochs is chosen by the same held-out loss, one number for all members (`fit_to_labels` may train for
    longer). `advance` runs after each epoch.
    """
    rng = np.random.default_rng(seed)
    groups = int(comparisons.group.max(initial=0)) + 1
    fold = (rng.permutation(groups) % params.ensemble)[comparisons.group]
    first_fold, second_fold = fold[comparisons.first], fold[comparisons.second]
    member = np.arange(params.ensemble)[:, None]
    held_out = (first_fold == member) | (second_fold == member)  # (K, P)

    trainer = Trainer(features, comparisons, params, (~held_out).astype(np.float32), seed, device)
    best_loss, best_epoch, best = math.inf, 0, trainer.predict()
    for epoch in range(1, params.max_epochs + 1):
        trainer.epoch(rng)
        advance(1)
        predicted = trainer.predict()
        loss = _held_out_loss(predicted, comparisons.p_first, held_out)
        if loss < best_loss:
            best_loss, best_epoch, best = loss, epoch, predicted
        if epoch - best_epoch >= params.patience:
            break
    members, pairs = np.nonzero(held_out)
    both_held_out = (first_fold == member) & (second_fold == member)
    taught = (~held_out & (comparisons.p_first != 0.5)).any(axis=1)[members]
    predicted, both_new = best[members, pairs], both_held_out[members, pairs]
    return CrossValidation(best_epoch, pairs, members, predicted, both_new, best_loss, fold, taught)


def fit(
    features: Floats,
    comparisons: Comparisons,
    params: PreferenceParams,
    epochs: int,
    seed: int,
    device: torch.device = CPU,
    advance: Callable[[int], object] = int,
) -> Ensemble:
    """Train K members for a number of epochs on all comparisons, each on its own bootstrap resample.

    They are trained on `device`, and returned on the CPU in single precision. `advance` is called after each epoch.
    """
    trainer, _ = _trained(features, comparisons, params, epochs, seed, device, advance)
    return trainer.finish()


def fit_to_labels(
    features: Floats,
    comparisons: Comparisons,
    params: PreferenceParams,
    epochs: int,
    seed: int,
    device: torch.device = CPU,
    advance: Callable[[int], object] = int,
) -> Fit:
    """Train as `fit` does, for longer if most pairs were judged and clear labels are contradicted after `epochs`.

    Epochs chosen by the loss on captions left out are those that carry over best to other captions. With few captions
    little carries over, and so few epochs can be best that rewards contradict the very labels they were trained on. So
    if at least DENSE pairs have a label, but fewer than ENOUGH clear labels are followed, training continues. It first
    follows more clear labels and, once ENOUGH are followed, gives more of them a clear margin, since the margins of the
    last ones begin near 0. It ends after `params.patience` epochs without progress, or after `params.max_epochs` in
    all; the first best epoch is kept. If few pairs have a label, following all of them would fit their errors, too.
    `advance` is called after each of the first `epochs`.
    """
    trainer, rng = _trained(features, comparisons, params, epochs, seed, device, advance)
    labels = _ClearLabels(comparisons)
    followed, _ = labels.followed(trainer.margins())
    best_epoch, best, state = epochs, followed, trainer.state()
    goes_on = labels.judged_share >= DENSE and followed < ENOUGH * labels.number
    for epoch in range(epochs + 1, params.max_epochs + 1 if goes_on else 0):
        trainer.epoch(rng)
        followed, clearly = labels.followed(trainer.margins())
        score = followed + (clearly if followed >= ENOUGH * labels.number else 0)
        if score > best:
            best_epoch, best, state = epoch, score, trainer.state()
        if best == 2 * labels.number or epoch - best_epoch >= params.patience:
            break
    trainer.ensemble.load_state_dict(state)
    trainer.ensemble.round_weights()
    followed, _ = labels.followed(trainer.margins())
    return Fit(trainer.finish(), best_epoch, labels.judged_share, labels.number, followed)


def _trained(
    features: Floats,
    comparisons: Comparisons,
    params: PreferenceParams,
    epochs: int,
    seed: int,
    device: torch.device,
    advance: Callable[[int], object],
) -> tuple[Trainer, np.random.Generator]:
    """Train members for `epochs`, each on a bootstrap resample; return them and the generator of further epochs."""
    rng = np.random.default_rng(seed)
    size = len(comparisons)
    resampled = np.stack([np.bincount(rng.integers(0, size, size), minlength=size) for _ in range(params.ensemble)])
    trainer = Trainer(features, comparisons, params, resampled.astype(np.float32), seed, device)
    for _ in range(epochs):
        trainer.epoch(rng)
        advance(1)
    return trainer, rng


class _ClearLabels:
    """The distinct pairs of groups with a clear label. Their sides may be swapped from one comparison to the next."""

    def __init__(self, comparisons: Comparisons) -> None:
        first, second = comparisons.group[comparisons.first], comparisons.group[comparisons.second]
        groups = len(np.unique(np.concatenate([first, second])))
        sides = np.stack([np.minimum(first, second), np.maximum(first, second)])
        distinct, self._pair = np.unique(sides, axis=1, return_inverse=True)
        self._sign = np.where(first > second, -1.0, 1.0)
        preferred = self._means(comparisons.p_first - 0.5)  # (D,) above 0: the smaller number is better
        differ = distinct[0] != distinct[1]
        self._clear = (np.abs(preferred) >= CLEAR) & differ
        self._better = np.sign(preferred)
        self.judged_share = int(differ.sum()) / max(groups * (groups - 1) / 2, 1)
        self.number = int(self._clear.sum())

    def followed(self, margins: Floats) -> tuple[int, int]:
        """Return how many have margins (K, P) towards the label, and how many have a clear one."""
        towards = (self._means(margins.mean(axis=0)) * self._better)[self._clear]
        return int((towards > TIE).sum()), int((towards >= CLEAR_MARGIN).sum())

    def _means(self, values: Floats) -> DoubleArray:
        """Average values of comparisons (P,), which change sign with their sides, by pair (D,)."""
        return np.bincount(self._pair, weights=values * self._sign) / np.bincount(self._pair)


class Trainer:
    """An ensemble in training; `weights` (K, P) are the weights of comparisons for each member."""

    def __init__(
        self,
        features: Floats,
        comparisons: Comparisons,
        params: PreferenceParams,
        weights: Floats,
        seed: int,
        device: torch.device = CPU,
    ) -> None:
        def there(array: Array) -> Tensor:
            return torch.from_numpy(array).to(device)

        dtype = features.dtype
        ensemble = Ensemble(features.shape[1], params.hidden, params.ensemble, seed, params.activation)
        self.ensemble = ensemble.to(device, torch.from_numpy(features[:0]).dtype)
        self._params = params
        self._device = device
        present = (comparisons.members >= 0).astype(dtype)
        items = comparisons.members.clip(min=0)
        self._repeating = _items_repeat(comparisons)
        self._features = there(features if self._repeating else features[items])  # (M, F), or by segment (S, L, F)
        self._items = there(items)
        self._present = there(present)
        self._shares = there(present.sum(axis=1).clip(min=1) / dtype.type(items.shape[1]))
        self._sides = there(np.stack([comparisons.first, comparisons.second]))
        smooth = params.label_smoothing
        self._target = there(comparisons.p_first.astype(dtype)) * (1 - smooth) + smooth / 2
        self._weights = there(weights.astype(dtype))
        self._optimizer = Adam(self.ensemble.parameters(), params.learning_rate, weight_decay=params.weight_decay)

    def epoch(self, rng: np.random.Generator) -> None:
        """Learn from every comparison once, in random order."""
        size = len(self._target)
        batches = max(1, round(size / self._params.batch_size))
        order = torch.from_numpy(rng.permutation(size)).to(self._device)
        for rows, target, weights in zip(
            order.tensor_split(batches),
            self._target[order].tensor_split(batches),
            self._weights[:, order].tensor_split(batches, dim=1),
            strict=True,
        ):
            logits = self._logits(rows)
            losses = binary_cross_entropy_with_logits(logits, target.expand_as(logits), reduction="none")
            loss = ((losses * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)).sum()
            self._optimizer.zero_grad()
            torch.autograd.backward(loss)
            self._optimizer.step()

    def predict(self) -> Floats:
        """Return p(first better) of every comparison by every member (K, P)."""
        return torch.sigmoid(self._all_logits()).cpu().numpy()

    def margins(self) -> Floats:
        """Return by how much the first segment's reward is higher, for every member and comparison (K, P)."""
        return self._all_logits().cpu().numpy()

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the weights."""
        return {name: weight.clone() for name, weight in self.ensemble.state_dict().items()}

    def finish(self) -> Ensemble:
        """Round the weights and move the ensemble to the CPU. The trainer cannot be used afterwards."""
        self.ensemble.round_weights()
        return self.ensemble.float().cpu().eval()

    @torch.no_grad()
    def _all_logits(self) -> Tensor:
        at_once = max(1, PREDICTED_ITEMS // (2 * self._items.shape[1]))
        pairs = torch.arange(len(self._target), device=self._device)
        logits = [self._logits(pairs[start : start + at_once]) for start in range(0, len(pairs), at_once)]
        return torch.cat(logits, dim=1)

    def _logits(self, rows: Tensor) -> Tensor:
        """Return the difference of segment rewards (K, B); a repeated item is evaluated once."""
        segments = self._sides[:, rows].view(-1)  # (2B,)
        if self._repeating:
            distinct, place = torch.unique(self._items[segments], return_inverse=True)
            rewards = self.ensemble(self._features[distinct])[:, place]  # (K, 2B, L)
        else:
            features = self._features[segments]
            rewards = self.ensemble(features.flatten(end_dim=1)).view(-1, *features.shape[:2])
        worth = (rewards * self._present[segments]).sum(dim=2) / self._shares[segments]
        return worth[:, : len(rows)] - worth[:, len(rows) :]


def _items_repeat(comparisons: Comparisons) -> bool:
    """Whether deduplicating items is worthwhile: captions repeat, observations of steps hardly ever do."""
    compared = comparisons.members[np.concatenate([comparisons.first, comparisons.second])]
    counts = np.bincount(compared[compared >= 0])
    return bool(counts.sum() >= 2 * np.count_nonzero(counts))


def _held_out_loss(predicted: Floats, target: DoubleArray, held_out: BoolArray) -> float:
    p = predicted.clip(1e-6, 1 - 1e-6)
    losses = -(target * np.log(p) + (1 - target) * np.log(1 - p))
    return float(losses[held_out].mean()) if held_out.any() else math.inf
