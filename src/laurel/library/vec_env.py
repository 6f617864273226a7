"""Stable-Baselines3's vector environments whose steps are paid a learned reward. Imports Stable-Baselines3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from laurel.arrays import Array
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.info import named_info
from laurel.library.payer import INFO, WRAP_SINGLE, Payer, check_wrappable
from laurel.library.reward import LoadedReward, Shaping


class RewardVecEnv(VecEnvWrapper):
    """Pays the steps of a `VecEnv` as `laurel.RewardWrapper` pays those of an environment; each info has "laurel".

    Args:
        venv: copies of one environment; some layer of it must have the environment's own spaces. Where wrappers of the
            single environments change these, as MiniGrid's do, wrap each in a `laurel.RewardWrapper` instead.
        reward: a reward, or its location as for `laurel.load_reward`.
        shaping: as in params.yaml; None: the defaults.

    Raises:
        LaurelError: as `laurel.RewardWrapper`.
    """

    def __init__(self, venv: VecEnv, reward: LoadedReward | str | Path, shaping: Shaping = None) -> None:
        check_wrappable(venv, "venv", RewardVecEnv, VecEnv)
        self._payer = Payer(reward, shaping, venv.get_attr("spec")[0], venv.num_envs)
        outermost, self._watch = self._payer.watched(venv, "venv", _VecWatch, WRAP_SINGLE.format("VecEnv"))
        super().__init__(outermost)
        self._running = np.zeros(venv.num_envs, np.bool_)

    def reset(self) -> Any:
        """Reset all environments; unfinished episodes are dropped."""
        self._payer.abandon(self._running)
        self._running[:] = False
        return self.venv.reset()

    def step_wait(self) -> Any:
        observation, extrinsic, done, infos = self.venv.step_wait()
        cut = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        ends = done & ~cut, done & cut
        valid = np.ones(self.num_envs, np.bool_)
        transitions = self._watch.transitions(*ends)
        paid = self._payer.pay(transitions, valid[None], ends[0][None], ends[1][None], extrinsic)
        self._running = ~done
        for i, info in enumerate(infos):
            info[INFO] = {
                "caption": paid.caption[i],
                "extrinsic": float(extrinsic[i]),
                "raw": float(paid.raw[i]),
                "shaped": float(paid.shaped[i]),
            }
        return observation, paid.total, done, infos


class _VecWatch(VecEnvWrapper):
    """Keeps the last step of the layer that it wraps."""

    def __init__(self, venv: VecEnv, adapter: EnvAdapter) -> None:
        super().__init__(venv)
        self._adapter = adapter

    def reset(self) -> Any:
        observation = self.venv.reset()
        self._packed: Array = np.array(self._adapter.pack(observation))
        return observation

    def step_async(self, actions: Array) -> None:
        self._taken = np.array(actions)
        super().step_async(actions)

    def step_wait(self) -> Any:
        answer = self.venv.step_wait()
        observation, reward, done, self._infos = answer
        self._before, self._packed = self._packed, np.array(self._adapter.pack(observation))
        self._after, self._reward = self._packed.copy(), np.array(reward, np.float32)
        for i in np.flatnonzero(done):
            self._after[i] = self._adapter.pack_one(self._infos[i]["terminal_observation"])
        return answer

    def transitions(self, terminated: Array, truncated: Array) -> Transitions:
        """Return the last step's transitions (N,)."""
        fields = {name: [info.get(name) for info in self._infos] for name in self._adapter.info_fields}
        given = {f"_{name}": np.array([name in info for info in self._infos]) for name in fields}
        kept = named_info(self._adapter, {**fields, **given}, np.ones(len(terminated), np.bool_))
        return Transitions(self._before, self._taken, self._reward, self._after, terminated, truncated, kept)
