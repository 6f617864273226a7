"""The model of a finite environment: probabilities and rewards of every transition, as tensors.

Made from the table `P` that Gymnasium's toy-text environments carry (state -> action -> [(probability, next state,
reward, terminated)]).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from laurel.arrays import Array, BoolArray, DoubleArray
from laurel.errors import EnvError


@dataclass(frozen=True, slots=True)
class Model:
    """A finite Markov decision process. Terminal states lead to themselves with reward 0."""

    transitions: DoubleArray
    """(S, A, S') probability of the next state."""
    rewards: DoubleArray
    """(S, A, S') mean reward of the transition; 0 for impossible ones."""
    start: DoubleArray
    """(S,) probability that an episode starts there."""
    terminal: BoolArray
    """(S,) whether the episode ends there."""

    @property
    def n_states(self) -> int:
        return self.transitions.shape[0]

    @property
    def n_actions(self) -> int:
        return self.transitions.shape[1]

    def reachable(self) -> BoolArray:
        """Return which states (S,) an episode can reach."""
        leads: BoolArray = self.transitions.max(axis=1) > 0
        reached: BoolArray = self.start > 0
        while True:
            wider = reached | leads[reached].any(axis=0)
            if (wider == reached).all():
                return reached
            reached = wider


class Table(NamedTuple):
    """The model as the environment itself provides it."""

    outcomes: dict[int, dict[int, list[Any]]]
    """State -> action -> [(probability, next state, reward, terminated)]."""
    start: npt.ArrayLike
    """(S,) probability that an episode begins there."""

    def steps(self) -> tuple[Array, Array, Array, Array, BoolArray]:
        """Return all distinct steps that episodes can make: states, actions, next states, rewards and whether they end
        the episode.
        """
        visited = set(np.flatnonzero(np.asarray(self.start)).tolist())
        waiting, transitions = list(visited), dict[tuple[int, int, int, float, bool], None]()
        while waiting:
            state = waiting.pop()
            for action, outcomes in self.outcomes[state].items():
                for probability, after, reward, terminated in outcomes:
                    if probability > 0:
                        transitions[state, action, int(after), float(reward), bool(terminated)] = None
                        if not terminated and int(after) not in visited:
                            visited.add(int(after))
                            waiting.append(int(after))
        states, actions, nexts, rewards, ends = (np.array(column) for column in zip(*transitions, strict=True))
        return states, actions, nexts, rewards, ends


def table_of(env: gym.Env[Any, Any]) -> Table | None:
    """Return the table of FrozenLake, CliffWalking, Taxi or GridWorld; None for others, or where it is incorrect or
    another instance of the environment has another one.
    """
    bare = env.unwrapped
    table = _table(bare)
    return None if getattr(bare, "fickle_passenger", False) or _has_random_map(bare) else table


def _table(bare: gym.Env[Any, Any]) -> Table | None:
    outcomes, start = getattr(bare, "P", None), getattr(bare, "initial_state_distrib", None)
    return None if outcomes is None or start is None else Table(outcomes, start)


def _has_random_map(bare: gym.Env[Any, Any]) -> bool:
    """Whether each instance draws its own frozen lake."""
    options = bare.spec.kwargs if bare.spec else {}
    return options.get("desc") is None and options.get("map_name", "4x4") is None


def model_of(env: gym.Env[Any, Any]) -> Model:
    """Return the model of an environment that has a table `P`: FrozenLake, CliffWalking, Taxi, GridWorld.

    Raises:
        EnvError: the environment has no table, or does not behave according to it.
    """
    bare = env.unwrapped
    name = bare.spec.id if bare.spec else type(bare).__name__
    if getattr(bare, "fickle_passenger", False):
        raise EnvError(f"{name}: with fickle_passenger the model does not describe the passengers. Leave it out.")
    table = _table(bare)
    if table is None:
        raise EnvError(f"{name} does not give its model (P and initial_state_distrib). Use an agent that learns.")
    return from_table(*table, name)


def from_table(table: dict[int, dict[int, list[Any]]], start: npt.ArrayLike, name: str = "model") -> Model:
    """Return the model given by a table and the distribution of the initial state.

    Raises:
        EnvError: an episode may end or continue in the same state.
    """
    S, A = len(table), len(table[0])
    transitions, paid = np.zeros((S, A, S)), np.zeros((S, A, S))
    terminal, passed = np.zeros(S, dtype=np.bool_), np.zeros((S, S), dtype=np.bool_)
    for state, actions in table.items():
        for action, outcomes in actions.items():
            for probability, after, reward, terminated in outcomes:
                transitions[state, action, after] += probability
                paid[state, action, after] += probability * reward
                if probability > 0:
                    terminal[after] |= terminated
                    passed[state, after] |= not terminated
    ends = np.flatnonzero(terminal)  # tables also list transitions out of terminal states, which are dropped here
    transitions[ends] = paid[ends] = 0
    transitions[ends, :, ends] = 1
    passed[ends] = False
    happens = transitions > 0
    rewards = np.divide(paid, transitions, out=np.zeros_like(paid), where=happens)
    model = Model(transitions, rewards, np.asarray(start, dtype=np.float64), terminal)
    unclear = terminal & passed[model.reachable()].any(axis=0)
    if unclear.any():
        raise EnvError(
            f"{name}: an episode may end in state {unclear.argmax()} or continue from there. "
            "A model cannot express that; make it two states."
        )
    return model
