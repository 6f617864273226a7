"""A policy at play in some environments: it acts, and keeps the memory of a policy that has one.

Knows nothing about what the actions are for.
"""

from __future__ import annotations

import numpy as np

from laurel.agents.learner import Policy
from laurel.agents.recurrent import RecurrentActorCritic
from laurel.envs.base import Array, BoolArray, FloatArray


class Player:
    """Acts on features (N, F), row by row of always the same N environments.

    Args:
        policy: what acts.
        rng: draws.
        greedy: take the likeliest action instead of a sample.
    """

    def __init__(self, policy: Policy, rng: np.random.Generator, *, greedy: bool = False) -> None:
        self.policy = policy
        self.rng = rng
        self.greedy = greedy
        self._memory: FloatArray | None = None

    def __call__(self, features: FloatArray) -> Array:
        """Return actions (N,) or (N, A)."""
        return self.act(features)[0]

    def act(self, features: FloatArray) -> tuple[Array, FloatArray, FloatArray]:
        """Return actions, their log-probabilities and values (N,)."""
        if not isinstance(self.policy, RecurrentActorCritic):
            return self.policy.act(features, self.rng, greedy=self.greedy)
        if self._memory is None:
            self._memory = self.policy.nothing(len(features))
        self._memory = self.policy.remember(features, self._memory)
        return self.policy.heads.act(self._memory, self.rng, greedy=self.greedy)

    def log_prob(self, features: FloatArray, action: Array) -> FloatArray:
        """Return the log-probabilities (N,) of other actions where `act` was asked last."""
        if isinstance(self.policy, RecurrentActorCritic) and self._memory is not None:
            return self.policy.heads.log_prob(self._memory, action)
        return self.policy.log_prob(features, action)

    def begin(self, which: BoolArray) -> None:
        """Forget what came before where an episode begins (N,) with what is seen next."""
        if self._memory is not None:
            self._memory[which] = 0
