"""language_model: a causal language model acts on states in words, before any training by Laurel.

Its options are the settings of `agent.language_model`, such as {model: smollm2}. The model tiny has random weights: in
evaluation, the initial weights of the agent with the same seed and settings; otherwise those of torch's seed 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import ValidationError

from laurel.agents.actor import Acted, Actor, View, actor_kind
from laurel.agents.algorithms.language_model import CAUSAL, LanguageModelAlgorithm
from laurel.arrays import Array, BoolArray, FloatArray
from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.params.file import sentences
from laurel.params.language_actor import LanguageActorParams


class BaseModel(Actor):
    """Loads its model when an episode begins, since checks before a run make actors, too."""

    def __init__(self, load: Callable[[], Actor]) -> None:
        self._load = load

    @cached_property
    def loaded(self) -> Actor:
        """The same actor with its model in memory."""
        return self._load()

    def begin(self, which: BoolArray) -> None:
        self.loaded.begin(which)

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        return self.loaded.act(view, rng)

    def log_prob(self, view: View, action: Array) -> FloatArray:
        return self.loaded.log_prob(view, action)

    @property
    def account(self) -> Mapping[str, Any]:
        return self.loaded.account


@actor_kind(imports=CAUSAL)
def base_model(adapter: EnvAdapter, *, greedy: bool = False, weights_seed: int = 0, **options: Any) -> BaseModel:
    """Make the actor.

    Args:
        adapter: of an environment with words for its observations.
        greedy: take the likeliest answer instead of a sample.
        weights_seed: torch's seed for the weights of the model tiny.

    Raises:
        ParamsError: an option is not allowed.
        EnvError: it does not fit the environment.
        RefusedError: the model's directory or a package is missing. A model that is there but cannot be loaded raises
            it when an episode begins.
    """
    try:
        settings = LanguageActorParams.model_validate(options)
    except ValidationError as error:
        message = sentences("the actor language_model", LanguageActorParams, error, ("options",))
        raise ParamsError(message) from None
    algorithm = LanguageModelAlgorithm(settings)
    algorithm.check(adapter)

    def load() -> Actor:
        import torch

        with torch.random.fork_rng():
            torch.manual_seed(weights_seed)
            return algorithm.policy(adapter).as_actor(greedy=greedy)

    return BaseModel(load)


ACTOR = base_model
