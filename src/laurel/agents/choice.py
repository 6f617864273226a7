"""Choosing among actions, row by row: by value with ties broken at random, or by given probabilities."""

from __future__ import annotations

import numpy as np

from laurel.arrays import DoubleArray, FloatArray, IntArray


def argmax(values: DoubleArray, rng: np.random.Generator) -> IntArray:
    """Return the column of each row's (N, K) highest value, with ties broken at random."""
    best = values == values.max(axis=1, keepdims=True)
    choice = best.argmax(axis=1)
    tied = np.flatnonzero(best.sum(axis=1) > 1)
    if len(tied):
        choice[tied] = (best[tied] * rng.random((len(tied), values.shape[1]))).argmax(axis=1)
    return choice


def sample(probabilities: DoubleArray, rng: np.random.Generator) -> IntArray:
    """Draw a column of each row (N, K) with the given probabilities, which need not sum to 1."""
    cumulative = probabilities.cumsum(axis=1)
    draw = rng.random((len(probabilities), 1)) * cumulative[:, -1:]
    return (cumulative <= draw).sum(axis=1).clip(max=probabilities.shape[1] - 1)


def epsilon_greedy(values: DoubleArray, epsilon: float) -> DoubleArray:
    """Return the probabilities of the policy that explores with probability ε and is greedy otherwise.

    `values` are action values (..., A); equally good best actions share the greedy probability.
    """
    best = values == values.max(axis=-1, keepdims=True)
    return (1 - epsilon) * best / best.sum(axis=-1, keepdims=True) + epsilon / values.shape[-1]


def act_on_values(
    values: FloatArray | DoubleArray, epsilon: float, rng: np.random.Generator, *, greedy: bool = False
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Draw from the policy that explores with probability ε and is otherwise greedy, with ties broken at random.

    Args:
        values: (N, A) action values.
        epsilon: ε.
        greedy: take the first of the best actions instead.

    Returns:
        Actions, their log-probabilities under the policy, and its expected value, (N,) each.
    """
    policy = epsilon_greedy(values.astype(np.float64), epsilon)
    action = policy.argmax(axis=1) if greedy else sample(policy, rng)
    chance = policy[np.arange(len(action)), action]
    return action, np.log(chance).astype(np.float32), (policy * values).sum(axis=1).astype(np.float32)
