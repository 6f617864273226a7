"""A trained agent in the user's own code: observations in, actions out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from laurel.agents.actor import Actor, View
from laurel.agents.actors.checkpoint import check_fit
from laurel.agents.checkpoint import CONFIG, load_policy
from laurel.arrays import Array, BoolArray
from laurel.data.json_file import read_json
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError, EnvError
from laurel.library.sources import fetched
from laurel.params import EnvParams, parse_sections
from laurel.seeding import generator


def load_agent(source: str | Path, *, seed: int = 0) -> LoadedAgent:
    """Load an agent that `laurel train-agents` trained, with whichever algorithm.

    Args:
        source: its folder, e.g. data/agents/preference/seed-0; or as in `laurel.library.sources.fetched`:
            models:/NAME@ALIAS, hf://OWNER/NAME.
        seed: for sampling actions.

    Raises:
        DataError: it is missing, damaged, or not an agent.
    """
    place = fetched(source)
    network = load_policy(place)
    content = read_json(place / CONFIG).get("env")
    if content is None:
        raise DataError(f"{place / CONFIG}: does not name the environment. Train this agent again.")
    env: EnvParams = parse_sections({"env": content}, str(place / CONFIG))["env"]
    adapter = adapter_for(env)
    check_fit(place, network, adapter)
    return LoadedAgent(env, adapter, network.actor_in(adapter), network.actor_in(adapter, greedy=True), seed)


class LoadedAgent:
    """Acts on observations as the environment gives them; `predict` is Stable-Baselines3's."""

    def __init__(self, env: EnvParams, adapter: EnvAdapter, sampling: Actor, greedy: Actor, seed: int) -> None:
        self.env = env
        """The environment that it was trained in."""
        self._adapter = adapter
        self._sampling, self._greedy = sampling, greedy
        self._rng = generator(seed, "predict")

    def predict(
        self,
        observation: Any,
        state: Array | None = None,
        episode_start: BoolArray | None = None,
        deterministic: bool = False,
    ) -> tuple[Array, Array | None]:
        """Return an action for an observation, or N actions for a batch of N, and the recurrent state.

        Args:
            observation: as the environment gives it, without wrappers, or N as a vector environment stacks them.
            state: returned by the last call, for a recurrent policy or one that follows subgoals; None: an episode
                begins.
            episode_start: (N,) True where an episode begins; overrides `state`.
            deterministic: the likeliest action instead of a sample.

        Returns:
            The action, () or (A,), or (N,) or (N, A), continuous ones within their bounds; and the state, None for a
            policy that remembers nothing.

        Raises:
            EnvError: the observation is not one of this environment.
        """
        batch, rows = self._packed(observation)
        actor = self._greedy if deterministic else self._sampling
        actor.begin(np.ones(len(rows), np.bool_))
        if state is not None:
            actor.memory = np.array(state)
            if episode_start is not None:
                actor.begin(np.asarray(episode_start, np.bool_))
        action = self._adapter.taken(actor.act(View(self._adapter, rows), self._rng).action)
        return (action if batch else action[0]), actor.memory

    def _packed(self, observation: Any) -> tuple[bool, Array]:
        """Return whether observations are a batch, and pack them (N, D)."""
        leaf = self._adapter.packed.leaves[0]
        declared = leaf.space.shape or ()
        try:
            if isinstance(self._adapter.packed.space, Discrete) and not isinstance(observation, Mapping):
                numbers = np.asarray(observation)  # of a Tuple space it would be ragged
                if np.issubdtype(numbers.dtype, np.number):
                    self._check_numbers(self._adapter.packed.space, numbers)
            shape = np.shape(leaf.get(observation))
            if shape == declared:
                return False, self._adapter.pack_one(observation)[None]
            if shape[1:] == declared:
                return True, self._adapter.pack(observation)
        except (IndexError, KeyError, TypeError, ValueError):
            shape = np.shape(observation) if isinstance(observation, np.ndarray) else ()
        part = f'"{leaf.name}" ' if leaf.name else ""
        got = f"{type(observation).__name__} {shape}" if shape else type(observation).__name__
        if isinstance(observation, Mapping):
            got = f"one with {', '.join(map(repr, observation)) or 'nothing'}"
        raise EnvError(
            f"{self.env.id}: an observation of this environment has {part}{declared}, a batch one axis more, but got "
            f"{got}. Give observations as the environment does, without wrappers that change them."
        )

    def _check_numbers(self, space: Discrete, given: Array) -> None:
        """Refuse numbers that no state has, such as those of a wrapper that shifts or scales them."""
        first, last = int(space.start), int(space.start + space.n - 1)
        wrong = given[~((given == np.floor(given)) & (given >= first) & (given <= last))]
        if wrong.size:
            raise EnvError(
                f"{self.env.id}: an observation of this environment is a whole number from {first} to {last}, but got "
                f"{wrong.flat[0]}. Give observations as the environment does, without wrappers that change them."
            )
