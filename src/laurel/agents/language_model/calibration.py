"""A critic's error against values by dynamic programming, if the environment's model is known.

A critic that is fitted to random rounds should give the values V(s) of drawing lists of moves at random, which follow
from the model. With T the transitions of a random move and p its pay, a list of l moves leads on by T^l and pays what
its last move pays:

    r_1(s) = Σ_s' T(s, s') p(s, s'),   r_l(s) = Σ_{s' ends} T(s, s') p(s, s') + Σ_{s' goes on} T(s, s') r_{l-1}(s')
    V = (I - γ mean_l T^l)⁻¹ mean_l r_l   over states that do not end the episode
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from laurel.agents.language_model.critic import Critic
from laurel.agents.tabular.planning import solve_policy
from laurel.arrays import DoubleArray
from laurel.envs.base import EnvAdapter
from laurel.envs.builtin.model import Model
from laurel.envs.sequences import Sequences

KEPT = "calibration."
"""Prefix of the arrays' names in a checkpoint."""
DECIMALS = 6
"""Decimal places of the largest value to which values are compared by rank: a critic's are of single precision."""


class Calibration(NamedTuple):
    """Values of K states by a critic and by dynamic programming."""

    critic: DoubleArray
    values: DoubleArray

    @property
    def error(self) -> float:
        """Mean absolute difference."""
        return float(np.abs(self.critic - self.values).mean())

    @property
    def rank(self) -> float:
        """Kendall's tau of the two; NaN where one of the two is the same for all states.

        States that mirror each other have equal values, which rounding errors must not put in an order.
        """
        import scipy.stats

        scaled = (values / max(float(np.abs(values).max()), np.finfo(np.float64).tiny) for values in self)
        return float(scipy.stats.kendalltau(*(values.round(DECIMALS) for values in scaled)).statistic)


def calibration(critic: Critic, adapter: EnvAdapter, model: Model, lists: Sequences, gamma: float) -> Calibration:
    """Compare a critic with the values of the random policy, in all non-terminal states.

    Args:
        critic: fitted to random rounds.
        adapter: describes the states in words; observations are the numbers of the model's states.
        lists: of moves, as a random round draws them.
        gamma: discount of an action, that is, of a list.
    """
    states = np.flatnonzero(model.reachable() & ~model.terminal)
    texts = [adapter.describe_observation(state) or "" for state in states.tolist()]
    return Calibration(critic.values(texts).astype(np.float64), values_of_random(model, lists, gamma)[states])


def values_of_random(model: Model, lists: Sequences, gamma: float) -> DoubleArray:
    """Return the values (S,) of drawing each action as `Sequences.draw` does."""
    moves = model.transitions.mean(axis=1)  # of a random move
    paid = (model.transitions * model.rewards).mean(axis=1)  # (S, S') reward times probability
    live = ~model.terminal
    leads, pays = moves, paid.sum(axis=1)
    all_leads, all_pays = leads.copy(), pays.copy()
    for _ in range(lists.longest - 1):  # a list pays what its last move pays, which may end the episode early
        pays = paid[:, ~live].sum(axis=1) + moves[:, live] @ pays[live]
        leads = moves @ leads  # states that end the episode lead to themselves
        all_leads, all_pays = all_leads + leads, all_pays + pays
    leads, pays = all_leads / lists.longest, all_pays / lists.longest
    # as a model with one action, whose pay does not depend on where it leads
    random = Model(leads[:, None], np.broadcast_to(pays[:, None, None], (len(pays), 1, len(pays))), model.start, ~live)
    return solve_policy(random, np.ones((len(pays), 1)), gamma)
