"""A Gymnasium wrapper that adds a learned reward, for any training library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from laurel.arrays import Array
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.info import named_info_of_one
from laurel.library.payer import INFO, Payer, check_wrappable
from laurel.library.reward import LoadedReward, Shaping

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec


class RewardWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """Rewards each step as Laurel's training does: the environment's reward plus the shaped learned one, weighted.

    `info["laurel"]` has the step's `caption`, the environment's own reward (`extrinsic`), the learned reward (`raw`,
    NaN if there is none) and the learned reward after shaping (`shaped`).

    Works on top of other wrappers, in any order: captions are made from the innermost layer that has the spaces of the
    environment as it was registered, with all layers of its own. Observations are not changed.

    Args:
        reward: a reward, or its location as for `laurel.load_reward`.
        shaping: as in params.yaml, e.g. {"beta": 0, "intrinsic": 0.5}; None: the defaults.

    Raises:
        DataError: the reward is missing or damaged.
        EnvError: no layer has the spaces that captions are made from, or the environment already pays a learned reward.
        ParamsError: `shaping` is not valid.
    """

    def __init__(self, env: gym.Env[Any, Any], reward: LoadedReward | str | Path, shaping: Shaping = None) -> None:
        check_wrappable(env, "env", RewardWrapper, gym.Env)
        self._payer = Payer(reward, shaping, env.spec, 1)
        advice = "Was the reward made for this environment, with these arguments?"
        outermost, self._watch = self._payer.watched(env, "env", _Watch, advice)
        super().__init__(outermost)
        self._running = False

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]  # as gym.Wrapper's own
        """The spec of the environment itself; the learned reward cannot be part of a spec."""
        return self.env.spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; an unfinished one is dropped."""
        if self._running:
            self._payer.abandon(np.array([True]))
        self._running = False
        observation, info = self.env.reset(seed=seed, options=options)
        self._watch.seen.clear()  # steps that a wrapper takes while it resets are not the agent's
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step; its reward is what agents learn from."""
        observation, extrinsic, ends, cut, info = self.env.step(action)
        terminated, truncated = bool(ends), bool(cut) and not ends
        steps = self._watch.taken()
        valid = np.ones((len(steps), 1), np.bool_)
        end, stop = np.zeros_like(valid), np.zeros_like(valid)
        end[-1:], stop[-1:] = terminated, truncated
        steps.terminated[-1:], steps.truncated[-1:] = terminated, truncated
        paid = self._payer.pay(steps, valid, end, stop, [extrinsic])
        self._running = not (terminated or truncated)
        facts = {
            "caption": paid.caption[0],
            "extrinsic": float(extrinsic),
            "raw": float(paid.raw[0]),
            "shaped": float(paid.shaped[0]),
        }
        return observation, float(paid.total[0]), ends, cut, {**info, INFO: facts}


class _Watch(gym.Wrapper[Any, Any, Any, Any]):
    """Records the transitions of the layer that it wraps, until they are taken."""

    def __init__(self, env: gym.Env[Any, Any], adapter: EnvAdapter) -> None:
        super().__init__(env)
        self._adapter = adapter
        self._before: Array = np.zeros(adapter.observation_size, adapter.observation_dtype)
        self.seen: list[Transitions] = []

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]
        return self.env.spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._before = np.array(self._adapter.pack_one(observation))
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        answer = self.env.step(action)
        observation, reward, terminated, truncated, info = answer
        after = np.array(self._adapter.pack_one(observation))
        self.seen.append(
            Transitions(
                self._before[None],
                np.asarray(action)[None],
                np.array([reward], np.float32),
                after[None],
                np.array([bool(terminated)]),
                np.array([bool(truncated) and not terminated]),
                named_info_of_one(self._adapter, info),
            )
        )
        self._before = after
        return answer

    def taken(self) -> Transitions:
        """Return the transitions since the last call, and clear them."""
        transitions, self.seen = self.seen, []
        return transitions[0] if len(transitions) == 1 else _joined(transitions, self._adapter)


def _joined(parts: list[Transitions], adapter: EnvAdapter) -> Transitions:
    """Concatenate transitions; none if there are no parts."""
    if not parts:
        rows = np.zeros((0, adapter.observation_size), adapter.observation_dtype)
        no, zero = np.zeros(0, np.bool_), np.zeros(0, np.float32)
        return Transitions(rows, zero, zero, rows, no, no, dict.fromkeys(adapter.info_fields, zero))
    return Transitions(
        np.concatenate([part.observation for part in parts]),
        np.concatenate([part.action for part in parts]),
        np.concatenate([part.reward for part in parts]),
        np.concatenate([part.next_observation for part in parts]),
        np.concatenate([part.terminated for part in parts]),
        np.concatenate([part.truncated for part in parts]),
        {name: np.concatenate([part.info[name] for part in parts]) for name in parts[0].info},
    )
