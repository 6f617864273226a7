"""writer: a causal language model, not trained by Laurel, that completes the prompts of a text environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laurel.envs.base import EnvAdapter
from laurel.envs.completions import text_sizes
from laurel.params.algorithms import GroupParams

if TYPE_CHECKING:
    from laurel.agents.writer import WriterActor

_DEFAULTS = GroupParams()


def writer(
    adapter: EnvAdapter,
    *,
    model: str = _DEFAULTS.model,
    max_tokens: int = _DEFAULTS.max_tokens,
    temperature: float = _DEFAULTS.temperature,
    stop: str = _DEFAULTS.stop,
    greedy: bool = False,
) -> WriterActor:
    """Make the actor; the model is loaded when it first acts.

    Args:
        model: a directory, `smollm2`, or a name on the Hugging Face hub.
        max_tokens: of a completion, its end included.
        stop: characters that end a completion.
        greedy: take the likeliest tokens instead of a sample.

    Raises:
        EnvError: observations or actions are not text.
    """
    from laurel.agents.writer import WriterActor, Writing

    _, size = text_sizes(adapter, "The actor writer")
    return WriterActor(Writing(model, max_tokens, temperature, stop), size, greedy=greedy)


ACTOR = writer
