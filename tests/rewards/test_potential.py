"""Potential-based shaping: F by hand, and in a finite world that no optimal policy changes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laurel.data.trajectories import read_episodes
from laurel.envs import adapter_for
from laurel.params import parse_params
from laurel.params.algorithms import PPOParams
from laurel.params.rewards import METHODS, TrialParams, TrialShapingParams
from laurel.params.training import ShapingParams
from laurel.rewards.base import UNPAID
from laurel.rewards.functions import CaptionReward
from laurel.rewards.method import RewardContext
from laurel.rewards.paying import RewardCalculator
from laurel.rewards.shaping import Bonus, Ends, Potential
from laurel.rewards.stored import StoredRewards
from laurel.training.trial import ShortTraining
from minimal_params import MINIMAL
from tiny_project import UNTRACKED, Project

GAMMA = 0.9


def paid(
    shaping: Potential, raw: list[float], *, terminated: int | None = None, truncated: int | None = None
) -> list[float]:
    column = np.array(raw, dtype=np.float32)[:, None]
    ends = [np.arange(len(raw))[:, None] == at for at in (terminated, truncated)]
    return shaping(column, 0.5, np.zeros(column.shape, int), Ends(np.ones(column.shape, bool), *ends))[:, 0].tolist()


def test_the_change_of_the_potential_by_hand() -> None:
    shaping = Potential(GAMMA, 1)
    # potentials behind the steps: 1, 1 (nothing said), 0 (below the threshold), 3
    assert paid(shaping, [1.5, float(UNPAID), 0.2, 3.5]) == pytest.approx([0.9, 0.9 - 1, -1, 2.7])
    assert paid(shaping, [1.5, 2.5], terminated=0) == pytest.approx([-3, 0.9 * 2]), "goes on, and ends at 0"
    assert paid(shaping, [1.5, 1.5], truncated=0) == pytest.approx([0.9 - 2, 0.9]), "a cut is no end of the task"


def test_a_terminated_episode_has_a_zero_sum() -> None:
    raw = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    valid, ended = np.ones(raw.shape, bool), np.zeros(raw.shape, bool)
    ended[-1] = True
    shaped = Potential(GAMMA, 4)(raw, -0.3, np.zeros(raw.shape, int), Ends(valid, ended, ~valid))
    discounts = GAMMA ** np.arange(30)[:, None]
    np.testing.assert_allclose((discounts * shaped).sum(axis=0), 0, atol=1e-5)
    assert np.abs(shaped).max() > 0.5


@pytest.mark.parametrize("seed", range(5))
def test_no_optimal_policy_of_a_finite_world_changes(seed: int) -> None:
    """Every policy of a random world is valued exactly, with what the agent is paid for each of its steps."""
    rng = np.random.default_rng(seed)
    n, n_actions, end = 4, 3, 4  # four states and the end of the task
    goes = rng.dirichlet(np.ones(n + 1), size=(n, n_actions))
    rewards = rng.normal(size=(n, n_actions))
    said = rng.normal(scale=3, size=n + 1).astype(np.float32)  # by what is reached

    def shaped(shaping: Potential | Bonus, state: int, after: int) -> float:
        raw = np.array([[said[state]], [said[after]]], dtype=np.float32)
        ends = np.array([[False], [after == end]])
        there = np.ones((2, 1), bool)
        return float(shaping(raw, 0.0, np.array([[state], [after]]), Ends(there, ends, ~there))[1, 0])

    def values(form: type[Potential] | type[Bonus] | None) -> np.ndarray:
        extra = np.zeros((n, n + 1))
        if form is not None:
            extra = np.array([[shaped(form(GAMMA, 1), s, after) for after in range(n + 1)] for s in range(n)])
        expected = rewards + (goes * extra[:, None]).sum(axis=2)
        found = []
        for policy in product(range(n_actions), repeat=n):
            rows = np.arange(n), np.array(policy)
            found.append(np.linalg.solve(np.eye(n) - GAMMA * goes[rows][:, :n], expected[rows]))
        return np.array(found)

    plain, with_potential = values(None), values(Potential)
    potential = np.maximum(said[:n], 0)
    np.testing.assert_allclose(with_potential, plain - potential, atol=1e-5)
    assert np.argmax(with_potential.sum(axis=1)) == np.argmax(plain.sum(axis=1))


def test_a_terminated_episode_has_a_zero_sum_with_every_method(tmp_path: Path) -> None:
    """So returns of all policies stay, whatever a method goes by: captions, what it met before, or what it learns."""
    others = {"llm_hints", "online", "stored", "outcome"}  # ask while they pay, pay as another does, or at ends alone
    kinds = {*METHODS.builtin()} - others
    changes = {
        **UNTRACKED,
        "env": {"id": "CartPole-v1"},
        "collect.steps": 600,
        "annotate.annotator": "scripted",
        "rewards": {"preference": {"max_epochs": 5}, "code": {"rounds": 1, "samples": 4, "select": "agreement"}},
        "arms": {kind: {"reward": kind, "shaping": {"form": "potential"}} for kind in kinds},
    }
    project = Project.create(tmp_path / "p", changes)
    project.run("collect", "caption", "annotate", "train-reward")
    steps, episode = read_episodes(project.output("collect"), 600)
    begins = np.flatnonzero(np.diff(episode, prepend=-1))
    discounts = GAMMA ** (np.arange(len(steps)) - begins[episode])
    adapter, stored = adapter_for(project.params.env), StoredRewards.read(project.output("train-reward"))
    column = (len(steps), 1)
    last = np.append(np.diff(episode) > 0, True)  # collection cuts some without saying so
    ends = steps.terminated.reshape(column), (last & ~steps.terminated).reshape(column)
    for kind in kinds:
        shaping = ShapingParams(form="potential", gamma=GAMMA)
        master = RewardCalculator(adapter, stored.load(kind, 0, adapter, 0.1), shaping, 1)
        paid = master.pay(steps, np.ones(column, bool), *ends).shaped[:, 0]
        assert np.abs(paid).max() > 1e-3, kind
        totals = np.bincount(episode, discounts * paid)
        np.testing.assert_allclose(totals[episode[steps.terminated]], 0, atol=1e-4, err_msg=kind)


def test_the_discount_is_that_of_the_arms_own_agent() -> None:
    arms = {
        "plain": {"reward": "preference"},
        "potential": {"reward": "preference", "shaping": {"form": "potential"}},
        "far": {"reward": "preference", "shaping": {"form": "potential"}, "agent": {"ppo": {"gamma": 0.5}}},
    }
    params = parse_params({**MINIMAL, "arms": arms}, "params")
    forms = [params.resolved_arms[arm].shaping for arm in arms]
    assert [(shaping.form, shaping.gamma) for shaping in forms] == [
        ("bonus", None),
        ("potential", 0.99),
        ("potential", 0.5),
    ]
    assert "form" not in params.dump("shaping")["shaping"], "what was made before has the same params"


def test_the_discount_in_a_short_training_is_that_of_its_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    class TrainedError(Exception):
        pass

    def stopped(agents: Any, *_: Any) -> None:
        raise TrainedError(*(agent.task.shaping.gamma for agent in agents))

    monkeypatch.setattr("laurel.training.loop.train_together", stopped)
    trial = ShortTraining(0, RewardContext.of(parse_params(MINIMAL, "params")))
    for gamma, discount in ((None, 0.5), (0.7, 0.7)):
        shaping = TrialShapingParams(form="potential", gamma=gamma)
        with pytest.raises(TrainedError) as tried:
            trial(CaptionReward({}, 0.0, len), TrialParams(shaping=shaping, ppo=PPOParams(gamma=0.5)))  # type: ignore[arg-type]
        assert tried.value.args == (discount, discount)
