"""A causal language model as policy: it reads prompts and writes completions, packed as in
`laurel.envs.builtin.completions`.

LoRA weights are trained; the model below them stays frozen, and the divergence is measured from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from laurel.agents.actor import Acted, Actor, View
from laurel.agents.learner import PolicyNetwork
from laurel.arrays import Array, FloatArray
from laurel.envs.builtin.completions import packed_text, text_of
from laurel.llm.causal import load_causal, put_weights, tokens_of, weights_of, with_lora
from laurel.llm.local_model import LocalModel
from laurel.llm.sampling import Sampled, log_probs, sample


@dataclass(frozen=True)
class Writing:
    """How completions are written."""

    model: str
    """A directory, `smollm2`, or a name on the hub."""
    max_tokens: int
    temperature: float
    stop: str
    """Characters; a token that holds one of them ends the completion and is left out of it."""


class CompletionSampler:
    """Writes completions of prompts with a loaded model."""

    def __init__(self, local: LocalModel, how: Writing) -> None:
        texts = local.tokenizer.batch_decode([[token] for token in range(len(local.tokenizer))])
        ends = {token for token, text in enumerate(texts) if set(how.stop) & set(text)}
        self.local, self._how = replace(local, stops=local.stops | ends), how

    def write(self, prompts: Sequence[str], rng: np.random.Generator, *, greedy: bool = False) -> Sampled:
        """Draw a completion of each prompt (N,); that of an empty prompt is empty."""
        asked = [number for number, prompt in enumerate(prompts) if prompt]
        if not asked:
            return Sampled([[] for _ in prompts], np.zeros(len(prompts), dtype=np.float32), [None] * len(prompts))
        tokens = [tokens_of(self.local, prompts[number]) for number in asked]
        temperature = 0.0 if greedy else self._how.temperature
        drawn = sample(self.local, tokens, rng, max_tokens=self._how.max_tokens, temperature=temperature)
        if len(asked) == len(prompts):
            return drawn
        place = {number: i for i, number in enumerate(asked)}
        return Sampled(
            [drawn.tokens[place[i]] if i in place else [] for i in range(len(prompts))],
            np.array([drawn.log_prob[place[i]] if i in place else 0.0 for i in range(len(prompts))], dtype=np.float32),
            [drawn.ends[place[i]] if i in place else None for i in range(len(prompts))],
        )

    def rows(self, drawn: Sampled, size: int) -> FloatArray:
        """Return completions as actions (N, size)."""
        texts = self.local.tokenizer.batch_decode(drawn.tokens, skip_special_tokens=True)
        return np.stack([packed_text(text, size) for text in texts]).astype(np.float32)


class Writer(PolicyNetwork):
    """A language model with LoRA weights; its state and parameters are only those weights.

    Args:
        model: a directory, `smollm2`, or a name on the Hugging Face hub.
        max_tokens: of a completion, its end included.
        stop: characters that end a completion.
        n_features: bytes of a prompt.
        n_actions: bytes of a completion.
    """

    kind: ClassVar[str] = "writer"
    continuous = True

    def __init__(
        self, model: str, rank: int, max_tokens: int, temperature: float, stop: str, n_features: int, n_actions: int
    ) -> None:
        super().__init__()
        self.how = Writing(model, max_tokens, temperature, stop)
        self.rank, self.n_features, self.n_actions = rank, n_features, n_actions
        self.sampler = CompletionSampler(with_lora(load_causal(model), rank), self.how)
        self.network = self.sampler.local.model
        self.drawn: Sampled | None = None
        """What the last `act` wrote, in tokens."""

    def config(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("rank", "n_features", "n_actions")}
        return {**vars(self.how), **own}

    def act(
        self, features: FloatArray, rng: np.random.Generator, *, greedy: bool = False
    ) -> tuple[Array, FloatArray, FloatArray]:
        self.drawn = self.sampler.write([text_of(row) for row in features], rng, greedy=greedy)
        return self.sampler.rows(self.drawn, self.n_actions), self.drawn.log_prob, np.zeros(len(features), np.float32)

    def log_prob(self, features: FloatArray, action: Array) -> FloatArray:
        """Return log-probabilities (N,) of the texts as the tokenizer splits them, without end tokens."""
        local = self.sampler.local
        prompts, texts = ([tokens_of(local, text_of(row)) for row in rows] for rows in (features, action))
        return log_probs(local, prompts, texts, self.how.temperature)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        return ((name, weight) for name, weight in super().named_parameters(*args, **kwargs) if weight.requires_grad)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:  # type: ignore[override]
        return weights_of(self.network)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        put_weights(self.network, state_dict)


class WriterActor(Actor):
    """A language model that Laurel has not trained."""

    def __init__(self, how: Writing, size: int, *, greedy: bool) -> None:
        self._how, self._size, self._greedy = how, size, greedy

    @cached_property
    def _sampler(self) -> CompletionSampler:
        """The sampler, whose model is loaded when the actor first acts."""
        torch.set_num_threads(1)
        return CompletionSampler(load_causal(self._how.model), self._how)

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        drawn = self._sampler.write(view.text, rng, greedy=self._greedy)
        return Acted(self._sampler.rows(drawn, self._size), drawn.log_prob)
