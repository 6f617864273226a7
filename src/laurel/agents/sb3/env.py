"""Laurel's environments behind the interface of Stable-Baselines3, and the learned reward as a wrapper around them.

Stable-Baselines3 expects an environment to reset in the step that ends an episode, with the last observation in
`info`; Laurel's environments reset in the step after. Here each environment is a vector environment of size 1, so that
one can take its reset step while the others wait. Imports Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from laurel.agents.episodes import LEAST, Episodes
from laurel.agents.learner import Rollout
from laurel.agents.sb3.policy import feature_space
from laurel.arrays import Array, FloatArray, compact
from laurel.envs.base import EnvAdapter
from laurel.envs.vector import make_vector
from laurel.params import EnvParams
from laurel.seeding import derive_seed

Stepped = tuple[Array, FloatArray, Array, list[dict[str, Any]]]

BLOCK = 4096
"""Number of latest steps whose actions are stored uncompressed."""
INFO = "laurel"
"""Key in Stable-Baselines3's `info` of the fields (1,) that the adapter names."""


class PackedEnvs(VecEnv):
    """N environments with packed observations (N, D), and the environment's own reward.

    Where an episode ends, the observation is the first of the next episode; `terminal_observation` in its info is the
    last of the one that ended, and `TimeLimit.truncated` says whether that was cut short.
    """

    def __init__(self, env: EnvParams, adapter: EnvAdapter, n_envs: int, seed: int) -> None:
        self.adapter = adapter
        self._envs = [make_vector(env, adapter, 1, derive_seed(seed, index)) for index in range(n_envs)]
        super().__init__(n_envs, adapter.row_space, adapter.action_space)

    def reset(self) -> Array:
        return np.concatenate([envs.reset() for envs in self._envs])

    def step_async(self, actions: Array) -> None:
        self._actions = actions

    def step_wait(self) -> Stepped:
        infos: list[dict[str, Any]] = [{} for _ in self._envs]
        observation = np.empty((self.num_envs, self.adapter.observation_size), self.adapter.observation_dtype)
        reward, done = np.empty(self.num_envs, np.float32), np.zeros(self.num_envs, np.bool_)
        for i, envs in enumerate(self._envs):
            action = self._actions[i : i + 1]
            step = envs.step(action)
            reward[i], done[i] = step.reward[0], step.terminated[0] or step.truncated[0]
            infos[i] = {INFO: step.info} if step.info else {}
            if done[i]:
                infos[i]["terminal_observation"] = step.observation[0]
                infos[i]["TimeLimit.truncated"] = bool(step.truncated[0])
                step = envs.step(action)  # the reset step, whose action is ignored
            observation[i] = step.observation[0]
        return observation, reward, done, infos

    def close(self) -> None:
        for envs in self._envs:
            envs.close()

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Do nothing: environments were seeded when they were made."""
        return [None] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name != "render_mode":
            raise AttributeError(attr_name)
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(attr_name)

    def env_method(self, method_name: str, *_: Any, indices: Any = None, **__: Any) -> list[Any]:
        raise AttributeError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class MixesRewards(Protocol):
    """Computes the rewards of successive rollouts, such as `laurel.training.pay.TrainingReward`."""

    scored: int
    """Steps of the last rollout that had a raw reward."""

    @property
    def unseen(self) -> int:
        """Number of captions met that the reward's table lacked."""

    @property
    def unpaid(self) -> int:
        """Number of outcomes met that have no answer."""

    @property
    def accounts(self) -> dict[str, dict[str, Any]]:
        """Cost of computing the reward, if it asks a language model about steps."""

    def when_answered(self, call: Callable[[], None]) -> None:
        """Call a function after each answer of a language model about steps."""

    def mix_into(self, rollout: Rollout, done: float = 0.0) -> dict[str, float | None]:
        """Write `rollout.reward`; return the learned part's figures for the curve."""


