"""An actor-critic with memory: a gated recurrent unit between encoder and heads. Callers mark where episodes begin."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from laurel.agents.actor import Acted, Actor, View
from laurel.agents.images import ImageEncoder, image_of
from laurel.agents.learner import PolicyNetwork
from laurel.agents.policy import ActorCritic, mlp
from laurel.arrays import Array, BoolArray, FloatArray


class RecurrentActorCritic(PolicyNetwork):
    """Policy and value heads on a shared recurrent state (a GRU: Cho et al. 2014, arXiv 1406.1078).

    Args:
        n_features: F, width of a feature row.
        n_actions: number of discrete actions, or the dimension of continuous ones.
        continuous: a Gaussian with a state-independent deviation instead of a categorical policy.
        hidden: widths of the layers before the memory, and, last, of the memory: M.
        images: where images are in a row of features, as `laurel.agents.images.Image.config` gives them.
    """

    kind = "recurrent_actor_critic"
    ppo_class: ClassVar[str] = "laurel.agents.recurrent_ppo:RecurrentPPO"
    """As of `laurel.agents.policy.ActorCritic`."""

    def __init__(
        self,
        n_features: int,
        n_actions: int,
        *,
        continuous: bool,
        hidden: tuple[int, ...],
        images: tuple[list[int], ...] = (),
    ) -> None:
        super().__init__()
        self.n_features = n_features
        self.n_actions = n_actions
        self.continuous = continuous
        self.hidden = hidden
        self.images = images
        *before, self.memory_size = hidden
        layers: list[nn.Module] = []
        width = n_features
        if images:
            encoder = ImageEncoder(n_features, tuple(image_of(place) for place in images))
            layers, width = [encoder], encoder.size
        for size in before:
            layers += [*mlp((width, size), gain=2**0.5), nn.Tanh()]
            width = size
        self.encoder = nn.Sequential(*layers)
        self.core = nn.GRUCell(width, self.memory_size)
        self.heads = ActorCritic(self.memory_size, n_actions, continuous=continuous, hidden=())

    def initial_memory(self, n: int) -> FloatArray:
        """Return the memory (n, M) before an episode's first step."""
        return np.zeros((n, self.memory_size), dtype=np.float32)

    @torch.inference_mode()
    def remember(self, features: FloatArray, memory: FloatArray) -> FloatArray:
        """Return the memory (N, M) after seeing features (N, F)."""
        x, before = (torch.from_numpy(array).to(self.device) for array in (features, memory))
        after: FloatArray = self.core(self.encoder(x), before).cpu().numpy()
        return after

    def act(
        self, features: FloatArray, rng: np.random.Generator, *, greedy: bool = False
    ) -> tuple[Array, FloatArray, FloatArray]:
        """Act as in an episode's first step, with the initial memory."""
        return self.heads.act(self.remember(features, self.initial_memory(len(features))), rng, greedy=greedy)

    def log_prob(self, features: FloatArray, action: Array) -> FloatArray:
        """Return the log-probabilities (N,) of actions in an episode's first step."""
        return self.heads.log_prob(self.remember(features, self.initial_memory(len(features))), action)

    def as_actor(self, *, greedy: bool = False) -> Actor:
        return RecurrentActor(self, greedy=greedy)

    def forward(self, features: Tensor, action: Tensor, memory: Tensor, begins: Tensor) -> tuple[Tensor, ...]:
        """Go through sequences of T steps.

        Args:
            features: (T, B, F).
            action: (T, B) or (T, B, A).
            memory: (B, M) before the first step.
            begins: (T, B) 1.0 where an episode begins and the memory is reset.

        Returns:
            Log-probabilities of the actions, entropies and values, each (T, B).
        """
        n_steps, n_rows = features.shape[:2]
        encoded = self.encoder(features.reshape(n_steps * n_rows, -1)).reshape(n_steps, n_rows, -1)
        memories = []
        for t in range(n_steps):
            memory = self.core(encoded[t], memory * (1 - begins[t])[:, None])
            memories.append(memory)
        flat = action.reshape(n_steps * n_rows, *action.shape[2:])
        return tuple(part.reshape(n_steps, n_rows) for part in self.heads(torch.cat(memories), flat))


class RecurrentActor(Actor):
    """Acts with a recurrent policy, and keeps its memory for N environments."""

    def __init__(self, policy: RecurrentActorCritic, *, greedy: bool) -> None:
        self._policy, self._greedy = policy, greedy
        self.memory: FloatArray = policy.initial_memory(0)

    def begin(self, which: BoolArray) -> None:
        if len(which) != len(self.memory):
            self.memory = self._policy.initial_memory(len(which))
        self.memory[which] = 0

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        self.memory = self._policy.remember(view.features, self.memory)
        return Acted(*self._policy.heads.act(self.memory, rng, greedy=self._greedy))

    def log_prob(self, view: View, action: Array) -> FloatArray:
        return self._policy.heads.log_prob(self.memory, action)
