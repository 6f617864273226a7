"""What another package's algorithm leaves in a checkpoint is what it trained, or it is refused in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning import collected, probe
from probe_environments import Targets
from stopping import make_task, run

from laurel.agents.a2c import A2C
from laurel.agents.actor import View
from laurel.agents.algorithms import initial_policy
from laurel.agents.algorithms.a2c import A2CAlgorithm
from laurel.agents.checkpoint import save_policy
from laurel.agents.learner import LearnerGroup
from laurel.agents.policy import ActorCritic
from laurel.envs import adapter_for
from laurel.errors import PluginError, TrainingError
from laurel.params import EnvParams
from laurel.params.algorithms import A2CParams
from laurel.training.checkpoint import restore
from laurel.training.stored_agents import check_stored, state_of

FROZEN_LAKE = adapter_for(EnvParams(id="FrozenLake-v1"))
SETTINGS = A2CParams(n_envs=4, n_steps=8, hidden=(8,))


class Shifted(ActorCritic):
    """A policy with a part that is not a weight."""

    shift: Any = 0.0
    members = 3

    def act(self, features: Any, rng: Any, *, greedy: bool = False) -> Any:
        action, log_prob, value = super().act(features, rng, greedy=greedy)
        return (action, log_prob, value + self.shift, None)[: self.members]


@pytest.mark.parametrize(
    "found", [None, {"weight": np.zeros(2)}, {"weight": 1.0}, {1: torch.zeros(2)}, [("weight", torch.zeros(2))]]
)
def test_a_state_that_holds_no_tensors_is_named(found: Any) -> None:
    class Odd(A2C):
        def state(self) -> Any:
            return found

    learner = collected(probe(Targets, limit=5), SETTINGS)[0]
    learner.__class__ = Odd
    with pytest.raises(
        PluginError, match=r"Odd: its state returned .*, but a mapping of names to torch tensors is req"
    ):
        state_of(learner)


def test_a_state_may_hold_views_of_one_tensor(tmp_path: Path) -> None:
    class Twice(A2C):
        def state(self) -> Any:
            weight = next(self.policy.parameters())
            return {"weight": weight, "transposed": weight.T}

        def restore(self, state: Any) -> None:
            assert torch.equal(state["weight"].T, state["transposed"])

    task = make_task(settings=SETTINGS, steps=8 * 32, checkpoint_steps=32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(A2CAlgorithm, "learner_class", f"{__name__}:Twice")
        patch.setitem(globals(), "Twice", Twice)
        run(task, FROZEN_LAKE, tmp_path / "agent")
        policy = initial_policy(FROZEN_LAKE, SETTINGS, 0, 0)
        assert restore(tmp_path / "agent", Twice(policy, SETTINGS, np.random.default_rng(0))).update == task.updates


@pytest.mark.parametrize(("shift", "refused"), [(0.0, False), (0.5, True), (np.nan, True)])
def test_a_policy_that_learns_outside_its_weights_is_refused(tmp_path: Path, shift: float, refused: bool) -> None:
    policy = Shifted(2, 1, continuous=True, hidden=(8,))
    policy.shift = shift
    save_policy(tmp_path, policy)
    if refused:
        with pytest.raises(
            PluginError, match=r"Shifted: loaded from its checkpoint, it acts differently, so the agent"
        ):
            check_stored(tmp_path, policy, np.ones((4, 2), np.float32))
    else:
        check_stored(tmp_path, policy, np.ones((4, 2), np.float32))


def test_a_policy_that_returns_too_much_is_named_when_it_acts() -> None:
    learner, rollout, envs = collected(probe(Targets, limit=5), SETTINGS)
    policy, view = learner.policy, View(envs.adapter, rollout.observation[-1])
    policy.__class__, policy.members = Shifted, 4
    with pytest.raises(PluginError, match=r"Shifted: its act returned .*, but a tuple of actions, their log-prob"):
        policy.as_actor().act(view, np.random.default_rng(0))


def test_weights_that_are_nan_are_reported_though_no_loss_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(group: LearnerGroup, rollouts: Any) -> Any:
        for learner in group.learners:
            next(learner.policy.parameters()).data.fill_(np.nan)
        return [{} for _ in rollouts]

    monkeypatch.setattr(LearnerGroup, "learn", learn)
    with pytest.raises(TrainingError, match=r"preference seed 1: training diverged .*\(a weight is NaN or infinite\)"):
        run(make_task(settings=SETTINGS), FROZEN_LAKE, tmp_path / "agent")
    assert not (tmp_path / "agent").exists()


@pytest.mark.parametrize(("hidden", "said"), [(np.int64(8), "int64 is not JSON serial"), (None, "no attribute 'wide'")])
def test_a_config_that_cannot_be_stored_is_refused_before_training(
    monkeypatch: pytest.MonkeyPatch, hidden: Any, said: str
) -> None:
    class Wide(ActorCritic):
        kind = "a2c"

        def __init__(self, wide: Any = 8) -> None:
            super().__init__(4, 2, continuous=False, hidden=(8,))
            if wide is not None:
                self.wide = wide

    class Theirs(A2CAlgorithm):
        def policy(self, adapter: Any) -> Any:
            return Wide(hidden)

    monkeypatch.setattr("laurel.agents.algorithms.algorithm_of", Theirs)
    monkeypatch.setattr("laurel.agents.checkpoint.can_be_loaded", lambda policy: True)
    with pytest.raises(PluginError, match=rf"Theirs: the config of its policy, \S*Wide, cannot be stored: .*{said}"):
        initial_policy(adapter_for(EnvParams(id="CartPole-v1")), SETTINGS, 0, 0)
