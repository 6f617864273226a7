"""Splits the steps of many environments into whole episodes, in blocks.

Environments reset on the step after an episode's end (`laurel.envs.vector`), so the observation before that step is the
episode's final one: each step of an environment is exactly one row, and only the end of a block takes Python work per
environment. Memory holds a block and the episodes that are running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from laurel.arrays import Array, BoolArray, FloatArray
from laurel.data.trajectories import Rows

BLOCK_BYTES = 32 * 2**20


class EpisodeRecorder:
    """Collects the steps of N environments and passes on whole episodes.

    Args:
        observation: (N, D) packed observations before the first step.
        action_shape: () or (A,).
        policy: (N,) which policy acts in each environment.
        write: called with rows that end with a final observation; it may keep them.
        block_steps: steps per block; by default as many as fit BLOCK_BYTES, at most 256.
        info: name -> dtype, of the fields of the environment's `info` that are kept.
    """

    def __init__(
        self,
        observation: Array,
        action_shape: tuple[int, ...],
        action_dtype: np.dtype[Any],
        policy: npt.NDArray[np.int8],
        write: Callable[[Rows], None],
        block_steps: int | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        n_envs, size = observation.shape
        row_bytes = n_envs * (size * observation.dtype.itemsize + 64)
        self._steps = block_steps or min(256, max(8, BLOCK_BYTES // row_bytes))
        self._write = write
        shape = (n_envs, self._steps)
        self._observation = np.zeros((n_envs, self._steps + 1, size), dtype=observation.dtype)
        self._observation[:, 0] = observation
        self._block = Rows(  # an environment's steps are contiguous, so that an episode is a slice
            observation=self._observation[:, :-1],
            action=np.zeros((*shape, *action_shape), dtype=action_dtype),
            reward=np.zeros(shape, dtype=np.float32),
            terminated=np.zeros(shape, dtype=np.bool_),
            truncated=np.zeros(shape, dtype=np.bool_),
            log_prob=np.zeros(shape, dtype=np.float32),
            value=np.zeros(shape, dtype=np.float32),
            policy=np.repeat(policy[:, None], self._steps, axis=1),
            final=np.zeros(shape, dtype=np.bool_),
            info={name: np.zeros(shape, dtype=dtype) for name, dtype in (info or {}).items()},
        )
        self._running: list[list[Rows]] = [[] for _ in range(n_envs)]
        self._filled = 0

    def record(
        self,
        action: Array,
        log_prob: FloatArray,
        value: FloatArray,
        observation: Array,
        reward: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        valid: BoolArray,
        info: Mapping[str, Array] | None = None,
    ) -> None:
        """Add a step of every environment: the actions, and what `VectorEnv.step` returned."""
        if self._filled == self._steps:
            self._hand_over()
        block, t = self._block, self._filled
        self._observation[:, t + 1] = observation
        block.action[:, t] = action
        block.log_prob[:, t] = log_prob
        block.value[:, t] = value
        block.reward[:, t] = reward
        block.terminated[:, t] = terminated
        block.truncated[:, t] = truncated
        block.final[:, t] = ~valid
        for name, column in block.info.items():
            assert info is not None
            column[:, t] = info[name]
        self._filled += 1

    def finish(self, undo: BoolArray) -> int:
        """Write the rest; the last step of an unfinished episode is neither terminated nor truncated.

        Args:
            undo: (N,) environments whose last step is left out.

        Returns:
            The number of unfinished episodes.
        """
        running = 0
        for env, parts in enumerate(self._running):
            steps = self._filled - int(undo[env])
            if steps > 0:
                parts.append(self._block[env, :steps].copy())
            if not parts:
                continue
            last = parts[-1][-1:]
            if not last.final[0]:
                parts.append(_final_row(last, self._observation[env, steps]))
                running += not (last.terminated[0] or last.truncated[0])
            self._write(Rows.concatenate(parts))
        return running

    def _hand_over(self) -> None:
        """Pass on the episodes that the block completed, and keep the steps of the others."""
        final = self._block.final[:, : self._filled]
        complete = np.where(final.any(axis=1), self._filled - final[:, ::-1].argmax(axis=1), 0)
        for env, (parts, stop) in enumerate(zip(self._running, complete.tolist(), strict=True)):
            if stop:
                self._write(Rows.concatenate([*parts, self._block[env, :stop].copy()]))
                parts.clear()
            if stop < self._filled:
                parts.append(self._block[env, stop : self._filled].copy())
        self._observation[:, 0] = self._observation[:, self._filled]
        self._filled = 0


def _final_row(last: Rows, observation: Array) -> Rows:
    return replace(last, observation=observation[None].copy(), final=np.ones(1, dtype=np.bool_))
