"""What an environment's own code gets wrong, said in a sentence: exceptions, and rewards that are NaN or infinite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.errors import EnvError

if TYPE_CHECKING:
    import gymnasium as gym
    from gymnasium.envs.registration import EnvSpec

    from laurel.envs.base import FloatArray


def guarded(env: gym.Env[Any, Any], env_id: str) -> gym.Env[Any, Any]:
    """Wrap an environment so that what `reset` and `step` raise becomes an `EnvError` that names it."""
    import gymnasium as gym

    class Guarded(gym.Wrapper[Any, Any, Any, Any]):
        @property
        def spec(self) -> EnvSpec | None:  # type: ignore[override]  # as gym.Wrapper's own
            """How the environment itself is made: the guard changes nothing of it, and cannot be made from text."""
            return self.env.spec

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
            try:
                return self.env.reset(seed=seed, options=options)
            except EnvError:
                raise
            except Exception as error:  # the code is not ours
                raise _failed(env_id, "reset", error) from error

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            try:
                return self.env.step(action)
            except EnvError:
                raise
            except Exception as error:  # the code is not ours
                raise _failed(env_id, "step", error) from error

    return Guarded(env)


def check_rewards(reward: FloatArray, env_id: str, step: int) -> None:
    """Refuse rewards (N,) that are NaN or infinite.

    Raises:
        EnvError: one is, in the step of that number.
    """
    finite = np.isfinite(reward)
    if not finite.all():
        i = int(finite.argmin())
        raise EnvError(
            f"{env_id}: the reward in step {step:,} of environment {i} is {reward[i]}. Rewards must be finite: mend "
            "the environment."
        )


def in_a_line(error: BaseException) -> str:
    """Return the kind of an exception, and the first line of what it says."""
    said = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _failed(env_id: str, what: str, error: Exception) -> EnvError:
    return EnvError(f"{env_id}: the environment's {what} raised {in_a_line(error)}. --debug shows where.")
