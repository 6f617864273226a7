"""DQN's replay memory: the last steps of N environments, and the targets of sampled ones.

Rewards are stored as computed when the steps were taken, shaped by the caption counts at that time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laurel.agents.learner import Rollout
from laurel.arrays import Array, DoubleArray, FloatArray, IntArray


class SumTree:
    """Non-negative numbers at the leaves of a binary tree, whose every node is the sum of its two children.

    >>> tree = SumTree(4)
    >>> tree.set(np.array([1, 3]), np.array([1.0, 3.0]))
    >>> tree.total, np.bincount(tree.sample(8, np.random.default_rng(0))).tolist()
    (4.0, [0, 2, 0, 6])
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._first = 1 << max(0, size - 1).bit_length()
        """Node of the first leaf; 1 is the root, and 2 i and 2 i + 1 are the children of i."""
        self._nodes: DoubleArray = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def values(self, index: IntArray) -> DoubleArray:
        """Return the numbers at leaves (B,)."""
        return self._nodes[self._first + index]

    def set(self, index: IntArray, value: DoubleArray) -> None:
        """Set the numbers (B,) at leaves (B,); if a leaf occurs twice, its last number is used."""
        self._nodes[self._first + index] = value
        nodes = np.unique(self._first + index)
        while nodes[0] > 1:
            nodes = np.unique(nodes // 2)
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def sample(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw leaves (B,) in proportion to their numbers, stratified over the total."""
        left = (np.arange(size) + rng.random(size)) / size * self.total
        node = np.ones(size, dtype=np.int64)
        while node[0] < self._first:
            node *= 2
            below = self._nodes[node]
            right = (left >= below) & (self._nodes[node + 1] > 0)  # rounding must not lead to a leaf of weight 0
            left = np.where(right, left - below, left)
            node += right
        return node - self._first

    @property
    def leaves(self) -> DoubleArray:
        """All numbers (size,)."""
        return self._nodes[self._first : self._first + self.size].copy()


@dataclass(frozen=True, slots=True)
class Minibatch:
    """B steps with their n-step results."""

    place: IntArray
    """(B,) indices in the memory."""
    observation: Array
    """(B, D)."""
    action: Array
    """(B,)."""
    reward: FloatArray
    """(B,) discounted sum of the next m rewards, or fewer if the episode or the memory ends earlier."""
    after: Array
    """(B, D) the observations after these rewards."""
    discount: FloatArray
    """(B,) gamma to the power of the number of rewards; 0 if the episode terminated."""
    weight: FloatArray
    """(B,) importance-sampling weights."""


class Replay:
    """A ring of R rows, each a step of all N environments.

    Args:
        capacity: minimum number of steps kept, those that only begin an episode included.
        n_envs: N.
        n_steps: T of the rollouts that are added.
        alpha: exponent of the priorities with which steps are drawn (Schaul et al. 2016, arXiv 1511.05952, equation 1);
            None: uniform.
    """

    def __init__(self, capacity: int, n_envs: int, n_steps: int, *, alpha: float | None) -> None:
        self.n_envs = n_envs
        self.rows = max(-(-capacity // n_envs), n_steps) + 1  # the newest next observations need one extra row
        self.head = 0
        """Row of the newest observation, whose action is not known yet."""
        self.filled = 0
        """Rows before it that hold steps."""
        self.alpha = alpha
        self.tree = None if alpha is None else SumTree(self.rows * n_envs)
        self.highest = 1.0
        """Priority of steps that were not sampled yet."""

    def reserve(self, rollout: Rollout) -> None:
        """Allocate the memory for such rollouts."""
        shape = self.rows, self.n_envs
        self.observation = np.zeros((*shape, rollout.observation.shape[2]), dtype=rollout.observation.dtype)
        self.action = np.zeros(shape, dtype=rollout.action.dtype)
        self.reward = np.zeros(shape, dtype=np.float32)
        self.terminated, self.truncated, self.valid = (np.zeros(shape, dtype=np.bool_) for _ in range(3))

    @property
    def size(self) -> int:
        """Steps in the memory; resets are not steps."""
        return int(self.valid[self._filled_rows()].sum())

    @property
    def full(self) -> bool:
        """Whether new steps replace the oldest ones."""
        return self.filled == self.rows - 1

    def add(self, rollout: Rollout, *, set_priorities: bool = True) -> None:
        """Add a rollout, replacing the oldest steps.

        Args:
            rollout: with its rewards mixed.
            set_priorities: False if the priorities of these steps were already restored from a checkpoint.
        """
        n_steps = len(rollout.valid)
        index = (self.head + np.arange(n_steps)) % self.rows
        for name in ("action", "reward", "terminated", "truncated", "valid"):
            getattr(self, name)[index] = getattr(rollout, name)
        self.observation[index] = rollout.observation[:-1]
        self.head = int(index[-1] + 1) % self.rows
        self.observation[self.head] = rollout.observation[-1]
        self.valid[self.head] = False
        self.filled = min(self.filled + n_steps, self.rows - 1)
        if self.tree is not None and set_priorities:
            rows = np.append(index, self.head)
            places = (rows[:, None] * self.n_envs + np.arange(self.n_envs)).reshape(-1)
            self.tree.set(places, np.where(self.valid[rows].reshape(-1), self.highest, 0.0))

    def sample(self, size: int, rng: np.random.Generator, *, steps: int, gamma: float, beta: float) -> Minibatch:
        """Draw steps.

        Args:
            size: B.
            steps: m, the number of rewards that are summed.
            beta: how strongly weights correct for priorities (exponent of equation 2 of Schaul et al.).
        """
        if self.tree is None:
            place, weight = self._uniform(size, rng), np.ones(size, dtype=np.float32)
        else:
            place = self.tree.sample(size, rng)
            chance = self.tree.values(place) / self.tree.total
            weight = ((self.size * chance) ** -beta).astype(np.float32)
            weight /= weight.max()
        row, env = np.divmod(place, self.n_envs)
        reward, after, discount = self._look_ahead(row, env, steps, gamma)
        observation = self.observation[row, env]
        return Minibatch(place, observation, self.action[row, env], reward, after, discount, weight)

    def set_priorities(self, place: IntArray, error: FloatArray) -> None:
        """Set priorities (B,) by TD errors; does nothing if steps are drawn uniformly."""
        if self.tree is not None and self.alpha is not None:
            priority = (np.abs(error.astype(np.float64)) + 1e-6) ** self.alpha
            self.tree.set(place, priority)
            self.highest = max(self.highest, float(priority.max()))

    def _filled_rows(self) -> IntArray:
        """Return the rows that hold steps, the oldest first."""
        return (self.head - self.filled + np.arange(self.filled)) % self.rows

    def _uniform(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw indices of steps uniformly; resets are rejected."""
        place = np.empty(size, dtype=np.int64)
        missing = np.arange(size)
        while len(missing):
            drawn = rng.integers(self.filled * self.n_envs, size=len(missing))
            row = (self.head - 1 - drawn // self.n_envs) % self.rows
            place[missing] = row * self.n_envs + drawn % self.n_envs
            missing = missing[~self.valid[row, drawn % self.n_envs]]
        return place

    def _look_ahead(
        self, row: IntArray, env: IntArray, steps: int, gamma: float
    ) -> tuple[FloatArray, Array, FloatArray]:
        """Return the discounted sum of each step's next rewards, the observation after them, and its discount."""
        age = (self.head - row) % self.rows  # steps from this one to the newest
        total = np.zeros(len(row), dtype=np.float32)
        discount = np.ones(len(row), dtype=np.float32)
        going = np.ones(len(row), dtype=np.bool_)
        last = row
        for k in range(steps):
            going = going & (k < age)
            index = (row + k) % self.rows
            total += np.where(going, discount * self.reward[index, env], 0)
            discount = np.where(going, discount * np.float32(gamma) * ~self.terminated[index, env], discount)
            last = np.where(going, (index + 1) % self.rows, last)
            going &= ~(self.terminated[index, env] | self.truncated[index, env])
        return total, self.observation[last, env], discount
