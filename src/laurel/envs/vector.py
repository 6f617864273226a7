"""Vectorised environments: by their own vector version, EnvPool or Gymnasium.

All autoreset on the step *after* an episode's end: that step ignores its action, returns the first observation of a new
episode, and is marked invalid here so that it reaches neither training nor data. An episode's final observation is
therefore always the `observation` of a valid step. EnvPool reports an episode that terminates in the last step before
the limit as truncated.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray
from laurel.envs import make_reference, reference_id, step_limit
from laurel.envs.base import EnvAdapter
from laurel.envs.guard import NOT_OURS, check_finite, check_rewards, failure, in_a_line
from laurel.envs.info import named_info, named_info_of_one
from laurel.errors import EnvError, LaurelError
from laurel.interrupt import ctrl_c_held_back

if TYPE_CHECKING:
    import gymnasium as gym

    from laurel.params import EnvParams

logger = logging.getLogger(__name__)

_UNFAITHFUL = {
    "Blackjack-v*": "calls any ace in the player's hand usable",
    "CliffWalking*": "does not end its episodes at a limit",
    "Taxi-v*": "begins a quarter of the episodes with the passenger at the destination",
}
"""Environments that EnvPool (1.2.5) implements differently -> how."""


class Step(NamedTuple):
    """The result of stepping N environments."""

    observation: Array
    """(N, D) packed observations after the action."""
    reward: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    valid: BoolArray
    """(N,) False where the step was a reset or the environment is stopped: reward 0, action ignored."""
    info: Mapping[str, Array] = MappingProxyType({})
    """Name -> (N,) the fields of `info` that the adapter names."""

    def rows(self, rows: slice) -> Step:
        """Return the rows of some environments."""
        info = {name: values[rows] for name, values in self.info.items()}
        return Step._make([*(part[rows] for part in self[:-1]), info])

    @staticmethod
    def concatenated(steps: Sequence[Step]) -> Step:
        """Concatenate the steps of several vector environments."""
        *parts, infos = zip(*steps, strict=True)
        info = {name: np.concatenate([fields[name] for fields in infos]) for name in infos[0]}
        return Step._make([*map(np.concatenate, parts), info])


class _Backend(Protocol):
    """The part of the vector API that EnvPool and Gymnasium share."""

    def reset(self) -> tuple[Any, Any]: ...
    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]: ...
    def close(self) -> None: ...


class _InHalves(Protocol):
    """EnvPool's step split into send and receive; its threads work in between."""

    def send(self, actions: Any) -> None: ...
    def recv(self) -> tuple[Any, Any, Any, Any, Any]: ...


class VectorEnv:
    """N copies of an environment, seeded, with packed observations."""

    form: Any = None
    """The environment's own vector version, if that is used."""
    _closed = False

    def __init__(
        self,
        backend: str,
        envs: _Backend,
        adapter: EnvAdapter,
        n_envs: int,
        *,
        reset: Callable[[], Any],
        pack: Callable[[Any], Array],
        singles: list[Any] | None = None,
        in_halves: _InHalves | None = None,
        form: Any = None,
    ) -> None:
        self.backend = backend
        self.n_envs = n_envs
        self.adapter = adapter
        self._envs = envs
        self._reset = reset
        self._pack = pack
        self._singles = singles or []
        self._in_halves = in_halves
        self.form = form
        self._foreign = form is not None and not _is_ours(type(form))
        self.steps = 0
        """Number of steps taken in each environment, for error messages."""
        self._actions: Array | None = None
        self.resting = np.zeros(n_envs, dtype=np.bool_)
        """(N,) stopped environments."""
        self.ended = np.zeros(n_envs, dtype=np.bool_)
        """(N,) environments whose next step is a reset."""

    def reset(self) -> Array:
        """Reset all environments and return their packed observations (N, D)."""
        self.ended[:] = False
        try:
            return self._pack(self._reset())
        except NOT_OURS as error:
            self._blame("reset", error)
            raise

    def step(self, actions: Array) -> Step:
        """Take an action (N,) or (N, A) in every environment; continuous ones are clipped to their bounds."""
        self.begin_step(actions)
        return self.end_step()

    def begin_step(self, actions: Array) -> None:
        """Begin `step`; environments that run in threads work until `end_step`."""
        self._actions = self.adapter.taken(actions)
        if self._in_halves is not None:
            self._in_halves.send(self._actions)

    def end_step(self) -> Step:
        """Return the result of the step in progress."""
        try:
            answer = self._envs.step(self._actions) if self._in_halves is None else self._in_halves.recv()
        except NOT_OURS as error:
            self._blame("step", error)
            raise
        raw, rewards, terminated, truncated, info = answer
        valid = ~(self.ended | self.resting)
        reward = np.where(valid, np.asarray(rewards, dtype=np.float32), np.float32(0))
        terminated = np.asarray(terminated, dtype=np.bool_)
        truncated = np.asarray(truncated, dtype=np.bool_) & ~terminated
        self.ended = terminated | truncated
        self.steps += 1
        check_rewards(reward, self.adapter.env_id, self.steps)
        observation = self._pack(raw)
        check_finite(observation, self.adapter.env_id, self.steps)
        kept = named_info(self.adapter, info, valid) if self.adapter.info_fields else {}
        return Step(observation, reward, terminated, truncated, valid, kept)

    def _blame(self, method: str, error: BaseException) -> None:
        """Raise an `EnvError` for an exception in `reset` or `step` of a user's own vector version, if it is one."""
        if self._foreign and not isinstance(error, LaurelError):
            raise failure(self.adapter.env_id, f"vector environment's {method}", error) from error

    def stop(self, mask: BoolArray, observation: Array) -> None:
        """Stop environments (N,) permanently; the others are unaffected.

        Environments that are stepped one by one take no time once stopped, and keep their row of `observation`.
        """
        if self._singles:
            for i in np.flatnonzero(mask & ~self.resting):
                self._singles[i] = _Stopped(self._singles[i], observation[i].copy())
        self.resting |= mask

    def draw_tasks(self, chances: FloatArray) -> None:
        """Set the probabilities (K,) with which multi-task environments (`laurel.envs.builtin.tasks`) draw tasks."""
        for env in self._singles:
            env.unwrapped.chances = chances

    def close(self) -> None:
        """Close the environments; again is harmless."""
        if not self._closed:
            self._closed = True
            self._envs.close()


