"""Completions of prompts (`laurel.envs.builtin.completions`): the caption is the text, prompt and completion."""

from __future__ import annotations

from typing import Any

import numpy as np

from laurel.arrays import Array, FloatArray
from laurel.envs.base import EnvAdapter, Transition
from laurel.envs.builtin.completions import ANTI_GOAL, GOAL, Completions, text_of, whole_text
from laurel.errors import EnvError


class CompletionsAdapter(EnvAdapter):
    """Rows of bytes are texts; a network sees the bytes, and a language model turns them back into text."""

    ids = ("laurel/Completions-v*",)
    description = "A prompt is shown, and a text that goes on from it is written."
    goal = GOAL
    anti_goal = ANTI_GOAL
    texts = True

    def inspect(self, env: Any) -> None:
        game = env.unwrapped
        assert isinstance(game, Completions)
        self.goal, self.anti_goal = game.goal, game.anti_goal

    def caption(self, transition: Transition) -> str:
        return whole_text(text_of(transition.observation), text_of(transition.action))

    def describe_observation(self, observation: Any) -> str:
        return text_of(observation)

    def features(self, observation: Array) -> FloatArray:
        return observation.astype(np.float32)

    def action_name(self, action: Any) -> str:
        return text_of(action)


def text_sizes(adapter: EnvAdapter, reader: str) -> tuple[int, int]:
    """Return the bytes of a prompt and of a completion, at most.

    Raises:
        EnvError: observations or actions of the environment are not texts; the message says that `reader` needs texts.
    """
    if not adapter.texts:
        raise EnvError(
            f"{reader} reads and writes texts, but {adapter.env_id} has other observations and actions. Set env.id to "
            "laurel/Completions-v0, or to an environment whose adapter sets `texts`."
        )
    return adapter.observation_size, adapter.action_space.shape[0]  # type: ignore[index]
