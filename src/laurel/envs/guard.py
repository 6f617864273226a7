"""Turns exceptions and invalid observations or rewards of an environment into one-sentence errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.arrays import Array, FloatArray
from laurel.errors import EnvError

if TYPE_CHECKING:
    import gymnasium as gym
    from gymnasium.envs.registration import EnvSpec

    from laurel.envs.spaces import Leaf


def guarded(env: gym.Env[Any, Any], env_id: str) -> gym.Env[Any, Any]:
    """Wrap an environment so that exceptions from `reset` and `step` become an `EnvError` that names it.

    Observations outside the structure of the observation space, with NaN or infinity, or with whole numbers that its
    type cannot hold, and rewards that are not numbers, raise it too.
    """
    import gymnasium as gym

    from laurel.envs.spaces import common_dtype, leaves_of

    try:
        parts = leaves_of(env.observation_space)
        stored = common_dtype(parts)
        leaves = [(leaf, _range_of(leaf.space), _held(leaf.space.dtype, stored)) for leaf in parts]
    except EnvError:  # an adapter that packs such observations itself knows what they should be
        leaves = []

    class Guarded(gym.Wrapper[Any, Any, Any, Any]):
        @property
        def spec(self) -> EnvSpec | None:  # type: ignore[override]  # as gym.Wrapper's own
            """The spec of the wrapped environment: the guard does not change its behaviour, and cannot be made from a
            spec.
            """
            return self.env.spec

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
            with named(env_id, "reset"):
                answer = self.env.reset(seed=seed, options=options)
                _check_observation(answer[0], leaves)
            return answer

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            with named(env_id, "step"):
                answer = self.env.step(action)
                _check_observation(answer[0], leaves)
                _check_outcome(env_id, *answer[1:4])
            return answer

    return Guarded(env)


class _MisfitError(Exception):
    """An observation does not fit its space; the message says how."""


NOT_OURS = (Exception, SystemExit)
"""Exceptions that the user's code may raise, including `sys.exit()`, which would end a run without a message."""


@contextmanager
def named(env_id: str, method: str) -> Iterator[None]:
    """Turn exceptions of the environment's code into an `EnvError` that names the environment."""
    try:
        yield
    except EnvError:
        raise
    except _MisfitError as error:
        raise EnvError(
            f"{env_id}: the environment's {method} does not match its observation_space: {error}. Fix it."
        ) from None
    except NOT_OURS as error:
        raise failure(env_id, f"environment's {method}", error) from error


def not_text(env_id: str, caption: object) -> EnvError:
    """Return the error for a caption of another type."""
    return EnvError(
        f"{env_id}: a caption is {repr(caption)[:60]}, which is not text. Return a text, or an empty one for a step "
        "without a caption. Fix its adapter."
    )


def failure(env_id: str, subject: str, error: BaseException) -> EnvError:
    """Return the error for an exception in the user's code; `subject` is e.g. "environment's step"."""
    return EnvError(f"{env_id}: the {subject} raised {in_a_line(error)}. --debug shows where.")


def _range_of(space: gym.Space[Any]) -> tuple[Any, Any] | None:
    """Return the first number of a discrete space and the one after its last, None of other spaces."""
    import gymnasium as gym

    match space:
        case gym.spaces.Discrete():
            return int(space.start), int(space.start + space.n)
        case gym.spaces.MultiDiscrete():
            return space.start, space.start + space.nvec
    return None


def _held(declared: Any, stored: np.dtype[Any]) -> np.iinfo[Any] | None:
    """Return the range of whole numbers that both types hold, None if not of whole numbers; others would wrap around,
    such as -1 to 255.
    """
    ranges = [np.iinfo(dtype) for dtype in (declared, stored) if dtype is not None and dtype.kind in "iu"]
    return min(ranges, key=lambda limits: limits.bits) if declared is not None and declared.kind in "iu" else None


def _check_observation(
    observation: Any, leaves: Sequence[tuple[Leaf, tuple[Any, Any] | None, np.iinfo[Any] | None]]
) -> None:
    """Raise if an observation has the wrong structure, shape or type, is outside a discrete space, contains NaN or
    infinity, or has whole numbers that cannot be stored.
    """
    for leaf, limits, held in leaves:
        part = f'"{leaf.name}" of the observation' if leaf.name else "the observation"
        try:
            values = np.asarray(leaf.get(observation))
        except (KeyError, IndexError, TypeError, ValueError):
            raise _MisfitError(f"{part} is missing, or is a ragged array") from None
        declared, kind = leaf.space.shape or (), values.dtype.kind
        if values.shape != declared and np.squeeze(values).shape != tuple(n for n in declared if n != 1):
            raise _MisfitError(f"{part} has the shape {values.shape}, but {declared} is declared")
        if kind not in "biuf":
            raise _MisfitError(f"{part} holds {values.dtype}, but numbers are declared")
        if limits is not None and ((values < limits[0]) | (values >= limits[1])).any():
            raise _MisfitError(f"{part} is {values.tolist()}, which is outside {leaf.space}")
        if limits is None and held is not None and values.dtype != held.dtype and values.size and kind != "b":
            low, high = values.min(), values.max()
            if low < held.min or high > held.max:
                raise _MisfitError(
                    f"{part} has numbers from {low} to {high}, but its declared type and bounds are those of "
                    f"{held.dtype}, from {held.min} to {held.max}"
                )
        if kind != "f":
            continue
        if not np.isfinite(values).all():
            raise _MisfitError(f"{part} contains NaN or infinity")
        if leaf.space.dtype is not None and leaf.space.dtype.kind != "f" and (values != np.rint(values)).any():
            raise _MisfitError(f"{part} holds fractions, but {leaf.space.dtype} is declared")


def _check_outcome(env_id: str, reward: Any, terminated: Any, truncated: Any) -> None:
    """Reject values that Python would convert silently, such as the text "1" and None."""
    for name, value in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
        if value is None or isinstance(value, str | bytes):
            due = "a number" if name == "reward" else "true or false"
            raise EnvError(
                f"{env_id}: the environment's step returned {name} {value!r}, but {due} is required. Fix it."
            )
    float(reward)


def check_finite(observation: Array, env_id: str, step: int) -> None:
    """Raise if packed observations (N, D) contain NaN or infinity; single environments are checked earlier.

    Raises:
        EnvError: they do; the message names the number `step`.
    """
    if observation.dtype.kind == "f" and not (finite := np.isfinite(observation).all(axis=1)).all():
        raise EnvError(
            f"{env_id}: the observation in step {step:,} of environment {int(finite.argmin())} contains NaN or "
            f"infinity. Observations must be finite: fix the environment."
        )


def check_rewards(reward: FloatArray, env_id: str, step: int) -> None:
    """Raise if any of the rewards (N,) is NaN or infinite.

    Raises:
        EnvError: one is; the message names the number `step`.
    """
    finite = np.isfinite(reward)
    if not finite.all():
        i = int(finite.argmin())
        raise EnvError(
            f"{env_id}: the reward in step {step:,} of environment {i} is {reward[i]}. Rewards must be finite: fix "
            "the environment."
        )


def in_a_line(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message."""
    message = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
