"""Gymnasium's vector environments whose steps are paid a learned reward."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from laurel.arrays import Array, BoolArray
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.info import named_info
from laurel.library.payer import INFO, WRAP_SINGLE, Payer, check_wrappable
from laurel.library.reward import LoadedReward, Shaping

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

FINAL = "final_obs", "final_info"
"""Keys of the final observation and info of an episode that was reset in the same step."""


class RewardVectorWrapper(VectorWrapper[Any, Any, Any, Any, Any]):
    """Pays the steps of N environments as `laurel.RewardWrapper` pays those of one; `info["laurel"]` has arrays (N,).

    Works with every autoreset mode: a step that only resets earns 0, and `info["_laurel"]` is False for it; where an
    episode ends and the next begins in one step, `info["laurel"]` describes the step that ended the episode.

    Captions are made from the innermost vector layer that has the environment's own spaces. Where wrappers of the
    single environments change what is observed, wrap each of these in a `laurel.RewardWrapper` instead.

    Args:
        env: copies of one environment.
        reward: a reward, or its location as for `laurel.load_reward`.
        shaping: as in params.yaml; None: the defaults.

    Raises:
        LaurelError: as `laurel.RewardWrapper`.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], reward: LoadedReward | str | Path, shaping: Shaping = None
    ) -> None:
        check_wrappable(env, "env", RewardVectorWrapper, VectorEnv)
        n = env.num_envs
        self._payer = Payer(reward, shaping, _spec_of(env), n)
        outermost, self._watch = self._payer.watched(env, "env", _VectorWatch, WRAP_SINGLE.format("vector"))
        super().__init__(outermost)
        self._resets_later = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)) == (
            AutoresetMode.NEXT_STEP
        )
        self._running, self._ended = np.zeros(n, np.bool_), np.zeros(n, np.bool_)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those of `options["reset_mask"]` (N,); their unfinished episodes are dropped."""
        mask = np.array((options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_)))
        self._payer.abandon(mask & self._running)
        self._running &= ~mask
        self._ended &= ~mask
        answer: tuple[Any, dict[str, Any]] = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        return answer

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in each environment; rewards are what agents learn from."""
        observation, extrinsic, ends, cuts, info = self.env.step(actions)
        valid = ~self._ended if self._resets_later else np.ones(self.num_envs, np.bool_)
        terminated = np.asarray(ends, np.bool_)
        truncated = np.asarray(cuts, np.bool_) & ~terminated
        transitions = self._watch.transitions(terminated, truncated, valid)
        paid = self._payer.pay(transitions, valid[None], terminated[None], truncated[None], extrinsic)
        self._ended = terminated | truncated
        self._running = valid & ~self._ended
        facts = {
            "caption": np.array(paid.caption, dtype=object),
            "extrinsic": np.array(extrinsic, np.float64),
            "raw": paid.raw,
            "shaped": paid.shaped,
        }
        total = np.where(valid, paid.total, 0).astype(np.float64)
        return observation, total, ends, cuts, {**info, INFO: facts, f"_{INFO}": valid}


def _spec_of(env: VectorEnv[Any, Any, Any]) -> EnvSpec | None:
    """Return the spec of the environments; only `gymnasium.make_vec` gives one to the vector environment itself."""
    vector_env = env.unwrapped
    if env.spec is not None or not isinstance(vector_env, SyncVectorEnv | AsyncVectorEnv):
        return env.spec
    if isinstance(vector_env, SyncVectorEnv):
        return vector_env.envs[0].spec
    single = vector_env.env_fns[0]()  # those in other processes cannot send every spec
    try:
        return single.spec
    finally:
        single.close()


class _VectorWatch(VectorWrapper[Any, Any, Any, Any, Any]):
    """Keeps the last step of the layer that it wraps."""

    def __init__(self, env: VectorEnv[Any, Any, Any], adapter: EnvAdapter) -> None:
        super().__init__(env)
        self._adapter = adapter
        self._packed: Array = np.zeros((env.num_envs, adapter.observation_size), adapter.observation_dtype)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self._packed = np.array(self._adapter.pack(observation))
        return observation, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        answer = self.env.step(actions)
        self._before, self._packed = self._packed, np.array(self._adapter.pack(answer[0]))
        self._after, self._info = self._packed, answer[4]
        self._taken, self._reward = np.array(actions), np.array(answer[1], np.float32)
        observations, infos = FINAL
        if observations in self._info:
            ended = np.asarray(self._info[f"_{observations}"])
            self._after = self._packed.copy()
            for i in np.flatnonzero(ended):
                self._after[i] = self._adapter.pack_one(self._info[observations][i])
            self._info = _merged(self._info, self._info.get(infos, {}), ended)
        return answer

    def transitions(self, terminated: BoolArray, truncated: BoolArray, valid: BoolArray) -> Transitions:
        """Return the last step's transitions (N,), with the ends of episodes that the outermost layer reports."""
        info = named_info(self._adapter, self._info, valid)
        reward = np.where(valid, self._reward, np.float32(0))
        return Transitions(self._before, self._taken, reward, self._after, terminated, truncated, info)


def _merged(info: Mapping[str, Any], final: Mapping[str, Any], ended: BoolArray) -> dict[str, Any]:
    """Return the info of the steps themselves, which is under `final` where an episode ended (N,)."""
    merged = {name: value for name, value in info.items() if name not in final}
    for name in [name for name in final if name[0] != "_"]:
        values = info.get(name, final[name])
        merged[name] = [final[name][i] if ended[i] else values[i] for i in range(len(ended))]
        mask = info.get(f"_{name}", np.zeros(len(ended), np.bool_))
        merged[f"_{name}"] = np.where(ended, final.get(f"_{name}", False), mask)
    return merged
