"""Planning with a known model: policy evaluation, improvement and iteration, value iteration.

A policy is (S, A) probabilities; values are (S,) or (S, A). After Sutton & Barto (2018), chapter 4.
"""

from __future__ import annotations

import numpy as np

from laurel.arrays import BoolArray, DoubleArray
from laurel.envs.builtin.model import Model
from laurel.errors import TrainingError

SWEEPS = 100_000
"""Maximum number of sweeps."""
TOLERANCE = 1e-10
"""Values have converged when a sweep changes none by more than this."""
CLOSE = 1e-9
"""Minimum difference for an action to count as better; smaller ones are rounding errors."""


def action_values(model: Model, values: DoubleArray, gamma: float) -> DoubleArray:
    """Return the value of every action (S, A), given the values of the next states (S,) (equation 4.6).

    Q(s, a) = Σ_s' p(s'|s, a) (r(s, a, s') + γ V(s'))
    """
    paid = np.einsum("sat,sat->sa", model.transitions, model.rewards)
    return paid + gamma * model.transitions @ values


def solve_policy(model: Model, policy: DoubleArray, gamma: float) -> DoubleArray:
    """Return the exact values (S,) of a policy by solving the Bellman equation (4.4) as a linear system.

        (I - γ P_π) V = r_π  over the states that do not end the episode

    Raises:
        TrainingError: it has no solution: without a discount, an episode from some state never ends.
    """
    paid, moves = _under(model, policy)
    live = np.flatnonzero(~model.terminal)
    values = np.zeros(model.n_states)
    system = np.eye(len(live)) - gamma * moves[np.ix_(live, live)]
    if gamma >= 1 and not _ends(model, moves).all():
        raise TrainingError(_endless("solve_policy", gamma))
    values[live] = np.linalg.solve(system, paid[live])
    return values


def improve_policy(
    model: Model, values: DoubleArray, gamma: float, *, policy: DoubleArray | None = None
) -> DoubleArray:
    """Return a policy (S, A) that is greedy on values (S,) (equation 4.9).

    Args:
        policy: kept where no action is better than its own, so that equally good actions do not alternate.
    """
    q = action_values(model, values, gamma)
    best = q >= q.max(axis=1, keepdims=True) - CLOSE
    greedy = np.eye(model.n_actions)[best.argmax(axis=1)]
    if policy is None:
        return greedy
    kept = (policy * ~best).sum(axis=1, keepdims=True) == 0
    return np.where(kept, policy, greedy)


def policy_iteration(model: Model, gamma: float) -> tuple[DoubleArray, DoubleArray]:
    """Return an optimal policy (S, A) and its values (S,) by evaluating and improving in turn (section 4.3).

    It starts from the uniform policy, under which the episode ends from every state from which it can.

    Raises:
        TrainingError: a policy has no values, or the policies do not converge.
    """
    policy = np.full((model.n_states, model.n_actions), 1 / model.n_actions)
    for _ in range(SWEEPS):
        values = solve_policy(model, policy, gamma)
        better = improve_policy(model, values, gamma, policy=policy)
        if (better == policy).all():
            return policy, values
        policy = better
    raise TrainingError(_endless("policy_iteration", gamma))


def value_iteration(model: Model, gamma: float) -> tuple[DoubleArray, DoubleArray]:
    """Return an optimal policy (S, A) and the optimal values (S,) by iterating (equation 4.10).

        V(s) ← max_a Σ_s' p(s'|s, a) (r(s, a, s') + γ V(s'))

    Without a discount, an action may appear optimal although with it the episode never ends; policy iteration does not
    choose it.

    Raises:
        TrainingError: the values do not converge.
    """
    values = np.zeros(model.n_states)
    for _ in range(SWEEPS):
        new = action_values(model, values, gamma).max(axis=1)
        if np.abs(new - values).max() < TOLERANCE:
            return improve_policy(model, new, gamma), new
        values = new
    raise TrainingError(_endless("value_iteration", gamma))


def _under(model: Model, policy: DoubleArray) -> tuple[DoubleArray, DoubleArray]:
    """Return the expected reward of a step (S,) and the transition matrix (S, S') under a policy."""
    paid = np.einsum("sa,sat,sat->s", policy, model.transitions, model.rewards)
    return paid, np.einsum("sa,sat->st", policy, model.transitions)


def _ends(model: Model, moves: DoubleArray) -> BoolArray:
    """Return from which states (S,) the episode can end."""
    ends = model.terminal
    while True:
        wider = ends | (moves[:, ends] > 0).any(axis=1)
        if (wider == ends).all():
            return ends
        ends = wider


def _endless(function: str, gamma: float) -> str:
    return f"{function}: values do not converge with gamma {gamma}. If episodes may never end, use a discount below 1."
