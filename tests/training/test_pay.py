"""The reward for training: mixed rewards computed by hand, and when counts are reset."""

from __future__ import annotations

import numpy as np
import pytest
from sayings import Sayings, rollout_of

from laurel.arrays import FloatArray
from laurel.params.training import ShapingParams
from laurel.rewards.base import Memoryless, Steps
from laurel.rewards.functions import CaptionReward
from laurel.training.pay import TrainingReward

TABLE = CaptionReward({"good": 2.0, "bad": -1.0, "fine": 0.5}, 0.75, lambda texts: np.zeros(len(texts), np.float32))
SHAPING = ShapingParams(beta=1.0, intrinsic=0.1, extrinsic=10.0)


def test_the_mixed_reward_by_hand() -> None:
    paying = TrainingReward(SHAPING, Sayings(), TABLE, 2)
    rollout = rollout_of(
        [[1, 1], [1, 3], [0, 1], [1, 2]],
        extrinsic=[[1, 0], [0, 0], [0, 2], [0, 0]],
        terminated=[[0, 0], [1, 0], [0, 0], [0, 0]],
        valid=[[1, 1], [1, 1], [0, 1], [1, 1]],
    )
    figures = paying.mix_into(rollout)
    # first: good, good for the second time and the end, a reset, good for the first time again
    # second: good, fine (below the threshold), good for the second time, bad
    shaped = (2 - 0.75) * np.array([[1, 1], [1 / 2, 0], [0, 1 / 2], [1, 0]])
    np.testing.assert_allclose(rollout.reward, 10 * rollout.extrinsic + 0.1 * shaped, rtol=1e-6)
    assert figures == pytest.approx(
        {
            "raw_reward": (2 + 2 + 2 + 2 + 0.5 + 2 - 1) / 7,
            "shaped_reward": 5 / 7,
            "share_paid": 5 / 7,
        }
    )
    # counts continue in the next rollout: the second environment's episode has met "good" twice
    rollout = rollout_of([[3, 1], [0, 0]], valid=[[1, 1], [1, 1]])
    figures = paying.mix_into(rollout)
    np.testing.assert_allclose(rollout.reward, 0.1 * np.array([[0, 1.25 / 3], [0, 0]]), rtol=1e-6)
    assert figures == pytest.approx({"raw_reward": 2.5 / 2, "shaped_reward": 1.25 / 3 / 4, "share_paid": 1 / 4})


def test_truncation_ends_an_episodes_counts_too() -> None:
    paying = TrainingReward(SHAPING, Sayings(), TABLE, 1)
    rollout = rollout_of([[1], [1], [1]], truncated=[[0], [1], [0]])
    paying.mix_into(rollout)
    np.testing.assert_allclose(rollout.reward[:, 0], [0.125, 0.0625, 0.125], rtol=1e-6)


class Everywhere(Memoryless):
    """Returns a value also where there is no step, as a reward of another package may."""

    threshold = 0.75

    def __init__(self, elsewhere: float) -> None:
        self.elsewhere = elsewhere

    def pay(self, steps: Steps) -> FloatArray:
        return np.where(steps.valid, 2.0, self.elsewhere).astype(np.float32)


@pytest.mark.parametrize("elsewhere", [7.0, np.nan])
@pytest.mark.parametrize(
    ("shaping", "by_hand"),
    [
        (SHAPING, [0.125, 0.125, 0, 0.125]),
        (ShapingParams(form="potential", gamma=0.5, intrinsic=0.1), [0.0625, -0.125, 0, 0.0625]),
    ],
    ids=["bonus", "potential"],
)
def test_rows_that_are_no_steps_are_not_paid(shaping: ShapingParams, by_hand: list[float], elsewhere: float) -> None:
    paying = TrainingReward(shaping, Sayings(), Everywhere(elsewhere), 1)
    rollout = rollout_of([[1], [2], [0], [1]], terminated=[[0], [1], [0], [0]], valid=[[1], [1], [0], [1]])
    figures = paying.mix_into(rollout)
    np.testing.assert_allclose(rollout.reward[:, 0], by_hand, rtol=1e-6)
    assert figures["raw_reward"] == 2.0


def test_the_learned_reward_alone() -> None:
    paying = TrainingReward(SHAPING.model_copy(update={"extrinsic": 0.0}), Sayings(), TABLE, 1)
    rollout = rollout_of([[1], [2]], extrinsic=[[5], [7]])
    paying.mix_into(rollout)
    np.testing.assert_allclose(rollout.reward[:, 0], [0.125, 0], rtol=1e-6)


def test_the_environments_reward_alone() -> None:
    paying = TrainingReward(SHAPING, Sayings(), None, 1)
    rollout = rollout_of([[1], [2]], extrinsic=[[5], [7]])
    assert paying.mix_into(rollout) == {"raw_reward": None, "shaped_reward": None, "share_paid": None}
    assert rollout.reward.tolist() == [[50], [70]]
    assert paying.unseen == 0


def test_a_rollout_of_resets_alone_has_no_figures() -> None:
    paying = TrainingReward(SHAPING, Sayings(), TABLE, 2)
    rollout = rollout_of([[1, 1]], valid=[[0, 0]])
    assert paying.mix_into(rollout) == {"raw_reward": None, "shaped_reward": None, "share_paid": None}
    assert not rollout.reward.any()


def test_a_rollout_without_scored_captions() -> None:
    paying = TrainingReward(SHAPING, Sayings(), TABLE, 2)
    rollout = rollout_of([[0, 0]], extrinsic=[[1, 0]])
    assert paying.mix_into(rollout) == {"raw_reward": None, "shaped_reward": 0.0, "share_paid": 0.0}
    assert rollout.reward.tolist() == [[10, 0]], "and not minus infinity"
