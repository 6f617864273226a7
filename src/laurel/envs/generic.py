"""The adapter of environments that have no specific one: captions from the observation space alone.

Discrete parts are named by their value, continuous ones by a coarse level, images by their brightness; parts beyond the
first few are left out. That is enough to run the pipeline, but rarely enough for a language model to judge by: only a
specific adapter knows what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from laurel.arrays import Array, IntArray
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.spaces import UNBOUNDED, PackedSpace, texts_of

LEVELS = ("very low", "low", "middling", "high", "very high")
SIGNS = ("very negative", "negative", "near zero", "positive", "very positive")
SIGN_EDGES = (-1.0, -0.1, 0.1, 1.0)
THIRDS = ("in the first third", "in the middle third", "in the last third", "nowhere in particular")
BRIGHTNESS = ("very dark", "dark", "of medium brightness", "bright", "very bright")
SIDES = ("on the left", "in the middle", "on the right", "nowhere in particular")
EVEN = 0.02
"""Share of the range by which thirds must differ for one to be named."""

MAX_PARTS = 6
MAX_ACTION_PARTS = 2
MOST_VALUES = 100
"""Maximum size of a discrete part named by value; larger ones are named by level, unless there is no other part."""
MOST_STATES = 10_000
MOST_NUMBERS = 64
"""Maximum size of a box whose numbers are named one by one; a larger box is summarised."""

GOES_ON, ENDS, ENDS_WELL, ENDS_BADLY = range(4)
_ENDS = (
    "",
    " The episode ends without a reward.",
    " The episode ends with a positive reward.",
    " The episode ends with a negative reward.",
)


@dataclass(frozen=True)
class _Part:
    """One part of a caption: one of `size` statements about a row of numbers."""

    name: str
    size: int
    digits: Callable[[Array], IntArray]
    """Rows (N, D) -> which statement holds (N,)."""
    say: Callable[[int], str]


class GenericAdapter(EnvAdapter):
    """Captions the next observation part by part."""

    ids = ("*",)
    generic: ClassVar[bool] = True
    max_episode_steps = 1000
    description = "An environment of which only the observations' numbers are known."
    goal = None

    def __init__(
        self, env_id: str, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, with_action: bool = False
    ) -> None:
        super().__init__(env_id, observation_space, action_space, with_action=with_action)
        parts = _parts(self.packed, ("the state", "number"))
        self._parts = parts[:MAX_PARTS]
        self.left_out = _left_out([part.name for part in parts[MAX_PARTS:]], texts_of(observation_space))
        self._action_parts: list[_Part] = []
        if with_action and isinstance(action_space, (gym.spaces.Discrete, gym.spaces.Box)):
            self._action_parts = _parts(PackedSpace(action_space), ("the action", "action"))[:MAX_ACTION_PARTS]
        self._shape = (len(_ENDS), *(part.size for part in (*self._parts, *self._action_parts)))

    def encode(self, transitions: Transitions) -> IntArray:
        reward = transitions.reward
        end = np.where(reward > 0, ENDS_WELL, np.where(reward < 0, ENDS_BADLY, ENDS))
        digits = [np.where(transitions.terminated, end, GOES_ON)]
        digits += [part.digits(transitions.next_observation) for part in self._parts]
        actions = transitions.action.reshape(len(transitions), -1)
        digits += [part.digits(actions) for part in self._action_parts]
        return np.ravel_multi_index(tuple(digits), self._shape).astype(np.int64)

    def describe(self, event: int) -> str:
        end, *digits = (int(digit) for digit in np.unravel_index(event, self._shape))
        words = [part.say(digit) for part, digit in zip((*self._parts, *self._action_parts), digits, strict=True)]
        state = ", ".join(words[: len(self._parts)])
        action = ", ".join(words[len(self._parts) :])
        return _sentence(action) + (" " if action else "") + _sentence(state) + _ENDS[end]

    def describe_observation(self, observation: Any) -> str:
        row = self.pack_one(observation)[None]
        return _sentence(", ".join(part.say(int(part.digits(row)[0])) for part in self._parts))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." if text else ""


def _left_out(parts: Sequence[str], texts: Sequence[str]) -> str:
    """Return a sentence on each kind of thing that captions leave out; empty where they leave nothing out.

    >>> _left_out(["number 7", "number 8", "number 9"], ["mission"])
    'They leave out number 7 and 2 further parts. Neither captions nor agents see the text of mission.'
    """
    sentences = []
    if parts:
        rest = f" and {len(parts) - 1:,} further part{'s' * (len(parts) > 2)}" if len(parts) > 1 else ""
        sentences.append(f"They leave out {parts[0]}{rest}.")
    if texts:
        sentences.append(f"Neither captions nor agents see the text of {', '.join(texts)}.")
    return " ".join(sentences)


def _parts(packed: PackedSpace, names: tuple[str, str]) -> list[_Part]:
    """List the parts of a space that a caption can name; `names` are of the whole space, as one number or many."""
    parts: list[_Part] = []
    start = 0
    for leaf in packed.leaves:
        columns = slice(start, start + leaf.size)
        start += leaf.size
        name = leaf.name.replace("_", " ") or names[packed.size > 1]
        if leaf.size > MOST_NUMBERS or (len(leaf.space.shape or ()) > 1 and leaf.space.dtype == np.uint8):
            parts.append(_summary(leaf.space, leaf.name.replace("_", " "), columns))
            continue
        most_values = MOST_STATES if packed.size == 1 else MOST_VALUES
        for i, (low, high, is_integer) in enumerate(_bounds(leaf.space)):
            full_name = name if leaf.size == 1 else f"{name} {i + 1}"
            parts.append(_number(full_name, columns.start + i, low, high, is_integer and high - low < most_values))
    return parts


def _bounds(space: gym.Space[Any]) -> Iterator[tuple[float, float, bool]]:
    """Yield lower bound, upper bound and whether only whole numbers lie between, for each number of a leaf."""
    match space:
        case gym.spaces.Discrete():
            yield int(space.start), int(space.start) + int(space.n) - 1, True
        case gym.spaces.MultiDiscrete():
            for start, n in zip(space.start.reshape(-1).tolist(), space.nvec.reshape(-1).tolist(), strict=True):
                yield start, start + n - 1, True
        case gym.spaces.Box():
            is_integer = space.dtype is not None and space.dtype.kind in "iu"
            for low, high in zip(space.low.reshape(-1).tolist(), space.high.reshape(-1).tolist(), strict=True):
                yield low, high, is_integer
        case _:  # MultiBinary
            for _ in range(int(np.prod(space.shape or (1,)))):
                yield 0, 1, True


def _number(name: str, column: int, low: float, high: float, by_value: bool) -> _Part:
    """Name a number by its value, by its level between bounds, or by sign and size where it is unbounded."""
    if by_value:
        n = int(high - low) + 1
        return _Part(
            name,
            n,
            lambda rows: np.clip(rows[:, column].astype(np.int64) - int(low), 0, n - 1),
            lambda digit: f"{name} is {int(low) + digit}",
        )
    edges, words = _levels(low, high)
    return _Part(
        name,
        len(words),
        lambda rows: np.searchsorted(edges, rows[:, column], side="right"),
        lambda digit: f"{name} is {words[digit]}",
    )


def _levels(low: float, high: float) -> tuple[Array, tuple[str, ...]]:
    """Return the edges between levels, and the levels' words."""
    if max(abs(low), abs(high)) < UNBOUNDED and low < high:
        return np.linspace(low, high, len(LEVELS) + 1)[1:-1], LEVELS
    return np.array(SIGN_EDGES), SIGNS


