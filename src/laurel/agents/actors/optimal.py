"""optimal: the optimal action by dynamic programming, in an environment with known transition probabilities.

These are FrozenLake, CliffWalking, Taxi and GridWorld. Where an action is a list of moves, the list follows the
likeliest path: if moves may slip, it need not be the best list, though its first move is the best one.
"""

from __future__ import annotations

import numpy as np

from laurel.agents.actor import Acted, Actor, View, actor_kind
from laurel.agents.tabular.planning import policy_iteration
from laurel.arrays import IntArray
from laurel.envs.base import EnvAdapter
from laurel.envs.builtin.model import Model, from_table
from laurel.envs.sequences import Sequences
from laurel.errors import EnvError


class Optimal(Actor):
    """Looks up the best action.

    Args:
        actions: (S,) the best action in each state.
    """

    def __init__(self, actions: IntArray) -> None:
        self._actions = actions

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        return Acted(self._actions[view.packed[:, 0].astype(np.int64)])


@actor_kind("bound")
def optimal(adapter: EnvAdapter, *, gamma: float = 0.99) -> Optimal:
    """Plan in an environment.

    Args:
        gamma: discount per move; below 1, so that shorter paths are better.

    Raises:
        EnvError: the environment does not provide its transition probabilities.
    """
    if adapter.table is None:
        raise EnvError(
            f"optimal: {adapter.env_id} has no table of transitions (P), which planning needs. These have one: "
            "FrozenLake, CliffWalking, Taxi without fickle_passenger, and laurel/GridWorld-v0."
        )
    model = from_table(adapter.table.outcomes, adapter.table.start, adapter.env_id)
    moves = policy_iteration(model, gamma)[0].argmax(axis=1)
    return Optimal(moves if adapter.max_moves == 1 else _lists(model, moves, adapter.max_moves))


def _lists(model: Model, moves: IntArray, longest: int) -> IntArray:
    """Return for each state the number (S,) of the list of moves to the episode's end, or of the first `longest`."""
    numbers = Sequences(model.n_actions, longest)
    likeliest = model.transitions.argmax(axis=2)
    actions = []
    for state in range(model.n_states):
        way = [int(moves[state])]
        while len(way) < longest and not model.terminal[state := int(likeliest[state, way[-1]])]:
            way.append(int(moves[state]))
        actions.append(numbers.number(way))
    return np.array(actions, dtype=np.int64)


ACTOR = optimal