class _Stopped:
    """Replaces a single environment that was stopped."""

    def __init__(self, env: gym.Env[Any, Any], observation: Array) -> None:
        self.close = env.close
        self._observation = observation

    def reset(self, **_: Any) -> tuple[Array, dict[str, Any]]:
        return self._observation, {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        return self._observation, 0.0, False, False, {}


def make_vector(
    env: EnvParams, adapter: EnvAdapter, n_envs: int, seed: int, *, reference: bool = False, threads: int = 1
) -> VectorEnv:
    """Make N environments; the same seed gives the same episodes on the same backend.

    Args:
        reference: use the environment's own Python package, whatever `env.backend` is.
        threads: of EnvPool; Gymnasium uses none. The number does not change results.

    Raises:
        EnvError: EnvPool was asked for and is not installed, or does not have the environment.
    """
    quicker = env.backend == "auto" and _own_vector(env, adapter) is not None
    envpool_id = None if reference or quicker else _choose_envpool(env, adapter)
    if envpool_id is not None:
        return _envpool(env, envpool_id, adapter, n_envs, seed, min(threads, n_envs))
    return _gymnasium(env, adapter, n_envs, seed)


def check_backend(env: EnvParams, adapter: EnvAdapter) -> None:
    """Refuse `env.backend: envpool` where EnvPool cannot step the environment.

    Raises:
        EnvError: EnvPool is not installed, does not have the environment, or would differ from it.
    """
    if env.backend == "envpool":
        _choose_envpool(env, adapter)


def _choose_envpool(env: EnvParams, adapter: EnvAdapter) -> str | None:
    """Return EnvPool's id if EnvPool should be used; not if `info` is needed, whose fields differ from Gymnasium's."""
    env_id = adapter.env_id
    if env.backend == "auto" and adapter.info_fields:
        _say_why_not_envpool(env_id, ", ".join(adapter.info_fields))
        return None
    if env.backend == "gymnasium" or (env.backend == "auto" and env.kwargs):
        return None
    unfaithful = next((reason for pattern, reason in _UNFAITHFUL.items() if fnmatch(env_id, pattern)), None)
    installed = importlib.util.find_spec("envpool") is not None
    known_id = _envpool_id(env_id) if installed and is_original(env) else None
    if env.backend == "envpool" and (unfaithful or known_id is None or env.kwargs):
        reason = (
            "is not installed" if not installed else "does not have it" if known_id is None else "takes no env.kwargs"
        )
        raise EnvError(
            f'env.backend is "envpool" for {env.id}, but EnvPool {unfaithful or reason}. Use "auto" or "gymnasium".'
        )
    return None if unfaithful else known_id


@cache
def _say_why_not_envpool(env_id: str, fields: str) -> None:
    logger.info("%s runs through Gymnasium, because its adapter needs %s of its info.", env_id, fields)


def is_original(env: EnvParams) -> bool:
    """Whether the id still refers to the environment that EnvPool implements, not to one that a user registered over
    it.
    """
    import gymnasium as gym

    return str(gym.spec(reference_id(env)).entry_point).startswith(("gymnasium.", "minigrid."))


def _envpool_id(env_id: str) -> str | None:
    with ctrl_c_held_back():  # the import takes a second, during which Ctrl-C would be lost
        import envpool

    return env_id if env_id in envpool.list_all_envs() else None


def _envpool(env: EnvParams, env_id: str, adapter: EnvAdapter, n_envs: int, seed: int, threads: int) -> VectorEnv:
    import envpool

    limit = step_limit(env)
    options = {} if limit is None else {"max_episode_steps": limit}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # EnvPool warns of its own use of old Gymnasium names
        envs = envpool.make(env_id, env_type="gymnasium", num_envs=n_envs, num_threads=threads, seed=seed, **options)
        _ = envs.observation_space  # created on first access, which also warns
    return VectorEnv("envpool", envs, adapter, n_envs, reset=lambda: envs.reset()[0], pack=adapter.pack, in_halves=envs)


def _gymnasium(env: EnvParams, adapter: EnvAdapter, n_envs: int, seed: int) -> VectorEnv:
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    vector_class = _own_vector(env, adapter)
    envs: Any = None
    if vector_class is not None:
        try:
            envs = vector_class(num_envs=n_envs, **env.kwargs)
        except LaurelError:
            raise
        except NOT_OURS as error:
            with_kwargs = f" with {env.kwargs}" if env.kwargs else ""
            raise EnvError(
                f"{adapter.env_id}: its vector environment cannot be made{with_kwargs}: {in_a_line(error)}. "
                "--debug shows where."
            ) from error
    pack: Callable[[Any], Array] = adapter.pack
    singles: list[Any] | None = None
    if envs is None:
        envs = SyncVectorEnv(
            [lambda: packed(make_reference(env), adapter) for _ in range(n_envs)],
            copy=False,
            autoreset_mode=AutoresetMode.NEXT_STEP,
        )
        pack = np.array  # rows are packed already; they are copied out of the buffer that the next step fills
        singles = envs.envs
    seeds = iter([seed])  # later resets continue the random streams; otherwise every episode would be the same
    return VectorEnv(
        "gymnasium",
        envs,
        adapter,
        n_envs,
        reset=lambda: envs.reset(seed=next(seeds, None))[0],
        pack=pack,
        singles=singles,
        form=envs if vector_class else None,
    )


def _own_vector(env: EnvParams, adapter: EnvAdapter) -> Callable[..., Any] | None:
    """Return a factory for the environment's own vector version, if it has one that resets on the next step.

    It steps all environments with a few array operations, which is faster than any pool of single environments. Only
    Laurel's own versions are known to accept an episode length limit and to provide the `info` fields that an adapter
    names.
    """
    import gymnasium as gym
    from gymnasium.envs.registration import load_env_creator
    from gymnasium.vector import AutoresetMode

    spec = gym.spec(reference_id(env))
    entry = spec.vector_entry_point
    if entry is None or adapter.generic:
        return None
    creator: Callable[..., Any] = load_env_creator(entry) if isinstance(entry, str) else entry
    ours = isinstance(creator, type) and _is_ours(creator)
    if adapter.info_fields and not ours:
        return None
    metadata = getattr(creator, "metadata", {})
    if metadata.get("autoreset_mode") != AutoresetMode.NEXT_STEP:
        return None
    make = partial(gym.make_vec, spec.id, vectorization_mode="vector_entry_point")
    if (limit := step_limit(env)) is None:
        return make
    return partial(make, max_episode_steps=limit) if ours else None


def _is_ours(vector: type) -> bool:
    """Whether a vector environment is one of Laurel's own."""
    from laurel.envs.builtin.batch import BatchEnv

    return issubclass(vector, BatchEnv)


def packed(env: gym.Env[Any, Any], adapter: EnvAdapter) -> gym.Env[Any, Any]:
    """Wrap a single environment to return packed observations, so that batching is one array copy, and of `info` only
    what its adapter names.

    Gymnasium gives a field the type and shape that the first environment's value has: 0.5 after 0 became 0, and an
    array of another length raised.
    """
    import gymnasium as gym

    class Packed(gym.Wrapper[Array, Any, Any, Any]):  # Gymnasium's own would copy the adapter: 10 ms each
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, Any]:
            observation, _ = self.env.reset(seed=seed, options=options)
            return adapter.pack_one(observation), {}

        def step(self, action: Any) -> tuple[Array, Any, bool, bool, dict[str, Any]]:
            observation, reward, terminated, truncated, info = self.env.step(action)
            kept = {name: values[0] for name, values in named_info_of_one(adapter, info).items()}
            return adapter.pack_one(observation), reward, terminated, truncated, kept

    wrapped = Packed(env)
    wrapped.observation_space = adapter.row_space
    return wrapped
