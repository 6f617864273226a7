"""Random network distillation: familiar observations get less reward, and a restarted run gives the same rewards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sayings import Sayings, rollout_of

from laurel.arrays import Array
from laurel.params.rewards import RewardParams
from laurel.params.training import ShapingParams
from laurel.rewards.base import UNPAID, Steps
from laurel.rewards.distillation import Distillation, Moments
from laurel.rewards.methods.novelty import METHOD as NOVELTY
from laurel.training.pay import TrainingReward

N_STATES = 5


def one_hot(packed: Array) -> np.ndarray:
    return np.eye(N_STATES, dtype=np.float32)[packed[:, 0].astype(int)]


def steps_of(states: list[list[int]], valid: list[list[int]] | None = None) -> Steps:
    rollout = rollout_of(states, valid=valid)
    ends = rollout.terminated, rollout.truncated
    rollout.observation[1:, :, 0] = states
    return Steps(rollout.transitions, np.array(states), [], rollout.valid, *ends)


def made(**changes: float) -> Distillation:
    settings = {"seed": 0, "width": 16, "learning_rate": 0.01, "batch_size": 4, "gamma": 0.9, **changes}
    bonus = Distillation(one_hot, **settings)  # type: ignore[arg-type]
    bonus.begin(2)
    return bonus


def test_familiar_observations_get_less_reward_than_novel_ones() -> None:
    bonus = made()
    for _ in range(60):
        bonus.pay(steps_of([[0, 1], [2, 3]]))
    paid = bonus.pay(steps_of([[0, 4]]))
    assert 0 < 3 * paid[0, 0] < paid[0, 1]


def test_resets_are_no_steps_of_the_sums_that_normalise() -> None:
    """So the same steps are paid the same, however many resets are between them."""
    rows = [[0, 1], [2, 3], [4, 0], [1, 2]]
    with_resets = [row for each in rows for row in (each, [0, 0])]
    valid = [[1, 1], [0, 0]] * len(rows)
    plain, between = made(), made()
    for _ in range(5):
        expected = plain.pay(steps_of(rows))
        paid = between.pay(steps_of(with_resets, valid))
    assert np.array_equal(paid[::2], expected)


def test_what_is_met_often_is_learned() -> None:
    """Even without learning, a rare feature is far from the mean of all, and its error is larger."""
    bonus, untaught = made(), made(learning_rate=1e-12)
    for _ in range(60):
        bonus.pay(steps_of([[0, 1], [2, 3]]))
        untaught.pay(steps_of([[0, 1], [2, 3]]))
    after, before = (reward.pay(steps_of([[0, 4]]))[0] for reward in (bonus, untaught))
    assert 10 * after[0] / after[1] < before[0] / before[1]


def test_other_random_numbers_of_the_process_are_as_without_it() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        random = torch.get_rng_state()
        made().pay(steps_of([[0, 1], [2, 3]]))
        assert torch.equal(torch.get_rng_state(), random)


def test_the_discounted_sums_of_bonuses_have_a_spread_of_one() -> None:
    """Over all steps; one that only resets an environment is none of its sum."""
    states, valid = [[0, 1], [2, 3], [4, 0], [1, 1]], [[1, 1], [1, 0], [1, 1], [0, 1]]
    paid = made(gamma=0.7).pay(steps_of(states, valid))
    sums = []
    for env in range(2):
        total = 0.0
        for pay in paid[np.array(valid, dtype=np.bool_)[:, env], env]:
            total = 0.7 * total + pay
            sums.append(total)
    assert np.std(sums) == pytest.approx(1, rel=1e-5)


def test_features_are_scaled_by_all_that_were_met() -> None:
    bonus = made()
    for states in ([[0, 0]], [[1, 2]]):
        bonus.pay(steps_of(states))
    assert bonus._seen.mean == pytest.approx([0.5, 0.25, 0.25, 0, 0])


def test_a_rare_feature_is_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = []

    class Seen(torch.nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            largest.append(float(rows.max()))
            return super().forward(rows)

    monkeypatch.setattr("laurel.rewards.distillation._network", Seen)
    made().pay(steps_of([[0, 0]] * 100 + [[0, 4]]))
    assert max(largest) == 5.0, "instead of 14 standard deviations"


def test_the_first_step_of_one_environment_gets_no_outsized_reward() -> None:
    """As with `RewardWrapper`, or where all environments begin alike: the sums have no spread yet."""
    for n_envs in (1, 3):
        bonus = made()
        bonus.begin(n_envs)
        paid = np.concatenate([bonus.pay(steps_of([[state] * n_envs])) for state in (0, 1, 2, 3, 0, 1)])
        assert np.isfinite(paid).all()
        assert paid[0] == pytest.approx(1, abs=0.01)
        assert paid.max() < 10


def test_it_starts_over_with_the_same_rewards() -> None:
    bonus, states = made(), [[0, 1], [2, 3], [4, 0]]
    first = [bonus.pay(steps_of(states)) for _ in range(3)]
    assert not np.allclose(first[0], first[2])
    bonus.begin(2)
    again = [bonus.pay(steps_of(states)) for _ in range(3)]
    assert np.array_equal(first, again)
    assert not np.allclose(made(seed=1).pay(steps_of(states)), first[0])


def test_resets_get_no_reward_and_are_not_learned_from() -> None:
    bonus, other = made(), made()
    paid = bonus.pay(steps_of([[0, 1], [4, 3]], valid=[[1, 1], [0, 1]]))
    assert paid[1, 0] == UNPAID
    assert np.array_equal(paid, other.pay(steps_of([[0, 1], [2, 3]], valid=[[1, 1], [0, 1]])))
    assert (made().pay(steps_of([[0, 1]], valid=[[0, 0]])) == UNPAID).all()


@given(st.lists(st.lists(st.floats(-100, 100), min_size=2, max_size=2), min_size=1, max_size=20), st.integers(1, 19))
def test_moments_are_those_of_all_rows(rows: list[list[float]], cut: int) -> None:
    moments, whole = Moments(), np.array(rows)
    for part in (whole[:cut], whole[cut:]):
        if len(part):
            moments.update(part)
    np.testing.assert_allclose(moments.mean, whole.mean(axis=0), atol=1e-8)
    np.testing.assert_allclose(moments.variance, whole.var(axis=0), atol=1e-6)


def test_novelty_is_the_count_bonus_alone(tmp_path) -> None:  # type: ignore[no-untyped-def]
    adapter = Sayings()
    reward = NOVELTY(RewardParams(kind="novelty")).load(tmp_path, adapter, 0.5)
    paying = TrainingReward(ShapingParams(beta=2.0, intrinsic=1.0), adapter, reward, 1)
    rollout = rollout_of([[1], [2], [1], [1]], truncated=[[0], [0], [1], [0]])
    paying.mix_into(rollout)
    np.testing.assert_allclose(rollout.reward[:, 0], [1, 1, 1 / 4, 1])