def _summary(space: gym.Space[Any], name: str, columns: slice) -> _Part:
    """Describe an image or long vector: its overall brightness or level, and where it is highest."""
    shape = space.shape or (1,)
    axis = len(shape) - 1 - (len(shape) > 2 and shape[-1] <= 4)  # the width: the last axis but for colours
    other_axes = tuple(i + 1 for i in range(len(shape)) if i != axis)
    bounds = list(_bounds(space))
    low, high = min(bound[0] for bound in bounds), max(bound[1] for bound in bounds)
    edges, words = _levels(low, high)
    step = EVEN * (high - low if words is LEVELS else 1.0)

    def digits(rows: Array) -> IntArray:
        cells = rows[:, columns].reshape(len(rows), *shape)
        means = cells.mean(axis=other_axes, dtype=np.float64)
        level = np.searchsorted(edges, means.mean(axis=1), side="right")
        if shape[axis] < len(THIRDS) - 1:
            return level * len(THIRDS) + len(THIRDS) - 1
        thirds = np.stack([third.mean(axis=1) for third in np.array_split(means, 3, axis=1)], axis=1)
        brightest = np.where(thirds.max(axis=1) - thirds.min(axis=1) > step, thirds.argmax(axis=1), len(THIRDS) - 1)
        return level * len(THIRDS) + brightest

    def say(digit: int) -> str:
        level, third = divmod(digit, len(THIRDS))
        if len(shape) > 1 and words is LEVELS:
            return f"the picture {name} is {BRIGHTNESS[level]}, brightest {SIDES[third]}".replace("  ", " ")
        return f"{name or 'the row of numbers'} is {words[level]} on the whole, highest {THIRDS[third]}"

    return _Part(name or "the row of numbers", len(words) * len(THIRDS), digits, say)
