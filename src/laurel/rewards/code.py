"""Rewards that are code written by a language model; see `laurel.rewards.methods.code`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from laurel.arrays import DoubleArray, FloatArray
from laurel.data.json_file import read_json
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.numbers import Number, Numbers
from laurel.errors import DataError
from laurel.rewards.base import UNPAID, Memoryless, Steps
from laurel.rewards.method import Program
from laurel.rewards.normalizer import Normalizer
from laurel.rewards.sandbox import Sandbox, SandboxError

SOURCE, CONFIG = "reward.py", "code.json"
MOST_FAILED = 0.01
"""Maximum share of transitions for which a function may fail."""
LEAST_FAILED = 100
"""Number of failed transitions below which training is never stopped."""
MOST_REMEMBERED = 200_000
"""Maximum number of distinct transitions whose rewards are cached."""
Rows = tuple[list[list[Number]], list[Any], list[list[Number]]]
"""Numbers before, actions, numbers after."""


class CodeReward(Memoryless):
    """Rewards steps with a function's value, in normalised units; each distinct transition is computed once.

    It has no state besides a cache, so that several agents can share it.

    Args:
        source: Python that defines the function.
        quantile: of the threshold.
    """

    def __init__(self, source: str, numbers: Numbers, normalizer: Normalizer, quantile: float) -> None:
        self.threshold = normalizer.threshold(quantile)
        self._sandbox, self._numbers, self._normalizer = Sandbox(source, numbers.names), numbers, normalizer
        self._known: dict[bytes, float] = {}
        self._evaluated, self._failures = 0, Counter[str]()

    def close(self) -> None:
        """End the process in which the function runs."""
        self._sandbox.close()

    def pay(self, steps: Steps) -> FloatArray:
        """Return the function's rewards (T, N), UNPAID where it fails.

        Raises:
            SandboxError: it exceeded its limits, or fails too often.
        """
        paid = np.full(steps.valid.size, UNPAID)
        places = np.flatnonzero(steps.valid.reshape(-1))
        if len(places):
            paid[places] = self._rewards_of(steps.transitions[places])
        return paid.reshape(steps.valid.shape)

    def _rewards_of(self, transitions: Transitions) -> FloatArray:
        keys = [row.tobytes() for row in table_of(transitions, self._numbers)]
        if len(self._known) > MOST_REMEMBERED:
            self._known.clear()
        new = {key: place for place, key in enumerate(keys) if key not in self._known}
        if new:
            self._compute(list(new), transitions[np.fromiter(new.values(), dtype=np.int64)])
        return np.array([self._known[key] for key in keys], dtype=np.float32)

    def _compute(self, keys: Sequence[bytes], transitions: Transitions) -> None:
        try:
            evaluated = self._sandbox.evaluate(*rows_of(transitions, self._numbers))
        except SandboxError as error:
            raise SandboxError(f"The reward's function was stopped: {error}. {_ADVICE}") from None
        self._evaluated += len(keys)
        self._failures.update(evaluated.failures)
        failed = self._failures.total()
        if failed >= LEAST_FAILED and failed > MOST_FAILED * self._evaluated:
            reason, times = self._failures.most_common(1)[0]
            raise SandboxError(
                f"The reward's function failed for {failed:,} of {self._evaluated:,} transitions, most often "
                f"({times:,} times) because: {reason}. {_ADVICE}"
            )
        scores = np.where(np.isnan(evaluated.rewards), UNPAID, self._normalizer(np.nan_to_num(evaluated.rewards)))
        self._known.update(zip(keys, scores.tolist(), strict=True))


_ADVICE = (
    "Generate another function: change the reward's rounds, samples or prompt, or collect more steps to try it on."
)


def rows_of(transitions: Transitions, numbers: Numbers) -> Rows:
    """Return the arguments of a function for N transitions."""
    return numbers.of(transitions.observation), transitions.action.tolist(), numbers.of(transitions.next_observation)


def table_of(transitions: Transitions, numbers: Numbers) -> DoubleArray:
    """Return a function's inputs for N transitions as rows (N, K): equal rows must get equal rewards."""
    values = numbers.adapter.feature_values
    before, after = values(transitions.observation), values(transitions.next_observation)
    action = transitions.action.reshape(len(transitions), -1)
    return np.ascontiguousarray(np.concatenate([before, action, after], axis=1, dtype=np.float64) + 0.0)


# -- the artefact ---------------------------------------------------------------------------------
def load(place: Path, adapter: EnvAdapter, quantile: float) -> CodeReward:
    """Load the reward.

    Raises:
        DataError: the artefact is missing or damaged, or the names of the environment's numbers have changed.
    """
    content, numbers = _read(place), Numbers(adapter)
    try:
        normalizer, names = Normalizer.read(content["normalizer"]), tuple(content["names"])
    except (KeyError, TypeError) as error:
        raise DataError(f"{place / CONFIG}: is damaged ({error}). Run laurel train-reward again.") from None
    if names != numbers.names:
        raise DataError(
            f"{place}: its function reads the numbers {', '.join(names) or 'in order'}, and {adapter.env_id} now has "
            f"{', '.join(numbers.names) or 'them in order'}. Run laurel train-reward again."
        )
    return CodeReward(_source(place), numbers, normalizer, quantile)


def program(place: Path) -> Program:
    """Return the artefact for the report; errors as in `load`."""
    content = _read(place)
    try:
        candidates = [
            (int(n), str(description), score, bool(taken)) for n, description, score, taken in content["candidates"]
        ]
        facts = str(content["writer"]), bool(content["simulated"]), str(content["chosen_by"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{place / CONFIG}: is damaged ({error}). Run laurel train-reward again.") from None
    return Program(_source(place), *facts, candidates)


def _read(place: Path) -> dict[str, Any]:
    return read_json(place / CONFIG)


def _source(place: Path) -> str:
    try:
        return (place / SOURCE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{place / SOURCE}: cannot be read ({error}). Run laurel train-reward again.") from None
