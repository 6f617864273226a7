"""GLAM: PPO on a language model whose policy is the normalised likelihood of each action's name (Carta et al. 2023,
arXiv 2302.02662).

    π(a|s) ∝ exp Σ_j log p(w_j | prompt of s, w_1 … w_{j-1}),   w the tokens of a's name

Loss and advantages are those of `laurel.agents.ppo`; a small network computes the value from the model's hidden state
at the prompt's last token. All names are read in one sequence, where each attends only to the prompt and its own
tokens. A state that occurs several times in a batch, or while experience is collected, is read once. As in
`laurel.agents.actors.llm_policy`, the model sees no history.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laurel.agents.actor import Actor, Advisor, View
from laurel.agents.choice import sample
from laurel.agents.language_model.chain import MovesChain, Reader
from laurel.agents.language_model.policy import LanguageModelPolicy
from laurel.agents.policy import mlp
from laurel.agents.ppo import PPO, OnPolicyRollout
from laurel.arrays import Array, FloatArray
from laurel.envs.base import EnvAdapter
from laurel.envs.vector import VectorEnv
from laurel.errors import AnnotationError
from laurel.llm.causal import check_room, put_weights, tokens_of
from laurel.llm.local_scoring import Read, Row, padded, tree_mask

BATCH_TOKENS = 2**13
"""Tokens that are read at once."""
HIDDEN = 64
"""Width of the value network."""


class LikelihoodPolicy(LanguageModelPolicy):
    """Acts by the normalised likelihoods of the actions' names; takes the arguments of `LanguageModelPolicy`.

    Its features are numbers (N, 1) of states that it was shown in words (`numbered`).

    Raises:
        AnnotationError: the model transforms its logits, e.g. scales them, which is not supported here.
    """

    kind = "glam"

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        width = self._causal.config.get_text_config().hidden_size
        body = mlp((width, HIDDEN, 1), gain=1.0)
        self.value = nn.Sequential(nn.LayerNorm(width, elementwise_affine=False), body)
        self._rows: list[Row] = []
        self._numbers: dict[str, int] = {}
        self._known: dict[int, tuple[FloatArray, float]] = {}
        self._check_head()

    def config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(LanguageModelPolicy).parameters}

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, weight) for name, weight in super().named_parameters(*args, **kwargs) if weight.requires_grad)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return the weights that are trained: the model's, or LoRA's, and the value's."""
        return {**super().state_dict(), **{f"value.{name}": tensor for name, tensor in self.value.state_dict().items()}}

    def load_state_dict(self, state_dict: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> None:
        put_weights(self.network, state_dict)
        self.value.load_state_dict({name: state_dict[f"value.{name}"] for name in self.value.state_dict()})

    @property
    def _causal(self) -> Any:
        """The model with its last layer, LoRA's weights in their places."""
        return self.network.get_base_model() if self.rank else self.network

    def _check_head(self) -> None:
        tokens = torch.arange(2)[None]
        with torch.inference_mode():
            logits = self._causal.get_output_embeddings()(self._hidden(tokens))
            if not torch.allclose(logits.float(), self._causal(tokens).logits.float(), rtol=1e-2, atol=1e-2):
                raise AnnotationError(
                    f"agent.glam cannot train {self.model}: {type(self._causal).__name__} scales its logits. Take a "
                    "model that does not, such as one of the kinds Llama, Qwen or Mistral."
                )

    def _hidden(self, tokens: Tensor, **inputs: Tensor) -> Tensor:
        """Return the last hidden states (B, W, D) of tokens (B, W)."""
        inputs = {name: value.to(self.device) for name, value in inputs.items()}
        hidden: Tensor = self._causal.base_model(input_ids=tokens.to(self.device), use_cache=False, **inputs)[0]
        return hidden

    @cached_property
    def _answers(self) -> list[list[int]]:
        """The tokens of each action's name."""
        return [tokens_of(self.local, name) for name in self.names]

    def numbered(self, adapter: EnvAdapter, states: Sequence[str]) -> FloatArray:
        """Return the numbers (N, 1) of states in words, new ones where they are met for the first time."""
        assert isinstance(self.asks, MovesChain)
        reader = Reader(self.local, adapter)
        for state in states:
            if state not in self._numbers:
                tokens = self.asks.asked(reader, state)[1]
                check_room(self.local, [tokens], max(map(len, self._answers)))
                self._numbers[state] = len(self._rows)
                self._rows.append(self._row(tokens))
        return np.array([[self._numbers[state]] for state in states], dtype=np.float32)

    def forget(self) -> None:
        """Reset the numbering of states, and what is known of them; necessary when the weights have changed."""
        self._rows.clear()
        self._numbers.clear()
        self._known.clear()

    def _row(self, prompt: Sequence[int]) -> Row:
        """Return a prompt and all names after it; the field `prompt` of a `Read` holds the number of its action."""
        row = Row()
        for action, answer in enumerate(self._answers):
            row = row.with_path([*prompt, *answer[:-1]])
            places = row.line[len(prompt) - 1 :]
            reads = (Read(place, token, action, "") for place, token in zip(places, answer, strict=True))
            row = row._replace(reads=(*row.reads, *reads))
        return row

    def distributions(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities (N, A) of all actions, and the values (N,)."""
        distinct, place = np.unique(features[:, 0].cpu().numpy().astype(np.int64), return_inverse=True)
        rows = [self._rows[number] for number in distinct.tolist()]
        size = max(1, BATCH_TOKENS // max(len(row.tokens) for row in rows))
        parts = [self._read(rows[start : start + size]) for start in range(0, len(rows), size)]
        index = torch.from_numpy(place).to(self.device)
        logs, values = (torch.cat(part)[index] for part in zip(*parts, strict=True))
        return logs, values

    def _read(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        depths = [row.depths() for row in rows]
        inputs = {}
        if any(depth != place for of_row in depths for place, depth in enumerate(of_row)):  # names of several tokens
            mask = tree_mask(rows, 0, self._causal.dtype)
            inputs = {"attention_mask": mask, "position_ids": padded(depths)}
        hidden = self._hidden(padded([row.tokens for row in rows]), **inputs)  # nothing attends to padding
        wanted = {(i, read.place): None for i, row in enumerate(rows) for read in row.reads}
        numbers = {place: number for number, place in enumerate(wanted)}
        of_row, places = torch.tensor(list(wanted)).T.to(self.device)
        logs = self._causal.get_output_embeddings()(hidden[of_row, places]).float().log_softmax(dim=-1)
        reads = [
            (numbers[i, read.place], read.token, i, read.prompt) for i, row in enumerate(rows) for read in row.reads
        ]
        number, token, prompt_index, action = torch.tensor(reads).T.to(self.device)
        sums = torch.zeros(len(rows), self.n_actions, device=self.device)
        sums = sums.index_put((prompt_index, action), logs[number, token], accumulate=True)
        last = torch.tensor([row.reads[0].place for row in rows], device=self.device)
        values = self.value(hidden[torch.arange(len(rows), device=self.device), last].float())[:, 0]
        return sums.log_softmax(dim=-1), values

    def forward(self, features: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities of the actions, entropies and values, each (N,)."""
        logs, value = self.distributions(features)
        return logs.gather(1, action[:, None])[:, 0], -(logs.exp() * logs).sum(dim=1), value

    @torch.inference_mode()
    def act(  # type: ignore[override]
        self, features: FloatArray, rng: np.random.Generator, *, greedy: bool = False
    ) -> tuple[Array, FloatArray, FloatArray]:
        """Draw actions (N,) for numbered states (N, 1); return their log-probabilities and the values, too."""
        logs, value = self._of_states(features)
        choice = logs.argmax(axis=1) if greedy else sample(np.exp(logs).astype(np.float64), rng)
        return choice, logs[np.arange(len(choice)), choice], value

    @torch.inference_mode()
    def evaluate(self, features: FloatArray) -> FloatArray:
        """Return the values (N,) of numbered states (N, 1)."""
        return self._of_states(features)[1]

    def _of_states(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log-probabilities (N, A) and values (N,) of numbered states (N, 1), those of each state computed
        once until `forget`.
        """
        numbers = features[:, 0].astype(np.int64).tolist()
        if new := [number for number in dict.fromkeys(numbers) if number not in self._known]:
            logs, values = self.distributions(torch.tensor(new, dtype=torch.float32)[:, None])
            self._known |= zip(new, zip(logs.cpu().numpy(), values.tolist(), strict=True), strict=True)
        found_logs, found_values = zip(*(self._known[number] for number in numbers), strict=True)
        return np.stack(found_logs), np.array(found_values, dtype=np.float32)

    def as_actor(self, *, greedy: bool = False) -> Actor:
        return LikelihoodActor(self, greedy=greedy)


class LikelihoodActor(Advisor):
    """Acts by the policy, and provides action probabilities."""

    def __init__(self, policy: LikelihoodPolicy, *, greedy: bool) -> None:
        super().__init__(policy.n_actions, greedy=greedy)
        self._policy = policy

    @torch.inference_mode()
    def advise(self, view: View) -> FloatArray:
        self._policy.forget()
        numbers = self._policy.numbered(view.adapter, view.text)
        log_probs: FloatArray = self._policy.distributions(torch.from_numpy(numbers))[0].cpu().numpy()
        return log_probs


class GLAM(PPO):
    """PPO on the likelihoods of the actions' names."""

    name = "glam"
    policy: LikelihoodPolicy  # type: ignore[assignment]  # not an ActorCritic, but with its methods

    def rollout(self, envs: VectorEnv) -> OnPolicyRollout:
        rollout = super().rollout(envs)
        rollout.features = np.zeros((*rollout.value.shape, 1), dtype=np.float32)
        return rollout

    def collect(self, envs: VectorEnv, observation: Array, rollout: OnPolicyRollout) -> Array:
        self.policy.forget()
        return super().collect(envs, observation, rollout)

    def features(self, adapter: EnvAdapter, observation: Array) -> FloatArray:
        return self.policy.numbered(adapter, View(adapter, observation).text)
