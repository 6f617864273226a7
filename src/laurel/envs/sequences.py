"""Lists of moves as action indices: one action is a list of 1 to L moves out of M.

Shorter lists come first, so a list of one move has the number of that move:

>>> lists = Sequences(3, 2)
>>> lists.count, lists.number((2,)), lists.number((0, 1)), lists.moves(4)
(12, 2, 4, (0, 1))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laurel.arrays import IntArray
from laurel.errors import EnvError

LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Sequences:
    """All lists of 1 to `longest` of `n_moves` moves.

    Raises:
        EnvError: there are no such lists, or too many to number.
    """

    n_moves: int
    longest: int

    def __post_init__(self) -> None:
        if self.n_moves < 1 or self.longest < 1 or self.count > LARGEST:
            raise EnvError(
                f"{self.n_moves} moves in lists of up to {self.longest} cannot be numbered: lists must have at least "
                f"one move, and there may be at most {LARGEST:,} of them."
            )

    @property
    def count(self) -> int:
        """How many lists there are."""
        return self._first(self.longest + 1)

    def _first(self, length: int) -> int:
        """Return the number of the first list of a length."""
        return sum(self.n_moves**shorter for shorter in range(1, length))

    def number(self, moves: Sequence[int]) -> int:
        """Return the number of a list."""
        rank = 0
        for move in moves:
            rank = rank * self.n_moves + move
        return self._first(len(moves)) + rank

    def moves(self, number: int) -> tuple[int, ...]:
        """Return the list with a number."""
        length = next(length for length in range(1, self.longest + 1) if number < self._first(length + 1))
        rest, reversed_moves = number - self._first(length), []
        for _ in range(length):
            rest, move = divmod(rest, self.n_moves)
            reversed_moves.append(move)
        return tuple(reversed(reversed_moves))

    def table(self, numbers: IntArray) -> IntArray:
        """Return the lists with numbers (N,) as rows (N, L), padded with -1."""
        moves = np.full((len(numbers), self.longest), -1, dtype=np.int64)
        first = np.array([self._first(length) for length in range(1, self.longest + 2)])
        lengths = np.searchsorted(first, numbers, side="right")
        rest = numbers - first[lengths - 1]
        for place in range(self.longest):
            power = self.n_moves ** np.maximum(lengths - 1 - place, 0)
            moves[:, place] = np.where(place < lengths, rest // power % self.n_moves, -1)
        return moves

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        """Draw numbers (n,): first a length, then a list of that length, both uniformly."""
        lengths = rng.integers(1, self.longest + 1, n)
        first = np.array([self._first(length) for length in range(1, self.longest + 2)])
        return first[lengths - 1] + (rng.random(n) * self.n_moves**lengths).astype(np.int64)
