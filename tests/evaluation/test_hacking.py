"""A reward that pays for what does not lead to the goal is found with what earned it; a right one raises no alarm."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from laurel.agents.actors.random import UniformPolicy
from laurel.arrays import FloatArray
from laurel.data.usage import UsageNote, of_all
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.evaluation import play
from laurel.evaluation.hacking import SHOWN, Earner, earners, hacked, misled, periods
from laurel.evaluation.play import Asking
from laurel.evaluation.rollout import LearnedReward
from laurel.params import EnvParams
from laurel.params.algorithms import PPOParams
from laurel.params.resolved_arms import Arm
from laurel.params.training import AgentParams, ShapingParams
from laurel.rewards.base import UNPAID, Steps
from laurel.rewards.paying import Pay
from laurel.stages import reward_warnings
from laurel.stages.reward_warnings import LOOKED_AT, SHOWN_EPISODES, hacked_arms, misleading_sums
from laurel.training.credit import CREDIT, Credit
from laurel.training.curve import read_rows
from laurel.training.loop import train
from laurel.training.task import Task

N = 60
RISING, FALLING = np.linspace(0, 1, N), np.linspace(1, 0, N)
PEAK = np.minimum(1, np.concatenate([np.linspace(0, 1, N // 2), np.linspace(1, 0.3, N // 2)]))


def curve(paid: Any, success: Any, seed: int = 0, noise: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    known = np.clip(np.asarray(success) + noise * rng.normal(size=N), 0, 1)
    content = {"arm": "a", "seed": seed, "env_steps": np.arange(1, N + 1) * 100, "success_rate": known}
    return pd.DataFrame({**content, "return_mean": known, "shaped_reward": paid / 50.0, "length_mean": 50.0})


def flagged(*curves: pd.DataFrame) -> list[int]:
    return [period.seed for period in periods(pd.concat(curves), 0.0, 1.0)[1]]


def test_pay_that_rises_while_success_falls_is_found_with_its_period() -> None:
    measure, (found,) = periods(curve(RISING, PEAK, 3), 0.0, 1.0)
    assert (measure, found.seed) == ("success", 3)
    assert 3000 <= found.start <= 3600 < found.end == 6000
    assert found.paid[1] > found.paid[0]
    assert found.true == pytest.approx((0.95, 0.36), abs=0.06)


@pytest.mark.parametrize(
    ("paid", "success"),
    [
        (RISING, RISING),
        (PEAK, PEAK),
        (FALLING, RISING),
        (FALLING, FALLING),
        (RISING, np.full(N, 0.5)),
        (np.ones(N), PEAK),
        (RISING, np.where(np.arange(N) // 10 == 3, 0.2, RISING)),
    ],
    ids=["right", "collapse of both", "shorter episodes", "bad luck", "no effect", "constant pay", "came back"],
)
def test_no_alarm_without_a_hack(paid: Any, success: Any) -> None:
    for seed in range(5):
        assert flagged(curve(paid, success, seed, noise=0.05)) == []


def test_constant_pay_does_not_rise_by_the_rounding_of_its_sums() -> None:
    counts = np.random.default_rng(0).integers(480, 512, N)
    sums = np.array([float(np.full(n, 0.3, np.float32).sum()) / n for n in counts.tolist()])
    assert np.ptp(sums) > 0
    assert flagged(curve(50 * sums, PEAK)) == []


def test_a_training_of_less_than_ten_updates_is_too_short() -> None:
    later = np.clip(np.linspace(1, 0, N), 0.4, 1)
    assert flagged(curve(RISING, later)[::6]) == [0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy's of tenths without an update
        assert flagged(curve(RISING, later)[::7]) == []


def test_a_small_part_of_the_range_of_pay_is_no_rise() -> None:
    paid = np.where(np.arange(N) < N // 10, 0.0, 1 + 0.05 * RISING)
    success = np.where(np.arange(N) < N // 10, 0.1, FALLING)
    assert flagged(curve(paid, success)) == []
    assert flagged(curve(np.where(paid > 0, 1 + 0.5 * RISING, 0.0), success)) == [0]


def test_pay_is_of_an_episode_and_not_of_a_step() -> None:
    longer = curve(np.full(N, 50.0), PEAK).assign(length_mean=50 + 50 * RISING)
    assert flagged(longer) == [0], "each step is paid as before, but there are more of them"


def test_a_language_models_fall_counts_even_if_its_return_recovers() -> None:
    back = np.maximum(RISING, 0.5)
    back[N // 3 : N // 2] = 0.1
    known = curve(RISING, back).assign(success_rate=np.nan, reference_kl=10 * RISING)
    ((period,), none) = (periods(curves, 0.0, 1.0)[1] for curves in (known, known.drop(columns="reference_kl")))
    assert none == []
    assert period.start < 100 * N // 3 < period.end <= 100 * N // 2
    assert periods(known.assign(reference_kl=np.nan), 0.0, 1.0)[1] == [], "the column is of another arm's agents"
    short = known.assign(return_mean=np.where(np.arange(N) // 6 == 3, 0.1, 0.5))
    assert periods(short, 0.0, 1.0)[1] == [], "a single tenth may be bad luck"


def test_an_arm_is_flagged_if_a_quarter_of_its_agents_are(tmp_path: Path) -> None:
    bad, good = [curve(RISING, PEAK, 0)], [curve(RISING, RISING, seed) for seed in range(1, 5)]
    assert hacked(pd.concat(bad + good), ["a"], tmp_path, (0.0, 1.0)) == []
    (found,) = hacked(pd.concat(bad + good[:3]), ["a", "b"], tmp_path, (0.0, 1.0))
    assert (found.arm, found.agents, [period.seed for period in found.periods]) == ("a", 4, [0])
    assert found.earners == []


def test_the_return_counts_where_success_has_no_meaning() -> None:
    unknown = curve(RISING, PEAK).assign(success_rate=np.nan)
    assert periods(unknown, 0.0, 1.0)[0] == "return"
    assert len(periods(unknown, 0.0, 1.0)[1]) == 1
    assert periods(unknown, 0.0, 100.0)[1] == [], "a small part of the range"
    below = unknown.assign(return_mean=unknown["return_mean"] - 1)
    assert len(periods(below, -1.0, 0.0)[1]) == 1
    assert periods(below, -100.0, 0.0)[1] == []


def test_credit_is_the_share_of_pay_by_caption_and_third(tmp_path: Path) -> None:
    credit = Credit()
    valid = np.array([[True, True, True, False, True]])
    for done, shaped in ((0.0, [3.0, 1.0, 0.0, 9.0]), (0.5, [0.0, 0.0, 0.0, 0.0]), (0.9, [1.0, 1.0, 8.0, 9.0])):
        pay = np.array([[*shaped, -5.0]], dtype=np.float32)
        credit.add(Pay(np.array([[0, 1, 1, 0, 2]]), pay, pay, valid), valid, done)
    pq.write_table(credit.table(["walk", "dance", "bump"]), tmp_path / CREDIT)
    costs = Earner("bump", (0.0, None, 0.0))
    assert earners([tmp_path]) == [Earner("dance", (0.25, None, 0.9)), Earner("walk", (0.75, None, 0.1)), costs]
    assert earners([tmp_path / "none"]) == []


def test_the_captions_that_are_not_listed_are_counted_with_their_share(tmp_path: Path) -> None:
    credit, shaped = Credit(), np.arange(SHOWN + 3, dtype=np.float32)[None]
    valid = np.ones(shaped.shape, dtype=np.bool_)
    credit.add(Pay(np.arange(SHOWN + 3)[None], shaped, shaped, valid), valid, 0.9)
    pq.write_table(credit.table([f"caption {number}" for number in range(SHOWN + 3)]), tmp_path / CREDIT)
    *listed, rest = earners([tmp_path])
    assert [earner.caption for earner in listed] == [f"caption {number}" for number in range(SHOWN + 2, 2, -1)]
    assert rest == Earner("(3 other captions)", (None, None, pytest.approx((0 + 1 + 2) / 55)))
    assert sum(earner.shares[2] or 0.0 for earner in (*listed, rest)) == pytest.approx(1)


def test_credit_of_several_agents_is_added_up(tmp_path: Path) -> None:
    """Also if one of them never met a caption."""
    for agent, texts, shaped in (("seed-0", ["walk", "dance"], [3.0, 1.0]), ("seed-1", ["dance"], [2.0])):
        credit, pay = Credit(), np.array([shaped], dtype=np.float32)
        valid = np.ones(pay.shape, dtype=np.bool_)
        credit.add(Pay(np.arange(len(texts))[None], pay, pay, valid), valid, 1.0)
        (tmp_path / "a" / agent).mkdir(parents=True)
        pq.write_table(credit.table(texts), tmp_path / "a" / agent / CREDIT)
    found = {
        earner.caption: earner.shares[2] for earner in earners([tmp_path / "a" / "seed-0", tmp_path / "a" / "seed-1"])
    }
    assert found == {"walk": 0.5, "dance": 0.5}
    (arm,) = hacked(pd.concat([curve(RISING, PEAK, seed) for seed in (0, 1)]), ["a"], tmp_path, (0.0, 1.0))
    assert {earner.caption: earner.shares[2] for earner in arm.earners} == found


class PaysForBumping:
    """A planted hack: only bumping into a wall is rewarded."""

    threshold, unseen = 0.0, 0

    def begin(self, n_envs: int) -> None:
        """Do nothing."""

    def pay(self, steps: Steps) -> FloatArray:
        bumps = np.array([1.0 if "bump" in text else UNPAID for text in steps.texts], dtype=np.float32)
        return bumps[steps.captions]


@pytest.fixture(scope="module")
def empty() -> EnvAdapter:
    return adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0"))


def test_pay_is_of_the_third_of_the_training_in_which_it_was_earned() -> None:
    credit, valid = Credit(), np.ones((1, 1), dtype=np.bool_)
    pay = Pay(np.zeros((1, 1), np.int64), np.ones((1, 1), np.float32), np.ones((1, 1), np.float32), valid)
    for done in (0.0, 0.3, 0.4, 0.6, 0.7, 1.0):
        credit.add(pay, valid, done)
    assert credit.table(["a"])["steps"].to_pylist() == [2, 2, 2]


def test_a_planted_hack_is_found_in_a_training(empty: EnvAdapter, tmp_path: Path) -> None:
    ppo = PPOParams(n_envs=16, n_steps=16, hidden=(16,), learning_rate=5e-3, batch_size=256)
    shaping = ShapingParams(beta=0.0, extrinsic=0.0, intrinsic=1.0)
    task = Task("a", 0, 0, EnvParams(id=empty.env_id), ppo, shaping, 10_000, 10_000)
    train(task, empty, PaysForBumping(), tmp_path / "a" / "seed-0", lambda _: None)
    rows = pd.DataFrame(read_rows(tmp_path / "a" / "seed-0")).assign(arm="a", seed=0)
    (found,) = hacked(rows, ["a"], tmp_path, (0.0, 1.0))
    assert found.measure == "success"
    assert "bump" in found.earners[0].caption
    assert found.earners[0].shares[2] == 1.0


# -- sums that mislead --------------------------------------------------------------------------------------------
def episodes(arm: str, *rows: tuple[float, bool | None, float]) -> pd.DataFrame:
    returned, success, shaped = zip(*rows, strict=True)
    return pd.DataFrame({"arm": arm, "return": returned, "success": success, "shaped_reward": shaped})


def arm_of_shaping(algorithm: str = "ppo", **shaping: Any) -> Arm:
    agent = AgentParams(seeds=(0,), steps=1, algorithm=algorithm)
    return Arm("a", "method", {"preference": 1.0}, ShapingParams(**shaping), agent, None, {})


def test_a_warning_about_sums_says_whose_reward_scored_the_episodes() -> None:
    """Agents are paid the reward of their own label set, but one scores them all, so that arms can be compared."""
    played, arm = episodes("a", (1.0, True, 10.0), (0.0, False, 50.0), (0.0, False, 50.0)), arm_of_shaping()
    known = {"a": arm}, played.assign(seed=0), curve(RISING, RISING)
    (plain,), (said,) = (misleading_sums(arm, *known, whose) for whose in ("", "label set 1"))
    scored = "All episodes are scored by the reward of label set 1, also those of agents that were paid another one."
    assert said == f"{plain} {scored}"


@pytest.mark.parametrize("known", [True, False])
def test_failure_rewarded_above_success_is_reported_with_a_fix(known: bool) -> None:
    """As in FrozenLake8x8: walking over sixty squares is paid 5, the goal 1."""
    done, failing = (1.0, True if known else None, 10.0), (0.0, False if known else None, 50.0)
    played = pd.concat([episodes("extrinsic", done, done), episodes("a", failing, failing, done)])
    (said,) = misled(played, [arm_of_shaping()], (0.0, 1.0))
    assert re.match(r"a: 2 of 3 episodes do not .*, and earn 5\.00 on average; .* would earn 2\.00\.", said)
    assert "Set shaping.intrinsic below 0.025 (it is 0.1), or shaping.form: potential." in said
    assert misled(played, [arm_of_shaping(intrinsic=0.02)], (0.0, 1.0)) == []
    (said,) = misled(played, [arm_of_shaping(extrinsic=0.0)], (0.0, 1.0))
    assert "would earn 1.00." in said, "the environment's reward is not paid"
    assert said.endswith("misleads. Set agent.ppo.episodic: false, or give shaping.extrinsic a weight."), (
        "no weight of the bonus fixes that, and a potential alone would teach nothing"
    )
    (said,) = misled(played, [arm_of_shaping("dqn", extrinsic=0.0)], (0.0, 1.0))
    assert said.endswith("misleads. Give shaping.extrinsic a weight."), "only PPO has returns that go on after an end"
    for rewarded in (episodes("a", done, done, failing), episodes("a", done, failing)):
        assert misled(rewarded, [arm_of_shaping()], (0.0, 1.0)) == [], "its agents do the task all the same"
    assert misled(episodes("a", failing), [arm_of_shaping()], (0.0, 0.0)) == [], (
        "no episode did the task: its worth is not known"
    )


@pytest.mark.parametrize(("shaped", "below"), [(20.04, "0.099"), (35.0, "0.04"), (60.0, "0.02"), (10_010.0, "0.0001")])
def test_the_weight_that_is_advised_keeps_failure_below_success(shaped: float, below: str) -> None:
    """The bound of the first is 0.0996: "below 0.1 (it is 0.1)" would be no advice."""
    played = episodes("a", (1.0, True, 10.0), *[(0.0, False, shaped)] * 2)
    (said,) = misled(played, [arm_of_shaping()], (0.0, 1.0))
    assert f"Set shaping.intrinsic below {below} (it is 0.1)" in said
    assert misled(played, [arm_of_shaping(intrinsic=0.999 * float(below))], (0.0, 1.0)) == []


def test_a_potential_is_not_blamed_for_sums_that_cannot_be_earned(tmp_path: Path) -> None:
    done, failing = (1.0, True, 10.0), (0.0, False, 50.0)
    played = pd.concat([episodes("extrinsic", done, done), episodes("a", failing, failing, done)])
    assert misled(played, [arm_of_shaping(form="potential")], (0.0, 1.0)) == []
    rising, nothing = curve(RISING, PEAK), cast(Any, None)
    assert hacked(rising, ["a"], tmp_path, (0.0, 1.0)), "as a bonus it would be flagged"
    results = played.assign(seed=0)
    assert hacked_arms(nothing, {"a": arm_of_shaping(form="potential")}, tmp_path, rising, results, nothing) == []


class AskedReward:
    """Asks a language model once per episode."""

    threshold, unseen, begun = 0.0, 0, 0

    @property
    def account(self) -> dict[str, Any]:
        return {"asker": f"reward {id(self)}", "calls": 1, "cost_usd": 0.5}

    def begin(self, n_envs: int) -> None:
        """Keep nothing."""

    def pay(self, steps: Steps) -> FloatArray:
        return np.zeros(steps.valid.shape, dtype=np.float32)


class AskedActor(UniformPolicy):
    account = {"asker": "actor", "calls": 20, "cost_usd": 1.0}  # noqa: RUF012


def test_what_is_asked_for_the_episodes_to_look_at_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's account is of all its episodes; each of them has a reward of its own."""
    env = EnvParams(id="FrozenLake-v1")
    adapter = adapter_for(env)
    monkeypatch.setattr(reward_warnings, "load_actor", lambda *_, **__: AskedActor(adapter.action_space))
    kept: list[AskedReward] = []  # so that no two have the same id

    def watching(*_: Any) -> LearnedReward:
        kept.append(AskedReward())
        return LearnedReward(kept[-1], ShapingParams())

    monkeypatch.setattr(reward_warnings, "watching", watching)
    context = SimpleNamespace(env=env, adapter=adapter, annotate=None)
    evaluation: Any = SimpleNamespace(context=context, inputs=None, evaluate=SimpleNamespace(greedy=False))
    played = pd.concat([episodes("a", (1.0, True, 10.0), (0.0, False, 50.0))]).assign(seed=0)
    rising = curve(RISING, PEAK)
    note = UsageNote(tmp_path / "note.json")
    with Asking(note) as asking:
        found = hacked_arms(evaluation, {"a": arm_of_shaping()}, tmp_path, rising, played, asking)
    assert [len(arm.episodes) for arm in found] == [SHOWN_EPISODES]
    assert of_all([note.read()]) == {"calls": 20 + LOOKED_AT, "cost_usd": 1.0 + 0.5 * LOOKED_AT}


