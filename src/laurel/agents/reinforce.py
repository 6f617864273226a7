"""REINFORCE with a learned baseline (Williams 1992; Sutton & Barto 2018, section 13.4).

    G_t = R_{t+1} + γ G_{t+1};   θ ← θ + α mean[(G_t - b(S_t)) ∇ log π(A_t|S_t)];   b(S_t) moves towards G_t

Learns from whole episodes: after each rollout from the episodes that ended in it, one step by Adam on all their rows.
The book's factor γ^t is left out, as in nearly all implementations: late steps would have no effect. An episode that
began before the last update is treated as if the current policy had acted from its start. The return of a truncated
episode ends with the baseline of its last observation, which estimates the rewards that were cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from laurel.agents.a2c import PolicyGradient
from laurel.agents.learner import Rollout
from laurel.agents.policy import ActorCritic
from laurel.arrays import Array, FloatArray
from laurel.params.algorithms import ReinforceParams


@dataclass(frozen=True, slots=True)
class Part:
    """K steps of one episode, in order."""

    observation: Array
    """(K, D) packed observations before the actions."""
    action: Array
    reward: FloatArray
    """(K,) training reward at the time of the steps."""


@dataclass(frozen=True, slots=True)
class Episode(Part):
    """A whole episode."""

    last: Array
    """(D,) the last observation."""
    truncated: bool


class Reinforce(PolicyGradient):
    """Learns from episodes once they have ended; the steps of running episodes are buffered."""

    name = "reinforce"

    def __init__(self, policy: ActorCritic, params: ReinforceParams, rng: np.random.Generator) -> None:
        super().__init__(policy, params, rng)
        self._running: list[list[Part]] = [[] for _ in range(params.n_envs)]

    def learn(self, rollout: Rollout) -> Mapping[str, float]:
        episodes = self._take_in(rollout)
        if not episodes:
            return {}
        after = self.policy.evaluate(self.features(np.stack([episode.last for episode in episodes])))
        returns = np.concatenate(
            [
                discounted(episode.reward, after=float(worth) if episode.truncated else 0.0, gamma=self.params.gamma)
                for episode, worth in zip(episodes, after, strict=True)
            ]
        )
        features = self.features(np.concatenate([episode.observation for episode in episodes]))
        action = np.concatenate([episode.action for episode in episodes])
        return self.step(features, action, returns)

    def replayed(self, rollout: Rollout) -> None:
        self._take_in(rollout)

    def _take_in(self, rollout: Rollout) -> list[Episode]:
        """Add a rollout to the running episodes; return the episodes that ended in it."""
        finished = []
        ended = rollout.terminated | rollout.truncated
        for n, running in enumerate(self._running):
            start = 0
            for end in (np.flatnonzero(ended[:, n]) + 1).tolist():
                episode = _joined([*running, _episode_slice(rollout, start, end, n)])
                last, truncated = rollout.observation[end, n].copy(), bool(rollout.truncated[end - 1, n])
                finished.append(Episode(episode.observation, episode.action, episode.reward, last, truncated))
                running.clear()
                start = end
            running.append(_episode_slice(rollout, start, len(ended), n))
        return finished


def discounted(reward: FloatArray, *, after: float, gamma: float) -> FloatArray:
    """Return the discounted returns (K,) for an episode's rewards (K,) and the value after its last step."""
    returns = np.empty_like(reward)
    following = after
    for t in range(len(reward) - 1, -1, -1):
        following = float(reward[t]) + gamma * following
        returns[t] = following
    return returns


def _episode_slice(rollout: Rollout, start: int, end: int, n: int) -> Part:
    """Copy an environment's steps between two steps of a rollout, without resets."""
    steps = np.flatnonzero(rollout.valid[start:end, n]) + start
    return Part(rollout.observation[steps, n], rollout.action[steps, n], rollout.reward[steps, n])


def _joined(parts: list[Part]) -> Part:
    return Part(
        np.concatenate([part.observation for part in parts]),
        np.concatenate([part.action for part in parts]),
        np.concatenate([part.reward for part in parts]),
    )
