"""The policies that collect data: uniform actions, trained agents, or a mixture of the two.

Each drives its share of the environments. Knows nothing about what becomes of the steps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from laurel.data.recorder import EpisodeRecorder
from laurel.data.trajectories import Rows
from laurel.envs.base import Array, BoolArray, EnvAdapter, FloatArray
from laurel.errors import DataError, EnvError, ParamsError
from laurel.params import PolicyShare
from laurel.seeding import generator

if TYPE_CHECKING:
    from laurel.agents.learner import Policy
    from laurel.agents.player import Player
    from laurel.envs.vector import VectorEnv

PROGRESS_STEPS = 10_000
"""Environment steps between two reports of progress."""


class UniformPolicy:
    """Actions as `action_space.sample()` draws them: uniform where there are bounds.

    Continuous actions without bounds are standard normal, those with one bound lie exponentially beyond it
    (as in gymnasium.spaces.Box).

    Raises:
        EnvError: the space is neither Discrete nor a flat Box of floats.
    """

    def __init__(self, action_space: gym.Space[Any]) -> None:
        match action_space:
            case gym.spaces.Discrete():
                self._n, self._start = int(action_space.n), int(action_space.start)
            case gym.spaces.Box() if len(action_space.shape) == 1 and np.issubdtype(action_space.dtype, np.floating):
                self._n = 0
                self._low = action_space.low.astype(np.float64)
                self._high = action_space.high.astype(np.float64)
            case _:
                raise EnvError(
                    f"Action space {action_space} is not supported: policies act in Discrete and "
                    "one-dimensional Box spaces of floats."
                )

    @property
    def action_shape(self) -> tuple[int, ...]:
        return () if self._n else self._low.shape

    @property
    def action_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64 if self._n else np.float32)

    def act(self, n: int, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        """Draw actions (N,) or (N, A) and return them with their log-probabilities (N,)."""
        if self._n:
            action = rng.integers(self._start, self._start + self._n, n)
            return action, np.full(n, -math.log(self._n), dtype=np.float32)
        shape = (n, len(self._low))
        below, above = np.isfinite(self._low), np.isfinite(self._high)
        beyond = rng.exponential(size=shape)
        inside = rng.uniform(np.where(below & above, self._low, 0), np.where(below & above, self._high, 1), shape)
        choices = [inside, self._low + beyond, self._high - beyond]
        drawn = np.select([below & above, below, above], choices, rng.standard_normal(shape))
        action = drawn.astype(np.float32).clip(self._low, self._high).astype(np.float32)
        return action, self.log_prob(action)

    def log_prob(self, action: Array) -> FloatArray:
        """Return the log-probabilities (N,) of actions; minus infinity out of bounds."""
        if self._n:
            return np.full(len(action), -math.log(self._n), dtype=np.float32)
        below, above = np.isfinite(self._low), np.isfinite(self._high)
        width = np.log(np.where(below & above, self._high - self._low, 1))
        parts = np.select(
            [below & above, below, above],
            [np.broadcast_to(-width, action.shape), self._low - action, action - self._high],
            -0.5 * np.square(action) - 0.5 * math.log(2 * math.pi),
        )
        outside = (action < self._low.astype(np.float32)) | (action > self._high.astype(np.float32))
        return np.where(outside, -np.inf, parts).sum(axis=1).astype(np.float32)


class Behaviour:
    """The policies of `collect.policies`, each driving its share of N environments.

    Raises:
        ParamsError: there are more policies than environments.
        DataError: a trained agent is missing, damaged or of another environment.
        EnvError: the action space is not supported.
    """

    def __init__(self, policies: Sequence[PolicyShare], adapter: EnvAdapter, n_envs: int, seed: int) -> None:
        self.uniform = UniformPolicy(adapter.action_space)
        self.assignment = assign([policy.share for policy in policies], n_envs)
        self._adapter = adapter
        self._members = [
            _Member(policy, adapter, self.uniform, generator(seed, "policy", index))
            for index, policy in enumerate(policies)
        ]
        self.digests = [member.digest for member in self._members]
        """SHA-256 of each policy's weights; None for random ones."""
        self._envs = [np.flatnonzero(self.assignment == index) for index in range(len(policies))]

    def act(self, observation: Array, begins: BoolArray | None = None) -> tuple[Array, FloatArray, FloatArray]:
        """Act on packed observations (N, D).

        Args:
            observation: of always the same environments.
            begins: (N,) where it is an episode's first; None where no episode was seen before.

        Returns:
            Actions (N,) or (N, A); their log-probabilities under the policy that drew them; values, NaN
            where a policy has none; (N,) each.
        """
        if len(self._members) == 1:
            return self._members[0].act(observation, begins)
        n = len(observation)
        action = np.empty((n, *self.uniform.action_shape), dtype=self.uniform.action_dtype)
        log_prob, value = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
        for member, envs in zip(self._members, self._envs, strict=True):
            action[envs], log_prob[envs], value[envs] = member.act(
                observation[envs], None if begins is None else begins[envs]
            )
        return action, log_prob, value


