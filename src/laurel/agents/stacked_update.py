"""PPO's gradient steps for many agents at once, one row per agent: minibatches, loss, Adam.

Gradients are written by hand (`laurel.agents.stacked`), which is 1.7 to 2.6 times as fast as autograd at these sizes;
`laurel.agents.ppo` computes the same with autograd, and a test compares them. Minibatches are padded to one size with
rows of weight 0, so that those of all agents form one array; rows of different agents are never summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from laurel.agents.ppo import FIGURES
from laurel.agents.stacked import BOTH, Pass, Stack, host
from laurel.arrays import BoolArray, DoubleArray, IntArray
from laurel.params.algorithms import ClippedParams

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-5


class Group(Protocol):
    """The state of the agents in an update: S rows, with Adam's moments and step counts."""

    params: ClippedParams
    stack: Stack
    mean: Any
    square: Any
    steps: DoubleArray

    @property
    def learners(self) -> Sequence[Any]:
        """The agents, each with its `learning_rate`."""

    def pass_of(self, policies: slice, batch: int, bodies: slice) -> Pass:
        """Return the buffers of a pass of a batch."""


class Update:
    """The steps of gradient descent of one update, and the means of their metrics."""

    def __init__(self, group: Group, policies: slice, size: int) -> None:
        self.group, self.policies = group, policies
        stack, self.xp = group.stack, group.stack.arrays
        self.work = group.pass_of(policies, size, BOTH)
        self.weights, self.mean, self.square = (array[policies] for array in (stack.weights, group.mean, group.square))
        n = len(self.weights)
        self.gradient = stack.zeros(n, stack.n_weights)
        self.parts = stack.split(self.gradient)
        self.features = stack.zeros(n, size, stack.n_features)
        self.choices = stack.put(np.arange(stack.n_actions, dtype=np.float32)[:, None])
        self.sums = stack.zeros(n, len(FIGURES))
        self.made = np.zeros((n, 1), dtype=np.float32)
        """Minibatches of each agent so far."""

    def step(self, features: Sequence[Any], facts: Any, index: IntArray, counts: IntArray) -> None:
        """Take a gradient step each on the first `counts` (S,) rows of `index` (S, B); the rest is padding."""
        n, size = index.shape
        total = facts.shape[1] // n
        for s in range(n):
            _take(features[s], index[s], self.features[s])
        old, advantage, returns, *action = _columns(facts, index + total * np.arange(n)[:, None])
        weight = (np.arange(size) < counts[:, None]) / np.maximum(counts, 1).astype(np.float32)[:, None]
        self.work.forward(self.features)
        self.differentiate(old, advantage, returns, action, self.group.stack.put(weight))
        self._descend(counts > 0)

    def differentiate(self, old: Any, advantage: Any, returns: Any, action: Sequence[Any], weight: Any) -> None:
        """Write the gradient of the loss after the forward pass, and sum FIGURES; all arrays are (S, B).

        For a softmax over outputs o, ∇_o log π(a) = 1[a] - π and ∇_o H = -π (log π + H); for a Gaussian,
        ∇_mean log π = z / σ and ∇_{log σ} log π = z² - 1, and the entropy's gradient by log σ is 1.
        Hints are constants that are added to o, so the gradient by o is the same function of the hinted π.

        Args:
            old: log-probability under the policy that acted.
            advantage: not yet normalised.
            returns: the critic's targets.
            action: the A numbers of a continuous action; else the number of the discrete one, then A hints, if any.
            weight: of each row in the means.
        """
        xp, p, work = self.xp, self.group.params, self.work
        advantage = advantage - _total(advantage * weight)
        advantage = advantage / (xp.sqrt(_total(advantage * advantage * weight)) + p.advantage_epsilon)
        if self.group.stack.continuous:
            log_std = self.group.stack.parts[-1][self.policies]
            deviation = xp.exp(log_std)
            z = (xp.stack(list(action), 1) - work.output) / deviation
            log_prob = gaussian(z, log_std)
            entropy = xp.zeros_like(log_prob) + (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-2)
        else:
            chosen = (action[0][:, None] == self.choices) * xp.ones_like(old[:1, None])
            output = work.output + xp.stack(list(action[1:]), 1) if len(action) > 1 else work.output
            shifted = output - _largest(output)
            exponentials = xp.exp(shifted)
            totals = exponentials.sum(-2)[:, None]
            probability = exponentials / totals
            log_probs = shifted - xp.log(totals)
            log_prob = (log_probs * chosen).sum(-2)
            entropy = -(probability * log_probs).sum(-2)

        # the minimum of the unclipped and clipped surrogates (eq. 7); only the unclipped one has a gradient
        log_ratio = log_prob - old
        ratio = xp.exp(log_ratio)
        unclipped, clipped = ratio * advantage, xp.clip(ratio, 1 - p.clip_range, 1 + p.clip_range) * advantage
        surrogate = xp.minimum(unclipped, clipped)
        d_log_prob = (
            (unclipped <= clipped) * unclipped * -weight
        )  # ∇ρ = ρ ∇ log π; 0 where the clipped surrogate is the minimum
        error = work.value[:, 0] - returns
        d_value = (p.value_coef * error * weight)[:, None]
        if self.group.stack.continuous:
            d_output = d_log_prob[:, None] * z / deviation
            active = (weight.sum(-1) > 0)[:, None]
            self.parts[-1][:] = ((d_log_prob[:, None] * (z * z - 1)).sum(-1) - p.entropy_coef * active)[..., None]
        else:
            d_entropy = probability * (log_probs + entropy[:, None])
            d_output = (chosen - probability) * d_log_prob[:, None] + p.entropy_coef * weight[:, None] * d_entropy
        work.backward(d_output, d_value, self.parts)

        kl, outside = ratio - 1 - log_ratio, 1.0 * (abs(ratio - 1) > p.clip_range)
        for i, figure in enumerate((-surrogate, 0.5 * error * error, entropy, kl, outside)):
            self.sums[:, i] += (figure * weight).sum(-1)

    def _descend(self, active: BoolArray) -> None:
        """Take an Adam step for the active agents (S,); the others are unchanged."""
        group = self.group
        group.steps[self.policies] += active[:, None]
        self.made += active[:, None]
        kept = None if active.all() else [array.copy() if self.xp is np else array.clone() for array in self.state]
        steps = group.steps[self.policies]
        rates = np.array([[learner.learning_rate] for learner in group.learners[self.policies]])
        rate = group.stack.put((rates / (1 - BETA1**steps)).astype(np.float32))
        self.adam(rate, group.stack.put(np.sqrt(1 - BETA2**steps).astype(np.float32)))
        if kept is not None:
            for array, before in zip(self.state, kept, strict=True):
                array[~active] = before[~active]

    def adam(self, rate: Any, root: Any) -> None:
        """Take an Adam step with the gradient, which is clipped per agent.

        In place, because torch.optim.Adam needs a call per tensor, and at these sizes temporary arrays cost more than
        the arithmetic. A test compares it with torch.optim.Adam in `laurel.agents.ppo`.

        Args:
            rate: (S, 1) learning rates over 1 - BETA1^steps, Adam's bias correction of the first moment.
            root: (S, 1) square root of 1 - BETA2^steps, the bias correction of the second moment.
        """
        xp, gradient = self.xp, self.gradient
        norm = xp.sqrt((gradient * gradient).sum(-1)[:, None])
        gradient *= xp.clip(self.group.params.max_grad_norm / (norm + 1e-6), None, 1.0)
        self.mean *= BETA1
        self.mean += (1 - BETA1) * gradient
        self.square *= BETA2
        gradient *= gradient
        gradient *= 1 - BETA2
        self.square += gradient
        xp.sqrt(self.square, out=gradient)
        gradient /= root
        gradient += EPSILON
        xp.divide(self.mean, gradient, out=gradient)
        gradient *= rate
        self.weights -= gradient

    @property
    def state(self) -> tuple[Any, Any, Any]:
        """The arrays that a step changes."""
        return self.weights, self.mean, self.square

    def means(self) -> list[dict[str, float]]:
        """Return each agent's means over minibatches, NaN if there were none."""
        means = host(self.sums) / np.where(self.made > 0, self.made, np.nan)
        return [dict(zip(FIGURES, mean, strict=True)) for mean in means.tolist()]


