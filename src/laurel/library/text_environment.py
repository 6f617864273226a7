"""A text environment for TRL's `GRPOTrainer` (`environment_factory`): a reset, a tool and a reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym

from laurel.agents.actions import action_form
from laurel.agents.actor import View
from laurel.envs import adapter_of, make_reference
from laurel.envs.sequences import Sequences
from laurel.errors import EnvError
from laurel.params import EnvParams

Wrapper = Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]


def text_environment(
    env_id: str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    max_episode_steps: int | None = None,
    wrapper: Wrapper | None = None,
) -> Callable[[], TextEnvironment]:
    """Return a factory for `GRPOTrainer(environment_factory=...)`.

    Args:
        env_id: of Gymnasium; its actions must be discrete, and its adapter must describe observations in words.
        max_episode_steps: limit of an episode.
        wrapper: applied to each environment, such as a `RewardWrapper` that pays a learned reward.

    Returns:
        A factory of environments, whose docstrings TRL shows to the model.
    """
    env = EnvParams(id=env_id, kwargs=dict(kwargs or {}), max_episode_steps=max_episode_steps)
    return partial(TextEnvironment, env, wrapper)


class TextEnvironment:
    """One environment, played by the tool `act`; TRL calls `reset` before a completion and `get_reward` after it.

    >>> make = text_environment("FrozenLake-v1", kwargs={"is_slippery": False})
    >>> play = make()
    >>> print(play.reset(seed=0).splitlines()[1])
    The moves: left, down, right, up.
    >>> play.act(["right", "right", "down"]).startswith("You are at row 2, column 3")
    True
    >>> play.act(["right"]).endswith("The episode is over."), play.get_reward()
    (True, 0.0)

    Args:
        wrapper: applied to the environment; None: none.

    Raises:
        EnvError: it cannot be made, its actions are not discrete, or its observations have no words.
    """

    def __init__(self, env: EnvParams, wrapper: Wrapper | None = None) -> None:
        self._env = make_reference(env)
        self._adapter = adapter_of(env, self._env)
        self._env = wrapper(self._env) if wrapper else self._env
        n_actions, continuous = action_form(self._adapter.action_space)
        if continuous:
            raise EnvError(f"{env.id} has actions {self._adapter.action_space}, but a model names Discrete ones.")
        longest = self._adapter.max_moves
        self._names = (
            self._adapter.action_names if longest > 1 else tuple(map(self._adapter.action_name, range(n_actions)))
        )
        self._lists = Sequences(len(self._names), longest) if longest > 1 else None
        self._return = 0.0
        self.over = True
        """Whether the episode has ended, or none has begun."""

    def reset(self, seed: int | None = None, **row: Any) -> str:
        """Begin an episode.

        Args:
            seed: of the episode; a column `seed` in the data set makes all completions of a group start alike.
            row: other columns, which are ignored.

        Returns:
            The text to append to the prompt: the environment, its moves, and the first state.
        """
        observation, _ = self._env.reset(seed=seed)
        self._return, self.over = 0.0, False
        words = self._adapter.description, f"The moves: {', '.join(self._names)}.", self._state(observation)
        return "\n".join(words)

    def act(self, moves: list[str]) -> str:
        """Make moves in the environment, one after another.

        Args:
            moves: The names of the moves.

        Returns:
            The state after them.
        """
        if self.over:
            raise EnvError("The episode is over.")
        numbers = {name.casefold(): number for number, name in enumerate(self._names)}
        unknown = [name for name in moves if not isinstance(name, str) or name.casefold() not in numbers]
        if unknown or not moves:
            raise EnvError(f"moves are {moves}, but must be a list of: {', '.join(self._names)}.")
        actions = [numbers[name.casefold()] for name in moves]
        if self._lists is not None:
            if len(actions) > self._lists.longest:
                raise EnvError(f"moves are {len(actions)}, but at most {self._lists.longest} are allowed.")
            actions = [self._lists.number(actions)]
        for action in actions:
            observation, reward, terminated, truncated, _ = self._env.step(action)
            self._return += float(reward)
            self.over = terminated or truncated
            if self.over:
                break
        return self._state(observation) + (" The episode is over." if self.over else "")

    def get_reward(self) -> float:
        """Return the episode's return so far."""
        return self._return

    def _state(self, observation: Any) -> str:
        return str(View(self._adapter, self._adapter.pack_one(observation)[None]).text[0])
