"""Learners that collect a plain rollout, a step at a time."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from laurel.agents.learner import Learner, Rollout
from laurel.arrays import Array, FloatArray
from laurel.envs.base import EnvAdapter
from laurel.envs.vector import VectorEnv
from laurel.plugins import in_short, is_ours, returned_wrongly


class Collecting(Learner):
    """Collects rollouts of `params.n_steps` steps; subclasses learn from them."""

    adapter: EnvAdapter

    def rollout(self, envs: VectorEnv) -> Rollout:
        self.adapter = envs.adapter
        return Rollout(**Rollout.shapes(self.params.n_steps, envs, self.policy))

    def collect(self, envs: VectorEnv, observation: Array, rollout: Rollout) -> Array:
        rollout.observation[0] = observation
        for t in range(self.params.n_steps):
            action = self._act(envs.adapter.features(rollout.observation[t]))
            rollout.record(t, action, envs.step(action))
        rollout.reward[:] = rollout.extrinsic
        return rollout.observation[-1].copy()

    def features(self, observation: Array) -> FloatArray:
        """Turn packed observations (..., D) into the policy's features (..., F)."""
        rows = self.adapter.features(observation.reshape(-1, observation.shape[-1]))
        return rows.reshape(*observation.shape[:-1], rows.shape[1])

    def _act(self, features: FloatArray) -> Array:
        """Choose actions (N,) or (N, A) for features (N, F).

        Raises:
            PluginError: another package's policy returned something else.
        """
        returned = self.policy.act(features, self.rng)
        shape = (len(features), *self.policy.action_shape)
        if isinstance(returned, tuple | list) and returned and np.shape(returned[0]) == shape:
            action: Array = np.asarray(returned[0])
            if wrong := None if is_ours(type(self.policy)) else _misfit(action, self.adapter):
                raise returned_wrongly("policy", self.policy, "act", *wrong)
            return action
        needed = (
            f"a tuple is required whose first member is an array of actions of shape {shape}; the others are their "
            "log-probabilities and values"
        )
        raise returned_wrongly("policy", self.policy, "act", in_short(returned), needed)


def _misfit(action: Array, adapter: EnvAdapter) -> tuple[str, str] | None:
    """Return what is wrong with actions that an environment may take for others, and what is required; None if nothing
    is.
    """
    space = adapter.action_space
    if isinstance(space, gym.spaces.Discrete):
        if action.dtype.kind in "iu" and ((action >= 0) & (action < space.n)).all():
            return None
        found = f"actions of type {action.dtype} from {action.min()} to {action.max()}"
        return found, f"whole numbers from 0 to {space.n - 1} are required"
    fits = action.dtype.kind in "iuf" and np.isfinite(action).all()
    return None if fits else (f"actions of type {action.dtype} with NaN or infinity", "finite numbers are required")
