"""The reward that an agent is trained on: a weighted sum of the environment's reward and its arm's shaped reward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from laurel.agents.learner import Rollout
from laurel.envs.base import EnvAdapter
from laurel.params.training import ShapingParams
from laurel.rewards.base import LearningReward, OutcomesReward, Reward
from laurel.rewards.functions import CaptionReward, ObservationReward, accounts_of, parts_of, when_answered
from laurel.rewards.paying import RewardCalculator
from laurel.training.credit import CREDIT, SCHEMA, Credit


class TrainingReward:
    """Computes the rewards of successive rollouts; counts how often each caption occurred in each episode."""

    def __init__(self, shaping: ShapingParams, adapter: EnvAdapter, reward: Reward | None, n_envs: int) -> None:
        self._shaping, self._adapter = shaping, adapter
        self._reward = reward
        self._calculator = None if reward is None else RewardCalculator(adapter, reward, shaping, n_envs)
        self.learned = [part for part in parts_of(reward) if isinstance(part, LearningReward)]
        """The parts of the reward that are learned during training."""
        self._credit = Credit()
        self.scored = 0
        """Steps of the last rollout that had a raw reward."""

    @property
    def credit(self) -> pa.Table | None:
        """The reward that each caption has earned so far; None without a learned reward."""
        return self._credit.table(self._calculator.texts) if self._calculator else None

    @property
    def needs_no_history(self) -> bool:
        """Whether the reward of a step depends only on its episode."""
        return all(isinstance(part, CaptionReward | ObservationReward) for part in parts_of(self._reward))

    def restore(self, agent: Path) -> None:
        """Restore the rewards earned by captions up to an agent's checkpoint, whose steps are not replayed."""
        if self._calculator is not None:
            rows = pq.read_table(agent / CREDIT, schema=SCHEMA).to_pylist()
            self._calculator.restore(list(dict.fromkeys(row["caption"] for row in rows if row["caption"])))
            self._credit.restore(rows, {text: place for place, text in enumerate(self._calculator.texts)})

    @property
    def unseen(self) -> int:
        """Number of captions met that the reward's table lacked."""
        return self._reward.unseen if self._reward else 0

    @property
    def unpaid(self) -> int:
        """Number of distinct outcomes met that have no answer, at most of one part of the reward."""
        return max((part.unpaid for part in parts_of(self._reward) if isinstance(part, OutcomesReward)), default=0)

    @property
    def accounts(self) -> dict[str, dict[str, Any]]:
        """Cost of computing the reward, if it asks a language model about steps."""
        return {
            f"its reward{f' ({n})' if n > 1 else ''}": dict(account)
            for n, account in enumerate(accounts_of(self._reward), 1)
        }

    def when_answered(self, call: Callable[[], None]) -> None:
        """Call a function after each answer of a language model about steps."""
        when_answered(self._reward, call)

    @property
    def rewarded(self) -> bool:
        """Whether there is a learned reward, which needs captions of the steps."""
        return self._reward is not None

    def mix_into(self, rollout: Rollout, done: float = 0.0) -> dict[str, float | None]:
        """Write `rollout.reward`; return the learned part's figures for the curve.

        Args:
            done: share of the training that was over before the rollout.
        """
        if self._calculator is None:
            rollout.reward[:] = self._shaping.extrinsic * rollout.extrinsic
            return {"raw_reward": None, "shaped_reward": None, "share_paid": None}
        drawn = rollout.transitions
        taken = replace(drawn, action=self._adapter.taken(drawn.action))
        pay = self._calculator.pay(taken, rollout.valid, rollout.terminated, rollout.truncated)
        self._credit.add(pay, rollout.valid, done)
        rollout.reward[:] = self._calculator.mixed(rollout.extrinsic, pay.shaped)
        self.scored = int(pay.scored.sum())
        steps = int(rollout.valid.sum())  # none if all environments only reset
        return {
            "raw_reward": float(pay.raw[pay.scored].mean()) if self.scored else None,
            "shaped_reward": float(pay.shaped.sum()) / steps if steps else None,
            "share_paid": float((pay.shaped != 0).sum()) / steps if steps else None,
        }
