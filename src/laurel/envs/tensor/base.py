"""Copies of an environment (rows), stepped at once by tensor operations without device synchronisation.

Like the vector environments of the host (see `laurel.envs.vector`), rows reset on the step after an episode's end:
that step ignores its action, returns the first observation of a new episode, and is not valid.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from laurel.arrays import Array
from laurel.envs.tensor.philox import words

BEGINS, STEPS = range(2)
"""Random streams: of `reset`, and of automatic resets."""


class TensorStep(NamedTuple):
    """The result of stepping R rows with R actions."""

    observation: Tensor
    """(R, D) packed observations after the action; overwritten by the next step."""
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    """(R,) False where the step was a reset."""


class TensorEnv(ABC):
    """S times N rows of an environment, N for each of S seeds: row s * N + n.

    Args:
        n_envs: N.
        seeds: of the agents' episodes.
    """

    n_words: ClassVar[int]
    """Number of random words that a reset consumes."""

    def __init__(self, n_envs: int, seeds: Sequence[int], limit: int, device: torch.device) -> None:
        self.n_envs, self.seeds, self.limit, self.device = n_envs, tuple(seeds), limit, device
        self._clock = [0]
        self._keys = torch.tensor([[seed, 0] for seed in seeds], device=device)
        self.state: dict[str, Tensor] = {}
        """State per row: that of the subclass, `observation`, `age` of the episode in steps, and whether it `ended`."""
        self.reset()

    @property
    def n_rows(self) -> int:
        return self.n_envs * len(self.seeds)

    @property
    def clock(self) -> int:
        """Steps and resets so far, the counter of the random numbers; rows that are stacked have the same."""
        return self._clock[0]

    @property
    def observation(self) -> Tensor:
        """(R, D) current packed observations."""
        return self.state["observation"]

    def reset(self) -> Tensor:
        """Begin new episodes in all rows and return their packed observations (R, D)."""
        drawn = words(self._keys, BEGINS, self.clock, (1, self.n_envs, self.n_words))[0]
        begun = self._begin(drawn.flatten(0, 1))
        fresh = {
            **begun,
            "observation": self._observe(begun),
            "age": torch.zeros(self.n_rows, dtype=torch.int64, device=self.device),
            "ended": torch.zeros(self.n_rows, dtype=torch.bool, device=self.device),
        }
        for name, value in fresh.items():
            self.state.setdefault(name, value.contiguous()).copy_(value)
        self._clock[0] += 1
        return self.observation

    def draw(self, n_steps: int) -> Tensor:
        """Draw the random words (T, R, K) of the next T steps, and advance the clock by T."""
        drawn = words(self._keys, STEPS, self.clock, (n_steps, self.n_envs, self.n_words)).flatten(1, 2)
        self._clock[0] += n_steps
        return drawn

    def step(self, action: Tensor, drawn: Tensor) -> TensorStep:
        """Take actions (R,); rows whose episode has ended reset with the words (R, K) drawn for this step."""
        state, valid = self.state, ~self.state["ended"]
        state["age"].add_(1).mul_(valid)
        moved, reward, terminated = self._move(state, action)
        for name, fresh in self._begin(drawn).items():
            torch.where(valid.view(-1, *[1] * (fresh.ndim - 1)), moved[name], fresh, out=state[name])
        state["observation"].copy_(self._observe(state))
        terminated = terminated & valid
        truncated = (state["age"] >= self.limit) & ~terminated
        torch.logical_or(terminated, truncated, out=state["ended"])
        return TensorStep(state["observation"], reward * valid, terminated, truncated, valid)

    @classmethod
    def stacked(cls, parts: Sequence[TensorEnv]) -> TensorEnv:
        """Join environments into one that continues from their current states; they become views of it.

        Raises:
            ValueError: they have taken different numbers of steps.
        """
        first = parts[0]
        if {part.clock for part in parts} != {first.clock}:
            raise ValueError("environments that are stepped together must have taken as many steps")
        stack = first._like([seed for part in parts for seed in part.seeds])
        stack._clock[0] = first.clock
        start = 0
        for part in parts:
            part._clock, rows = stack._clock, slice(start, start + part.n_rows)
            for name, value in part.state.items():
                stack.state[name][rows] = value
                part.state[name] = stack.state[name][rows]
            start = rows.stop
        return stack

    @abstractmethod
    def features(self, observation: Tensor) -> Tensor:
        """Turn packed observations (..., D) into network input (..., F), as the adapter does."""

    @abstractmethod
    def _like(self, seeds: Sequence[int]) -> TensorEnv:
        """Return the same environment with other seeds."""

    @abstractmethod
    def _begin(self, drawn: Tensor) -> dict[str, Tensor]:
        """Return the state at the beginning of an episode, by random words (R, K)."""

    @abstractmethod
    def _move(self, state: Mapping[str, Tensor], action: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Return the state after actions (R,), rewards (R,) of float32, and where the episode ended (R,).

        `state` is not changed, except for tensors that are not needed again.
        """

    @abstractmethod
    def _observe(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return packed observations (R, D) of a state."""


def host(tensor: Tensor) -> Array:
    """Copy a tensor to a NumPy array, which synchronises with the device."""
    copied: Any = tensor.cpu().numpy()
    return copied.copy() if tensor.device.type == "cpu" else copied
