"""A language model as a policy, which is saved as an agent, evaluated and shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from torch import Tensor

from laurel.agents.actor import Acted, Actor, View
from laurel.agents.language_model.answers import Converter
from laurel.agents.language_model.chain import Chain, Proposal, Reader, chain_settings, make_chain
from laurel.agents.learner import PolicyNetwork
from laurel.arrays import Array, FloatArray
from laurel.envs.base import EnvAdapter
from laurel.envs.sequences import Sequences
from laurel.errors import DataError, EnvError
from laurel.llm.causal import load_causal, put_weights, save_causal, weights_of
from laurel.llm.local_model import LocalModel
from laurel.llm.lora import with_lora
from laurel.llm.tiny_model import RECURS, write_tiny_model
from laurel.params.language_actor import TINY, LanguageActorParams

MOST_WORDS = 512
"""States whose texts the tokenizer of the model tiny learns from."""
CONTEXT = 4096
"""Tokens that the model tiny takes: it splits words that its tokenizer has not learned into letters."""


class LanguageModelPolicy(PolicyNetwork):
    """Acts by a causal language model's answers about states in words.

    Args:
        n_features: of the environment's observations, to recognise an agent of another environment; the model itself
            sees observations in words.
        model: `tiny`, `smollm2`, a directory or a name on the hub.
        revision: of its weights, where it is not tiny; None takes the weights that are there.
        rank: of the LoRA weights; 0: all weights are trained, without LoRA.
        longest: most moves of an action.
        chain: settings of the chain (`chain_settings`).
        words: texts from which the tokenizer of tiny learns.
    """

    kind = "language_model"
    continuous = False

    def __init__(
        self,
        n_features: int,
        model: str,
        revision: str | None,
        rank: int,
        dtype: Any,
        names: Sequence[str],
        longest: int,
        chain: Mapping[str, Any],
        temperature: float,
        words: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.n_features = n_features
        self.model, self.rank, self.dtype, self.temperature = model, rank, dtype, temperature
        self.names, self.longest, self.chain, self.words = tuple(names), longest, dict(chain), tuple(words)
        local = _tiny(words) if model == TINY else load_causal(model, dtype=dtype)
        if model != TINY and revision not in (None, local.identity.revision):
            raise DataError(
                f"The agent was trained on the weights {revision} of {model}, but those installed here are "
                f"{local.identity.revision}. Restore the former, or train the agent again."
            )
        self.revision = None if model == TINY else local.identity.revision
        local.model.requires_grad_(rank == 0)
        self._local = with_lora(local, rank) if rank else local
        self.network = self._local.model
        self.lists = Sequences(len(names), longest)
        self.n_actions = self.lists.count

    @property
    def local(self) -> LocalModel:
        """The model, on the device of its weights."""
        return dataclasses.replace(self._local, device=self.device)

    @cached_property
    def asks(self) -> Chain:
        """The chain of prompts."""
        return make_chain(self.chain, self.names, self.longest)

    def propose(
        self, adapter: EnvAdapter, states: Sequence[str], rng: np.random.Generator, *, greedy: bool = False
    ) -> list[Proposal]:
        """Return the model's answers to states in words; greedy: the likeliest ones."""
        return self.asks.propose(Reader(self.local, adapter), states, rng, 0.0 if greedy else self.temperature)

    def as_actor(self, *, greedy: bool = False) -> Actor:
        return LanguageModelActor(self, greedy=greedy)

    def act(self, features: FloatArray, rng: np.random.Generator, *, greedy: bool = False) -> NoReturn:
        """Not supported: a language model reads texts."""
        raise EnvError("A language model acts on states in words, not on features: use `as_actor`.")

    def log_prob(self, features: FloatArray, action: Array) -> NoReturn:
        raise EnvError("A language model acts on states in words, not on features: use `as_actor`.")

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return the weights that are trained: LoRA's alone, or all of them without LoRA."""
        return weights_of(self.network)

    def load_state_dict(self, state_dict: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> None:
        put_weights(self.network, state_dict)

    def write_beside(self, folder: Path) -> None:
        """Write the adapter, or the whole model, as peft and transformers load it."""
        save_causal(self.local, folder / ("adapter" if self.rank else "language_model"))


class LanguageModelActor(Actor):
    """Acts by the policy; an answer that cannot be read is a random action, and counted."""

    def __init__(self, policy: LanguageModelPolicy, *, greedy: bool) -> None:
        self._policy, self._greedy = policy, greedy
        self._known: dict[str, Proposal] = {}
        self._met: set[str] = set()
        self._answers = self._unread = self._tokens = 0

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        acting = np.flatnonzero(view.acting).tolist()
        states, adapter = [view.text[i] for i in acting], view.adapter
        if self._greedy:  # equal states have equal answers
            new = [state for state in dict.fromkeys(states) if state not in self._known]
            written = self._policy.propose(adapter, new, rng, greedy=True) if new else []
            self._known.update(zip(new, written, strict=True))
            proposals = [self._known[state] for state in states]
        else:
            proposals = written = self._policy.propose(adapter, states, rng) if states else []
        self._met.update(states)
        self._answers += len(written)
        self._unread += sum(proposal.moves is None for proposal in written)
        self._tokens += sum(proposal.tokens for proposal in written)
        by_env: list[Proposal | None] = [None] * len(view)
        for i, proposal in zip(acting, proposals, strict=True):
            by_env[i] = proposal
        logs = np.array([np.nan if proposal is None else proposal.log_prob for proposal in by_env], dtype=np.float32)
        return Acted(actions_of(by_env, self._policy.lists, rng), logs)

    @property
    def account(self) -> Mapping[str, Any]:
        if not self._answers:
            return {}
        return {
            "model": self._policy.model,
            "states": len(self._met),
            "answers": self._answers,
            "unread": self._unread,
            "tokens": self._tokens,
        }


def actions_of(proposals: Sequence[Proposal | None], lists: Sequences, rng: np.random.Generator) -> Array:
    """Return the actions (N,) that proposals name; a random one without a proposal, or where it cannot be read."""
    action = lists.draw(len(proposals), rng)
    for i, proposal in enumerate(proposals):
        if proposal is not None and proposal.moves is not None:
            action[i] = lists.number(proposal.moves)
    return action


Made = TypeVar("Made", bound=LanguageModelPolicy)


def make_policy(settings: LanguageActorParams, adapter: EnvAdapter, names: Sequence[str], kind: type[Made]) -> Made:
    """Make the untrained policy of an environment with moves of these names; torch's own generator draws new weights.

    Raises:
        RefusedError: the model cannot be loaded.
        PromptError: the prompt cannot be used.
    """
    chain, revision = chain_settings(settings), None
    words: tuple[str, ...] = ()
    if settings.model == TINY:
        words = words_of(adapter, chain, names)
    return kind(
        adapter.n_features,
        settings.model,
        revision,
        settings.rank,
        settings.dtype,
        names,
        adapter.max_moves,
        chain,
        settings.temperature,
        words,
    )


def words_of(adapter: EnvAdapter, chain: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """Return texts in the words of an environment: its states where they can be listed, its moves and answers."""
    space = adapter.packed.space
    texts = [adapter.description, adapter.goal or "", *chain.get("strategies", ())]
    converter = Converter(chain["answer"], names, 1)
    for move in range(len(names)):
        texts += [converter.write((move,)), converter.form.between + names[move]] * RECURS
    count = int(getattr(space, "n", 0))
    for number in np.linspace(0, count - 1, min(count, MOST_WORDS)).astype(int).tolist():
        texts.append(adapter.describe_observation(int(getattr(space, "start", 0)) + number) or "")
    return tuple(texts)


def _tiny(words: Sequence[str]) -> LocalModel:
    with TemporaryDirectory(prefix="laurel-") as folder:
        seed = int(torch.randint(2**31, (1,)))
        return load_causal(str(write_tiny_model(Path(folder), words, context=CONTEXT, seed=seed)))