class LearnedRewardEnvs(VecEnvWrapper):
    """Returns an arm's training reward, as Laurel's own training does: the environment's plus the shaped learned one.

    Wraps `PackedEnvs`. Records the actions, and the figures of the learning curve since its last row.
    """

    def __init__(self, venv: VecEnv, adapter: EnvAdapter, reward: MixesRewards) -> None:
        super().__init__(venv)
        self.reward = reward
        self._recent: list[Array] = []
        self._blocks: list[Array] = []
        """Actions of the last steps, and of those before in less memory: a training may have ten million."""
        self._episodes = Episodes(adapter, venv.num_envs)
        self._info_fields = tuple(adapter.info_fields)
        self._paid: list[tuple[dict[str, float | None], int]] = []
        """Learned reward of each step since the last row of the curve, and how many steps had a raw reward."""

    def reset(self) -> Any:
        self._before = np.asarray(self.venv.reset())
        return self._before

    def step_async(self, actions: Array) -> None:
        self._taken = np.array(actions)
        super().step_async(actions)

    def step_wait(self) -> Any:
        observation, extrinsic, done, infos = self.venv.step_wait()
        after = np.array(observation)
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        for i in np.flatnonzero(done):
            after[i] = infos[i]["terminal_observation"]
        rollout = Rollout(
            observation=np.stack([self._before, after]),
            action=self._taken[None],
            extrinsic=extrinsic[None],
            reward=np.empty((1, self.num_envs), np.float32),
            terminated=(done & ~truncated)[None],
            truncated=(done & truncated)[None],
            valid=np.ones((1, self.num_envs), np.bool_),
            info={name: np.stack([info[INFO][name] for info in infos], axis=1) for name in self._info_fields},
        )
        self._paid.append((self.reward.mix_into(rollout), self.reward.scored))
        self._episodes.follow(rollout)
        self._recent.append(self._taken)
        if len(self._recent) == BLOCK:
            self._compress()
        self._before = np.asarray(observation)
        return observation, rollout.reward[0].copy(), done, infos  # a copy: on-policy algorithms add to it

    def _compress(self) -> None:
        if self._recent:
            self._blocks.append(compact(np.stack(self._recent)))
            self._recent.clear()

    @property
    def actions(self) -> Array:
        """(T, N) or (T, N, A) of every step since the first reset."""
        self._compress()
        return np.concatenate(self._blocks) if self._blocks else np.zeros((0, self.num_envs))

    def figures(self, *, at_least: int = LEAST) -> dict[str, Any]:
        """Return a row of the learning curve: the last episodes, and the mean rewards since the last call."""
        figures: dict[str, Any] = dict(self._episodes.figures(at_least=at_least))
        for name in ("raw_reward", "shaped_reward", "share_paid"):
            known = [(paid[name], scored if name == "raw_reward" else self.num_envs) for paid, scored in self._paid]
            weighted = [(value, weight) for value, weight in known if value is not None]
            steps = sum(weight for _, weight in weighted)
            figures[name] = sum(value * weight for value, weight in weighted) / steps if steps else None
        self._paid.clear()
        return figures


class FeatureEnvs(VecEnvWrapper):
    """Returns features (N, F), as used by Laurel's own networks, instead of packed observations."""

    def __init__(self, venv: VecEnv, adapter: EnvAdapter) -> None:
        self._adapter = adapter
        super().__init__(venv, observation_space=feature_space(adapter.n_features))

    def reset(self) -> Any:
        return self._adapter.features(np.asarray(self.venv.reset()))

    def step_wait(self) -> Any:
        observation, reward, done, infos = self.venv.step_wait()
        shown: list[dict[str, Any]] = [dict(info) for info in infos]
        for i in np.flatnonzero(done):
            shown[i]["terminal_observation"] = self._adapter.features(infos[i]["terminal_observation"][None])[0]
        return self._adapter.features(np.asarray(observation)), reward, done, shown
