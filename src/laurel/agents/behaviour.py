"""The actors that collect data, each acting in its share of the environments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from laurel.agents.actor import View
from laurel.agents.actors import make_actor
from laurel.agents.actors.random import UniformPolicy
from laurel.arrays import Array, BoolArray, FloatArray
from laurel.data.recorder import EpisodeRecorder
from laurel.data.trajectories import Rows
from laurel.envs.base import EnvAdapter
from laurel.envs.vector import VectorEnv
from laurel.errors import ParamsError
from laurel.params import PolicyShare
from laurel.seeding import generator

PROGRESS_STEPS = 10_000
"""Environment steps between two reports of progress."""


class Behaviour:
    """The actors of `collect.policies`, each acting in its share of N environments.

    Raises:
        ParamsError: there are more policies than environments, or there is no actor of a kind.
        DataError: a trained agent is missing, damaged or of another environment.
        EnvError: the action space is not supported.
    """

    def __init__(self, policies: Sequence[PolicyShare], adapter: EnvAdapter, n_envs: int, seed: int) -> None:
        self.uniform = UniformPolicy(adapter.action_space)
        self.assignment = assign([policy.share for policy in policies], n_envs)
        self._adapter = adapter
        self._actors = [
            make_actor(policy.kind, adapter, "collect.policies.kind", **policy.arguments) for policy in policies
        ]
        self._rngs = [generator(seed, "policy", index) for index in range(len(policies))]
        self.digests = [digest(policy) for policy in policies]
        """SHA-256 of each trained agent's weights; None for other actors."""
        self._envs = [np.flatnonzero(self.assignment == index) for index in range(len(policies))]

    def act(
        self, observation: Array, begins: BoolArray | None = None, acting: BoolArray | None = None
    ) -> tuple[Array, FloatArray, FloatArray]:
        """Act on packed observations (N, D).

        Args:
            begins: (N,) True where it is an episode's first observation; None: nowhere.
            acting: (N,) False where it is an episode's last observation, on which no action follows; None: nowhere.

        Returns:
            Actions (N,) or (N, A); their log-probabilities under the actor that drew them, and values, (N,) each;
            NaN where an actor has none.
        """
        n = len(observation)
        action = np.empty((n, *self.uniform.action_shape), dtype=self.uniform.action_dtype)
        log_prob, value = (np.full(n, np.nan, dtype=np.float32) for _ in range(2))
        for actor, rng, envs in zip(self._actors, self._rngs, self._envs, strict=True):
            if begins is not None:
                actor.begin(begins[envs])
            acted = actor.act(View(self._adapter, observation[envs], None if acting is None else acting[envs]), rng)
            action[envs] = acted.action
            if acted.log_prob is not None:
                log_prob[envs] = acted.log_prob
            if acted.value is not None:
                value[envs] = acted.value
        return action, log_prob, value


def digest(policy: PolicyShare) -> str | None:
    """Return the SHA-256 of a trained agent's weights; None for an actor without weights."""
    if policy.path is None or not policy.replays_agent:
        return None
    from laurel.agents.checkpoint import MODEL

    return hashlib.sha256((policy.path / MODEL).read_bytes()).hexdigest()


def collect_steps(
    envs: VectorEnv, behaviour: Behaviour, n_steps: int, write: Callable[[Rows], None], advance: Callable[[int], None]
) -> int:
    """Let policies act, starting with new episodes, until there are exactly `n_steps` transitions.

    Resets do not count. The last step includes only as many environments as the count requires. While the
    environments take a step, the one before it is recorded.

    Args:
        write: called with whole episodes, as `laurel.data.recorder` makes them.
        advance: called with the number of transitions since its last call.

    Returns:
        The number of unfinished episodes at the end.
    """
    observation = envs.reset()
    uniform = behaviour.uniform
    recorder = EpisodeRecorder(
        observation,
        uniform.action_shape,
        uniform.action_dtype,
        behaviour.assignment,
        write,
        info=envs.adapter.info_fields,
    )
    n_taken = reported = 0
    valid, ended = np.zeros(envs.n_envs, dtype=np.bool_), np.zeros(envs.n_envs, dtype=np.bool_)
    done: tuple[Any, ...] | None = None
    while n_taken < n_steps:
        drawn, *estimates = behaviour.act(observation, ~valid, ~ended)
        acted = (envs.adapter.taken(drawn), *estimates)
        envs.begin_step(acted[0])
        if done is not None:
            recorder.record(*done)
        step = envs.end_step()
        done = (*acted, *step)
        observation, valid, ended = step.observation, step.valid, step.terminated | step.truncated
        n_taken += int(valid.sum())
        if n_taken - reported >= PROGRESS_STEPS and n_taken < n_steps:
            advance(n_taken - reported)
            reported = n_taken
    if done is not None:
        recorder.record(*done)
    advance(n_steps - reported)
    undo = np.zeros(envs.n_envs, dtype=np.bool_)
    undo[np.flatnonzero(valid)[int(valid.sum()) - (n_taken - n_steps) :]] = True
    return recorder.finish(undo)


def assign(shares: Sequence[float], n_envs: int) -> npt.NDArray[np.int8]:
    """Return which policy acts in each environment (N,): at least one each, otherwise as close to the shares as
    possible.

    >>> assign([3.0, 1.0], 8).tolist()
    [0, 0, 0, 0, 0, 0, 1, 1]

    Raises:
        ParamsError: there are more policies than environments, or than an int8 can count.
    """
    if len(shares) > min(n_envs, 127):
        raise ParamsError(
            f"collect.policies has {len(shares)} entries, but each policy needs its own environment: "
            f"collect.n_envs is {n_envs}, and at most 127 policies can be mixed."
        )
    exact = np.array(shares) / np.sum(shares) * n_envs
    counts = np.maximum(1, np.floor(exact)).astype(np.int64)
    while counts.sum() < n_envs:
        counts[np.argmax(exact - counts)] += 1
    while counts.sum() > n_envs:
        counts[np.argmax(np.where(counts > 1, counts - exact, -np.inf))] -= 1
    return np.repeat(np.arange(len(shares), dtype=np.int8), counts)