def test_the_episodes_to_look_at_are_paid_the_agents_own_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the first seed's: each seed may have another label set, or a random reward of its own."""
    env = EnvParams(id="FrozenLake-v1")
    adapter = adapter_for(env)
    monkeypatch.setattr(reward_warnings, "load_actor", lambda *_, **__: UniformPolicy(adapter.action_space))
    asked: list[int] = []

    def reward_of(arm: Arm, seed: int, *_: Any) -> AskedReward:
        asked.append(seed)
        return AskedReward()

    monkeypatch.setattr(play, "reward_of", reward_of)
    evaluation: Any = SimpleNamespace(
        context=SimpleNamespace(env=env, adapter=adapter, annotate=None),
        inputs=None,
        evaluate=SimpleNamespace(greedy=False),
    )
    curves = pd.concat([curve(RISING, RISING, 0), curve(RISING, PEAK, 1)])
    played = episodes("a", (1.0, True, 10.0), (0.0, False, 50.0)).assign(seed=[0, 1])
    asking = Asking(UsageNote(tmp_path / "note.json"))
    (found,) = hacked_arms(evaluation, {"a": arm_of_shaping()}, tmp_path, curves, played, asking)
    assert [period.seed for period in found.periods] == [1]
    assert asked == [1] * LOOKED_AT


def test_negative_returns_are_compared_with_the_midpoint_of_the_range() -> None:
    played = pd.concat([episodes("extrinsic", (-100.0, None, 1.0)), episodes("a", *[(-200.0, None, 9000.0)] * 3)])
    (said,) = misled(played, [arm_of_shaping()], (-200.0, -100.0))
    assert "a: 3 of 3 episodes do not return more than -150.0, half-way between the lowest and the highest" in said
