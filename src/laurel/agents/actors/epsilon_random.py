"""epsilon_random: a trained agent's action, or with probability epsilon a uniform one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from laurel.agents.actor import Acted, Actor, View, actor_kind
from laurel.agents.actors.checkpoint import load_agent
from laurel.agents.actors.random import UniformPolicy
from laurel.arrays import Array, BoolArray, FloatArray
from laurel.envs.base import EnvAdapter


class EpsilonRandom(Actor):
    """A mixture of an actor and uniform actions; log-probabilities are the mixture's, regardless of which part drew the
    action.
    """

    def __init__(self, actor: Actor, uniform: UniformPolicy, epsilon: float) -> None:
        self._actor, self._uniform, self._epsilon = actor, uniform, epsilon

    def begin(self, which: BoolArray) -> None:
        self._actor.begin(which)

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        acted = self._actor.act(view, rng)
        if self._epsilon == 0:
            return acted
        action = acted.action
        uniform = self._uniform.draw(len(view), rng)
        explores = rng.random(len(view)) < self._epsilon
        action = np.where(explores.reshape(-1, *[1] * (action.ndim - 1)), uniform, action)
        return Acted(action, self.log_prob(view, action), acted.value)

    def log_prob(self, view: View, action: Array) -> FloatArray:
        with np.errstate(divide="ignore"):
            shares = np.log([self._epsilon, 1 - self._epsilon])
        uniform, base = self._uniform.log_prob_of(action), self._actor.log_prob(view, action)
        return np.logaddexp(shares[0] + uniform, shares[1] + base).astype(np.float32)


@actor_kind(replays_agent=True)
def load_mixture(adapter: EnvAdapter, path: Path, *, epsilon: float) -> EpsilonRandom:
    """Load the agent of a directory, as `laurel.agents.actors.checkpoint` does, and mix it with uniform actions."""
    return EpsilonRandom(load_agent(adapter, path), UniformPolicy(adapter.action_space), epsilon)


ACTOR = load_mixture
