"""The environments of agents in lockstep, stepped as one vector environment.

Gymnasium's cart poles become columns of one array; others are stepped one after another, or concurrently if they run in
threads. All keep their own random streams, so that each gives bit-identical results to running alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from laurel.arrays import Array, FloatArray
from laurel.envs.vector import Step, VectorEnv


@contextmanager
def joined(envs: Sequence[VectorEnv]) -> Iterator[VectorEnv]:
    """Step S vector environments of N copies as one: row s * N + n is row n of the s-th.

    Each continues from its current state, and on its own again after the context ends.

    Args:
        envs: with the same adapter and the same number of environments.
    """
    if len(envs) == 1:
        yield envs[0]
    elif all(_is_cart_pole(env.form) for env in envs):
        poles = _CartPoles(envs)
        try:
            yield poles
        finally:
            poles.part()
    else:
        yield _InTurns(envs)


class _InTurns(VectorEnv):
    """Environments stepped one after another."""

    def __init__(self, envs: Sequence[VectorEnv]) -> None:
        self.adapter, self.n_envs = envs[0].adapter, sum(env.n_envs for env in envs)
        self._members = envs

    def begin_step(self, actions: Array) -> None:
        for member, chunk in zip(self._members, np.split(actions, len(self._members)), strict=True):
            member.begin_step(chunk)

    def end_step(self) -> Step:
        return Step.concatenated([member.end_step() for member in self._members])


class Shards(_InTurns):
    """Environments in equal shards, each with its own random stream, so that one can be stepped apart from the others.

    Args:
        members: vector environments of the same adapter and number, made with different seeds.
    """

    def __init__(self, members: Sequence[VectorEnv]) -> None:
        super().__init__(members)
        self.members, self.backend = members, members[0].backend

    def rows(self) -> list[tuple[slice, VectorEnv]]:
        """Return the shards with their rows."""
        size = self.n_envs // len(self.members)
        return [(slice(i * size, (i + 1) * size), member) for i, member in enumerate(self.members)]

    def reset(self) -> Array:
        return np.concatenate([member.reset() for member in self.members])

    def draw_tasks(self, chances: FloatArray) -> None:
        for member in self.members:
            member.draw_tasks(chances)

    def close(self) -> None:
        for member in self.members:
            member.close()


class _CartPoles(VectorEnv):
    """Gymnasium's cart poles as columns of one `state` (4, S * N)."""

    def __init__(self, envs: Sequence[VectorEnv]) -> None:
        self._members = envs
        forms = [env.form for env in envs]
        combined = copy.copy(forms[0])  # with the options that all share
        combined.num_envs = sum(form.num_envs for form in forms)
        combined.action_space = type(combined.action_space)(np.concatenate([form.action_space.nvec for form in forms]))
        combined.state = np.concatenate([form.state for form in forms], axis=1)
        combined.steps = np.concatenate([form.steps for form in forms])
        combined.prev_done = np.concatenate([form.prev_done for form in forms])
        combined.np_random = _Streams(combined, [form.np_random for form in forms])
        super().__init__(
            envs[0].backend,
            combined,
            envs[0].adapter,
            combined.num_envs,
            reset=combined.reset,
            pack=envs[0].adapter.pack,
            form=combined,
        )
        self.ended = np.concatenate([env.ended for env in envs])
        self.resting = np.concatenate([env.resting for env in envs])

    def part(self) -> None:
        """Copy the state back to the members."""
        for s, member in enumerate(self._members):
            rows = slice(s * member.n_envs, (s + 1) * member.n_envs)
            member.form.state = self.form.state[:, rows].copy()
            member.form.steps, member.form.prev_done = self.form.steps[rows].copy(), self.form.prev_done[rows].copy()
            member.ended = self.ended[rows].copy()


class _Streams:
    """The random streams of joined cart poles, used as one generator: columns that reset draw from their own."""

    def __init__(self, poles: Any, streams: Sequence[np.random.Generator]) -> None:
        self._poles, self._streams = poles, streams

    def uniform(self, low: float, high: float, size: tuple[int, int]) -> Array:
        """Draw (4, K) for the K columns that reset."""
        if size[1] == 0:
            return np.zeros(size)
        counts = self._poles.prev_done.reshape(len(self._streams), -1).sum(axis=1).tolist()
        drawn = [rng.uniform(low, high, (size[0], k)) for rng, k in zip(self._streams, counts, strict=True) if k]
        return np.concatenate(drawn, axis=1)


def _is_cart_pole(form: Any) -> bool:
    from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

    return type(form) is CartPoleVectorEnv  # a subclass may have more state, which would have to be joined too