class _Member:
    """One policy: uniform with probability epsilon, else the trained agent's action."""

    def __init__(
        self, policy: PolicyShare, adapter: EnvAdapter, uniform: UniformPolicy, rng: np.random.Generator
    ) -> None:
        self._adapter, self._uniform, self._rng = adapter, uniform, rng
        self._epsilon = {"random": 1.0, "epsilon_random": policy.epsilon, "checkpoint": 0.0}[policy.kind]
        self._player: Player | None = None
        self.digest: str | None = None
        if policy.path is not None and policy.kind != "random":
            from laurel.agents.checkpoint import MODEL, load_policy  # torch is not needed where no agent acts
            from laurel.agents.player import Player

            self._player = Player(load_policy(policy.path), rng)
            self.digest = hashlib.sha256((policy.path / MODEL).read_bytes()).hexdigest()
            check_fit(policy.path, self._player.policy, adapter)

    def act(self, observation: Array, begins: BoolArray | None) -> tuple[Array, FloatArray, FloatArray]:
        n = len(observation)
        if self._player is None:
            return *self._uniform.act(n, self._rng), np.full(n, np.nan, dtype=np.float32)
        features = self._adapter.features(observation)
        if begins is not None:
            self._player.begin(begins)
        action, log_prob, value = self._player.act(features)
        if self._epsilon == 0:
            return action, log_prob, value
        uniform, _ = self._uniform.act(n, self._rng)
        explores = self._rng.random(n) < self._epsilon
        action = np.where(explores.reshape(-1, *[1] * (action.ndim - 1)), uniform, action)
        log_prob = self._player.log_prob(features, action)
        # log(eps p_uniform + (1 - eps) p_agent), whichever of the two drew the action
        with np.errstate(divide="ignore"):
            shares = np.log([self._epsilon, 1 - self._epsilon])
        mixture = np.logaddexp(shares[0] + self._uniform.log_prob(action), shares[1] + log_prob)
        return action, mixture.astype(np.float32), value


def collect_steps(
    envs: VectorEnv, behaviour: Behaviour, n_steps: int, write: Callable[[Rows], None], advance: Callable[[int], None]
) -> int:
    """Let policies act from new episodes on until exactly `n_steps` transitions are there.

    Resets are no transitions. In the last step, the environments beyond the count are left out. While the environments
    take a step, the one before it is recorded.

    Args:
        envs: what is stepped.
        behaviour: the policies.
        n_steps: transitions in all.
        write: takes whole episodes as `laurel.data.recorder` makes them.
        advance: told how many transitions were taken since it was last told.

    Returns:
        How many episodes were still running in the end.
    """
    observation = envs.reset()
    uniform = behaviour.uniform
    recorder = EpisodeRecorder(observation, uniform.action_shape, uniform.action_dtype, behaviour.assignment, write)
    taken = said = 0
    valid = np.zeros(envs.n_envs, dtype=np.bool_)
    done: tuple[Any, ...] | None = None
    while taken < n_steps:
        acted = behaviour.act(observation, ~valid)
        envs.begin_step(acted[0])
        if done is not None:
            recorder.record(*done)
        step = envs.end_step()
        done = (*acted, *step)
        observation, valid = step.observation, step.valid
        taken += int(valid.sum())
        if taken - said >= PROGRESS_STEPS and taken < n_steps:
            advance(taken - said)
            said = taken
    if done is not None:
        recorder.record(*done)
    advance(n_steps - said)
    undo = np.zeros(envs.n_envs, dtype=np.bool_)
    undo[np.flatnonzero(valid)[int(valid.sum()) - (taken - n_steps) :]] = True
    return recorder.finish(undo)


def assign(shares: Sequence[float], n_envs: int) -> npt.NDArray[np.int8]:
    """Return which policy drives each environment (N,): at least one each, else nearest to the shares.

    >>> assign([3.0, 1.0], 8).tolist()
    [0, 0, 0, 0, 0, 0, 1, 1]

    Raises:
        ParamsError: there are more policies than environments, or than an int8 can count.
    """
    if len(shares) > min(n_envs, 127):
        raise ParamsError(
            f"collect.policies has {len(shares)} entries, but each needs an environment of its own: "
            f"collect.n_envs is {n_envs}, and at most 127 policies can be mixed."
        )
    exact = np.array(shares) / np.sum(shares) * n_envs
    counts = np.maximum(1, np.floor(exact)).astype(np.int64)
    while counts.sum() < n_envs:
        counts[np.argmax(exact - counts)] += 1
    while counts.sum() > n_envs:
        counts[np.argmax(np.where(counts > 1, counts - exact, -np.inf))] -= 1
    return np.repeat(np.arange(len(shares), dtype=np.int8), counts)


def check_fit(place: Path, network: Policy, adapter: EnvAdapter) -> None:
    """Refuse an agent that was trained on an environment of other observations or actions.

    Raises:
        DataError: it was.
    """
    blank = np.zeros((1, adapter.observation_size), dtype=adapter.observation_dtype)
    n_features = adapter.features(blank).shape[1]
    uniform = UniformPolicy(adapter.action_space)
    actions = uniform.action_shape or (int(adapter.action_space.n),)  # type: ignore[attr-defined]
    if (network.n_features, network.continuous, network.n_actions) != (
        n_features,
        bool(uniform.action_shape),
        *actions,
    ):
        raise DataError(
            f"{place}: an agent with {network.n_features} features and {network.n_actions} actions, but "
            f"{adapter.env_id} has {n_features} and {actions[0]}. Name an agent that was trained on {adapter.env_id}."
        )
