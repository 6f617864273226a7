"""The multi-armed bandit: arms with hidden mean rewards.

The testbed of Sutton & Barto (2018), section 2.3, and its drifting variant of exercise 2.5; every reset draws new arms,
unless `arms_seed` fixes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from laurel.arrays import BoolArray, DoubleArray, IntArray
from laurel.envs.builtin.batch import BatchEnv
from laurel.errors import EnvError

Rewards = Literal["gaussian", "bernoulli"]


@dataclass(frozen=True, slots=True)
class Arms:
    """How arms are drawn, drift and give rewards, for a batch of N bandits with K arms each.

    Gaussian arms give N(mean, noise) with means drawn from N(offset, spread); Bernoulli arms give 1 with a probability
    drawn uniformly from [0, 1], and 0 otherwise.

    Raises:
        EnvError: fewer than one arm, a negative deviation or seed, unknown rewards, or settings of Gaussian arms for
            Bernoulli ones.
    """

    n_arms: int = 10
    rewards: Rewards = "gaussian"
    offset: float = 0.0
    spread: float = 1.0
    noise: float = 1.0
    drift: float = 0.0
    """Standard deviation of the random step of every mean after each pull; 0 for a stationary bandit."""
    arms_seed: int | None = None
    """Seed that fixes the arms at every reset of every bandit; None: new arms each time."""

    def __post_init__(self) -> None:
        if self.n_arms < 1:
            raise EnvError(f"ArmedBandit: n_arms is {self.n_arms}; a bandit has at least one arm.")
        for name in ("spread", "noise", "drift"):
            if not getattr(self, name) >= 0:
                raise EnvError(f"ArmedBandit: {name} is {getattr(self, name)}; a standard deviation is 0 or more.")
        if self.arms_seed is not None and self.arms_seed < 0:
            raise EnvError(f"ArmedBandit: arms_seed is {self.arms_seed}; a seed is 0 or more.")
        if self.rewards not in ("gaussian", "bernoulli"):
            raise EnvError(f'ArmedBandit: rewards is "{self.rewards}"; allowed are "gaussian" and "bernoulli".')
        if self.rewards == "bernoulli" and (self.offset, self.spread, self.noise) != (0.0, 1.0, 1.0):
            raise EnvError(
                "ArmedBandit: offset, spread and noise have no effect on Bernoulli rewards. Leave them out, or set "
                "rewards to gaussian."
            )

    def draw(self, rng: np.random.Generator, n: int) -> DoubleArray:
        """Draw the means (N, K) of new bandits."""
        if self.arms_seed is not None:
            return np.repeat(self._drawn(np.random.default_rng(self.arms_seed), 1), n, axis=0)
        return self._drawn(rng, n)

    def _drawn(self, rng: np.random.Generator, n: int) -> DoubleArray:
        shape = (n, self.n_arms)
        if self.rewards == "bernoulli":
            return rng.random(shape)
        return self.offset + self.spread * rng.standard_normal(shape)

    def pull(self, rng: np.random.Generator, mean: DoubleArray) -> DoubleArray:
        """Draw the rewards (N,) of arms with these means (N,)."""
        if self.rewards == "bernoulli":
            return (rng.random(len(mean)) < mean).astype(np.float64)
        return mean + self.noise * rng.standard_normal(len(mean))

    def move(self, rng: np.random.Generator, means: DoubleArray) -> DoubleArray:
        """Return the means (N, K) after they drifted by a step; probabilities stay within [0, 1]."""
        if not self.drift:
            return means
        moved = means + self.drift * rng.standard_normal(means.shape)
        return moved.clip(0, 1) if self.rewards == "bernoulli" else moved


class ArmedBandit(gym.Env[np.int64, np.int64]):
    """One bandit. The observation is always 0, the single state.

    `info` holds what is hidden from the agent: `best_arm`, whose mean is the highest at the next pull, and `regret`,
        the difference between the best mean and that of the arm pulled.

    >>> env = ArmedBandit(n_arms=2, spread=0.0, noise=0.0, offset=3.0)
    >>> env.reset(seed=0)
    (np.int64(0), {'best_arm': np.int64(0)})
    >>> env.step(1)[1]
    3.0
    """

    def __init__(self, **arms: Any) -> None:
        self.arms = Arms(**arms)
        self.observation_space = gym.spaces.Discrete(1)
        self.action_space = gym.spaces.Discrete(self.arms.n_arms)
        self.means: DoubleArray = np.zeros((1, self.arms.n_arms))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self.means = self.arms.draw(self.np_random, 1)
        return np.int64(0), {"best_arm": self.means[0].argmax()}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        mean = self.means[:, action]
        reward = float(self.arms.pull(self.np_random, mean)[0])
        regret = float(self.means.max() - mean[0])
        self.means = self.arms.move(self.np_random, self.means)
        return np.int64(0), reward, False, False, {"best_arm": self.means[0].argmax(), "regret": regret}


class ArmedBanditVector(BatchEnv):
    """N bandits at once, each with its own arms, whose episodes end together; made by `gymnasium.make_vec`."""

    def __init__(self, num_envs: int = 1, max_episode_steps: int | None = None, **arms: Any) -> None:
        self.arms = Arms(**arms)
        super().__init__(num_envs, max_episode_steps, gym.spaces.Discrete(1), self.arms.n_arms)
        self.means: DoubleArray = np.zeros((num_envs, self.arms.n_arms))
        self._regret: dict[str, DoubleArray] = {}

    def begin(self, mask: BoolArray) -> None:
        self.means = self.arms.draw(self.np_random, self.num_envs)
        self._regret = {}

    def advance(self, actions: IntArray, begins: BoolArray) -> tuple[DoubleArray, BoolArray]:
        no_ends = np.zeros(self.num_envs, dtype=np.bool_)
        if begins.all():
            self.begin(begins)
            self._regret = {"regret": np.zeros(self.num_envs)}
            return np.zeros(self.num_envs), no_ends
        mean = self.means[np.arange(self.num_envs), actions]
        reward = self.arms.pull(self.np_random, mean)
        self._regret = {"regret": self.means.max(axis=1) - mean}
        self.means = self.arms.move(self.np_random, self.means)
        return reward, no_ends

    def observe(self) -> IntArray:
        return np.zeros(self.num_envs, dtype=np.int64)

    def info(self) -> dict[str, Any]:
        """Return the best arms and the regret, each with the mask of environments that gave it: all of them."""
        values = {"best_arm": self.means.argmax(axis=1), **self._regret}
        return {**values, **{f"_{name}": np.ones(self.num_envs, dtype=np.bool_) for name in values}}