def epoch(rows: Sequence[IntArray], n_batches: int, size: int) -> tuple[IntArray, IntArray]:
    """Split the rows of each agent into minibatches: indices (n_batches, S, size), and how many are valid (n_batches,
    S).

    Agents with fewer rows than minibatches have none in the last ones.
    """
    index = np.zeros((n_batches, len(rows), size), dtype=np.int64)
    counts = np.array(
        [len(indices) // n_batches + (np.arange(n_batches) < len(indices) % n_batches) for indices in rows]
    ).T
    starts, place = counts.cumsum(axis=0) - counts, np.arange(size)
    for s, indices in enumerate(rows):
        if len(indices):
            positions = starts[:, s, None] + np.where(place < counts[:, s, None], place, 0)
            index[:, s] = indices[positions.clip(max=len(indices) - 1)]
    return index, counts


def gaussian(z: Any, log_std: Any) -> Any:
    """Return log-probabilities (S, B) of actions that are z (S, A, B) standard deviations from the mean."""
    return -(0.5 * z * z + log_std + 0.5 * math.log(2 * math.pi)).sum(-2)


def _take(array: Any, rows: IntArray, out: Any) -> None:
    """Write rows of an array into another."""
    if isinstance(array, np.ndarray):
        array.take(rows, axis=0, out=out, mode="clip")  # faster than bounds checking
    else:
        torch.index_select(array, 0, torch.from_numpy(rows).to(array.device), out=out)


def _columns(array: Any, columns: IntArray) -> Any:
    """Return columns (K, *columns.shape) of an array (K, M)."""
    return array.take(columns, axis=1) if isinstance(array, np.ndarray) else array[:, columns]


def _total(array: Any) -> Any:
    """Sum an array (S, B) to (S, 1)."""
    return array.sum(-1)[:, None]


def _largest(array: Any) -> Any:
    """Return the largest (S, 1, B) over actions (S, A, B)."""
    return array.max(-2, keepdims=True) if isinstance(array, np.ndarray) else array.amax(-2, keepdim=True)
