"""llm_policy: a chat model chooses among the environment's named actions, from the state in words. It is not trained.

A model in this process (`huggingface`) gives the likelihood of each action's text; a server writes a JSON object whose
schema allows only the actions' names. Each distinct state is asked about once, and answers are kept in the response
store. If no answer can be read, all actions are equally likely; the report counts such cases.

The policy is that of "Grounding Large Language Models in Interactive Environments with Online Reinforcement Learning"
(GLAM, Carta et al. 2023, arXiv 2302.02662) before training, except that the model sees no history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from laurel.agents.actor import Advisor, View, actor_kind
from laurel.arrays import FloatArray
from laurel.envs.base import EnvAdapter
from laurel.errors import EnvError, ParamsError
from laurel.params.annotation import AnnotateParams

if TYPE_CHECKING:
    from laurel.feedback.chooser import Chooser

KEY = "llm_policy"
LEAST = 1e-6
"""Minimum probability of an action, since a written answer is not certain, and other policies may learn from it."""


class ChatModelPolicy(Advisor):
    """Chooses actions with a chat model.

    Args:
        model: chooses among the actions' names.
        start: the first action.
        greedy: take the likeliest action instead of a sample.
        temperature: above 1 makes actions more alike, below 1 less.
    """

    def __init__(self, model: Chooser, start: int, *, greedy: bool, temperature: float) -> None:
        super().__init__(len(model.question.options), start, greedy=greedy)
        self._model, self._temperature = model, temperature

    def advise(self, view: View) -> FloatArray:
        chances = np.maximum(self._model.probabilities(view.text), LEAST)
        logits = np.log(chances) / self._temperature
        logits -= logits.max(axis=1, keepdims=True)
        return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)

    def estimate(self, view: View) -> str:
        return self._model.estimate(view.text)

    @property
    def account(self) -> Mapping[str, Any]:
        return self._model.account

    def when_answered(self, call: Callable[[], None]) -> None:
        self._model.answered = call


@actor_kind("method")
def language_model_policy(
    adapter: EnvAdapter,
    *,
    annotate: AnnotateParams | None = None,
    judge: str = "main",
    prompt: str | None = None,
    goal: str | None = None,
    greedy: bool = False,
    temperature: float = 1.0,
    per_token: bool = False,
) -> ChatModelPolicy:
    """Make the policy; loads and asks no model before it acts.

    Args:
        adapter: of the environment, whose adapter must describe its observations.
        judge: the judge whose chat model is asked: `main`, the section annotate itself, or one of annotate.judges.
        prompt: a prompt of the kind `action`, by name or file; None: the packaged one that fits the model.
        goal: the goal in the prompt; None: the environment's own goal.
        greedy: take the likeliest action instead of a sample.
        temperature: above 1 makes actions more alike, below 1 less.
        per_token: compare means over the tokens of the actions' texts instead of sums.

    Raises:
        ParamsError: the judge is not a chat model, or an option is not allowed.
        EnvError: actions are not discrete, or the adapter has no words for its observations.
    """
    from laurel.feedback.chooser import Asking, chat_of, chooser
    from laurel.feedback.questions.action import ActionQuestion

    if not 0 < temperature < float("inf"):
        raise ParamsError(f"{KEY}: temperature is {temperature!r}, but must be a number above 0.")
    names, start = action_names(adapter, KEY)
    assert View(adapter, adapter.blank()).text  # raises if there are no words
    asking = Asking(KEY, judge, prompt, goal, per_token)
    model = chooser(chat_of(annotate, asking), ActionQuestion, adapter, names, asking)
    return ChatModelPolicy(model, start, greedy=greedy, temperature=temperature)


def action_names(adapter: EnvAdapter, key: str) -> tuple[tuple[str, ...], int]:
    """Return the names of discrete actions, and the first action.

    Raises:
        EnvError: actions are not discrete.
    """
    space = adapter.action_space
    if not isinstance(space, gym.spaces.Discrete):
        raise EnvError(f"{key}: {adapter.env_id} has actions {space}, but a language model chooses among named ones.")
    start = int(space.start)
    return tuple(adapter.action_name(action) for action in range(start, start + int(space.n))), start


ACTOR = language_model_policy
