"""What an agent learns from: the environment's reward and the shaped learned one, weighed.

Works on rollouts of any length, whoever collected them. Knows nothing about algorithms, nor where rewards come from.
"""

from __future__ import annotations

from laurel.agents.learner import Rollout
from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import Captioner
from laurel.params.training import ShapingParams
from laurel.rewards.functions import RewardFunction
from laurel.rewards.shaping import EpisodeCounts, shape


class Signal:
    """Mixes the rewards of rollouts that follow one another; keeps how often each episode has met each caption."""

    def __init__(self, shaping: ShapingParams, adapter: EnvAdapter, reward: RewardFunction | None, n_envs: int) -> None:
        self._shaping = shaping
        self._captioner = Captioner(adapter)
        self._counts = EpisodeCounts(n_envs)
        self._reward = reward
        self.said = 0
        """Steps of the last rollout about which something was said."""

    @property
    def unseen(self) -> int:
        """Captions met that the reward's table did not hold."""
        return self._reward.unseen if self._reward else 0

    @property
    def rewarded(self) -> bool:
        """Whether there is a learned part, for which it must be seen what happened."""
        return self._reward is not None

    def mix_into(self, rollout: Rollout) -> dict[str, float | None]:
        """Write `rollout.reward`; return what the curve keeps of its learned part."""
        if self._reward is None:
            rollout.reward[:] = self._shaping.extrinsic * rollout.extrinsic
            return {"raw_reward": None, "shaped_reward": None, "share_paid": None}
        transitions = rollout.transitions
        flat_ids = self._captioner.ids_of(transitions, rollout.valid.reshape(-1))
        ids = flat_ids.reshape(rollout.valid.shape)
        counts = self._counts.update(ids, rollout.valid, rollout.terminated | rollout.truncated)
        raw = self._reward(transitions, flat_ids, self._captioner.texts).reshape(ids.shape)
        shaped = shape(raw, counts, threshold=self._reward.threshold, beta=self._shaping.beta) * rollout.valid
        rollout.reward[:] = self._shaping.extrinsic * rollout.extrinsic + self._shaping.intrinsic * shaped
        said = rollout.valid & (ids >= 0)
        self.said = int(said.sum())
        steps = int(rollout.valid.sum())  # none where all environments only reset
        return {
            "raw_reward": float(raw[said].mean()) if said.any() else None,
            "shaped_reward": float(shaped.sum()) / steps if steps else None,
            "share_paid": float((shaped != 0).sum()) / steps if steps else None,
        }
