"""language_model: a causal language model acts on states in words, before any training by Laurel.

Its options are the settings of `agent.language_model`, such as {model: smollm2}. The model tiny has random weights: in
evaluation, the initial weights of the agent with the same seed and settings; otherwise those of torch's seed 0.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from laurel.agents.actor import Actor
from laurel.agents.algorithms.language_model import LanguageModelAlgorithm
from laurel.envs.base import EnvAdapter
from laurel.params.file import refusals
from laurel.params.language_actor import LanguageActorParams


def base_model(adapter: EnvAdapter, *, greedy: bool = False, weights_seed: int = 0, **options: Any) -> Actor:
    """Make the actor; loads the model.

    Args:
        adapter: of an environment with words for its observations.
        greedy: take the likeliest answer instead of a sample.
        weights_seed: torch's seed for the weights of the model tiny.

    Raises:
        ParamsError: an option is not allowed.
        EnvError: it does not fit the environment.
        RefusedError: the model cannot be loaded.
    """
    import torch

    try:
        settings = LanguageActorParams.model_validate(options)
    except ValidationError as error:
        raise refusals(LanguageActorParams, error, ("options",)) from None
    algorithm = LanguageModelAlgorithm(settings)
    algorithm.check(adapter)
    with torch.random.fork_rng():
        torch.manual_seed(weights_seed)
        return algorithm.policy(adapter).as_actor(greedy=greedy)


ACTOR = base_model
