"""PPO in groups: alone or together, in any chunks, on arrays or tensors, an agent learns the same."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from laurel.agents import stacked_ppo
from laurel.agents.actor import Advisor, View
from laurel.agents.algorithms import initial_policy
from laurel.agents.hints import Hints
from laurel.agents.policy import ActorCritic
from laurel.agents.ppo import PPO, OnPolicyRollout
from laurel.agents.stacked_ppo import PPOGroup, StackedPPO
from laurel.arrays import FloatArray
from laurel.envs import adapter_for
from laurel.envs.vector import VectorEnv, make_vector
from laurel.params import EnvParams
from laurel.params.algorithms import HintsParams, PPOParams
from laurel.seeding import generator

torch.set_num_threads(1)
SMALL = PPOParams(n_envs=4, n_steps=16, n_epochs=2, batch_size=24, hidden=(16, 16), max_grad_norm=0.3)
ENVS = pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CartPole-v1", "Pendulum-v1"])


def make(env_id: str, seeds: range, arrays: Any = None) -> tuple[list[StackedPPO], list[VectorEnv]]:
    env = EnvParams(id=env_id, backend="gymnasium")
    adapter = adapter_for(env)
    learners = []
    for seed in seeds:
        policy = initial_policy(adapter, SMALL, 0, seed)
        assert isinstance(policy, ActorCritic)
        learners.append(StackedPPO(policy, SMALL, generator(seed, "actions"), arrays))
    return learners, [make_vector(env, adapter, SMALL.n_envs, seed) for seed in seeds]


def train(group: Any, envs: list[VectorEnv], updates: int) -> list[list[dict[str, float]]]:
    """Train a group; return the metrics of each update."""
    rollouts = [learner.rollout(its) for learner, its in zip(group.learners, envs, strict=True)]
    observations, said = [its.reset() for its in envs], []
    for _ in range(updates):
        observations = group.collect(envs, observations, rollouts)
        said.append(group.learn(rollouts))
    return said


def everything(learner: StackedPPO) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in learner.policy.state_dict().items()} | learner.state()


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@ENVS
@pytest.mark.parametrize("chunk", [1, 10**9])
def test_agents_trained_together_equal_agents_trained_alone(
    env_id: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit: weights, moments and figures; FrozenLake's rollouts differ in how many of their rows are resets."""
    alone, envs = make(env_id, range(3))
    said = [train(PPOGroup([learner]), [its], 4) for learner, its in zip(alone, envs, strict=True)]
    monkeypatch.setattr(stacked_ppo, "CACHED_BYTES", chunk)
    together, envs = make(env_id, range(3))
    said_together = train(PPOGroup(together), envs, 4)
    for s, (alone_learner, stacked) in enumerate(zip(alone, together, strict=True)):
        assert same(everything(alone_learner), everything(stacked))
        assert [update[0] for update in said[s]] == [update[s] for update in said_together]
        assert alone_learner.rng.bit_generator.state == stacked.rng.bit_generator.state
    assert not same(everything(together[0]), everything(together[1]))


@ENVS
def test_tensors_learn_what_arrays_learn(env_id: str) -> None:
    """The lines that run on a GPU, on tensors of the CPU; there is as much to compare as floats allow."""
    with torch.no_grad():
        (by_array, envs), (by_tensor, other_envs) = (make(env_id, range(2), arrays) for arrays in (np, torch))
        groups = PPOGroup(by_array, np), PPOGroup(by_tensor, torch)
        said, other = (train(group, its, 1) for group, its in zip(groups, (envs, other_envs), strict=True))
    for array_learner, tensor_learner in zip(by_array, by_tensor, strict=True):
        assert isinstance(tensor_learner.place[0].stack.weights if tensor_learner.place else None, torch.Tensor)
        assert array_learner.rng.bit_generator.state == tensor_learner.rng.bit_generator.state
        for name, weight in everything(array_learner).items():
            torch.testing.assert_close(everything(tensor_learner)[name], weight, atol=2e-3, rtol=1e-2)
    for figures, others in zip(said[0], other[0], strict=True):
        assert others == pytest.approx(figures, abs=2e-3, rel=1e-2)


def test_non_episodic_returns_match_the_reference() -> None:
    """In a single minibatch, so that both compute its metrics before an update."""
    whole = SMALL.model_copy(update={"n_steps": 64, "n_epochs": 1, "batch_size": 10_000})
    (learner,), (envs,) = make("FrozenLake-v1", range(1))
    losses = {}
    for episodic in (True, False):
        params = whole.model_copy(update={"episodic": episodic})
        policy = copy.deepcopy(learner.policy)
        learner_alone = StackedPPO(policy, params, generator(0, "actions"))
        rollout = learner_alone.rollout(envs)
        learner_alone.collect(envs, envs.reset(), rollout)
        assert rollout.terminated[:-2].any()
        reference = PPO(copy.deepcopy(policy), params, generator(0, "actions"))
        losses[episodic] = learner_alone.learn(rollout)["value"]
        assert losses[episodic] == pytest.approx(reference.learn(rollout)["value"], rel=1e-4)
    assert losses[True] != pytest.approx(losses[False], rel=1e-2)


class Uniform(Advisor):
    """Prefers no action, and notes the squares that it is asked about."""

    def __init__(self, squares: set[float]) -> None:
        super().__init__(4)
        self._squares = squares

    def advise(self, view: View) -> FloatArray:
        self._squares.update(view.packed[:, 0].tolist())
        return np.full((len(view), self.n_actions), -np.log(self.n_actions), dtype=np.float32)


def test_no_hint_is_asked_for_where_an_episode_ended_with_the_last_rollout() -> None:
    learners, envs = make("FrozenLake-v1", range(2))
    asked, acted = set[float](), set[float]()
    for learner in learners:
        learner.hints = Hints(Uniform(asked), HintsParams())
    group, observations = PPOGroup(learners), [its.reset() for its in envs]
    begins_anew = 0
    for _ in range(20):
        rollouts = [learner.rollout(its) for learner, its in zip(learners, envs, strict=True)]
        observations = group.collect(envs, observations, rollouts)
        for rollout in rollouts:
            acted.update(rollout.observation[:-1][rollout.valid][:, 0].tolist())
            begins_anew += int((~rollout.valid[0]).sum())
    assert begins_anew
    assert asked == acted


def test_an_agent_without_data_is_unchanged() -> None:
    (learners, envs), (others, other_envs) = make("CartPole-v1", range(2)), make("CartPole-v1", range(2))
    group, reference = PPOGroup(learners), PPOGroup(others)
    for each, its in ((group, envs), (reference, other_envs)):
        train(each, its, 1)
    rollouts = [learner.rollout(its) for learner, its in zip(learners, envs, strict=True)]
    group.collect(envs, [its.reset() for its in envs], rollouts)
    rollouts[0].valid[:] = False
    for name in ("features", "value", "log_prob", "reward"):
        getattr(rollouts[0], name)[:] = np.nan
    before = everything(learners[0])
    said = group.learn(rollouts)
    assert same(everything(learners[0]), before)
    assert np.isnan(list(said[0].values())).all()
    assert np.isfinite(list(said[1].values())).all()
    assert not same(everything(learners[1]), everything(others[1]))


def test_fewer_rows_than_minibatches() -> None:
    learners, envs = make("CartPole-v1", range(2))
    group = PPOGroup(learners)
    rollouts = [learner.rollout(its) for learner, its in zip(learners, envs, strict=True)]
    group.collect(envs, [its.reset() for its in envs], rollouts)
    rollouts[0].valid[:] = False
    rollouts[0].valid[0, :2] = True
    group.learn(rollouts)
    assert [learner.state()["critic.0.bias.step"].item() for learner in learners] == [2 * 2, 2 * 3]


def test_a_learner_keeps_its_state_across_groups() -> None:
    """Also when it learns alone in between."""
    (learners, envs), (others, other_envs) = make("CartPole-v1", range(2)), make("CartPole-v1", range(2))
    train(PPOGroup(learners), envs, 3)
    train(PPOGroup(others), other_envs, 1)
    states = [everything(learner) for learner in others]
    regrouped = PPOGroup(others[::-1])
    assert [same(everything(learner), state) for learner, state in zip(others, states, strict=True)] == [True, True]
    kept = states[1]
    rollout = others[0].rollout(other_envs[0])
    others[0].collect(other_envs[0], other_envs[0].reset(), rollout)
    others[0].learn(rollout)
    assert not same(everything(others[0]), states[0])
    assert same(everything(others[1]), kept)
    assert regrouped.learners[0] is others[1]


def test_a_copy_of_a_learner_is_independent() -> None:
    (learner,), (envs,) = make("CartPole-v1", range(1))
    rollout: OnPolicyRollout = learner.rollout(envs)
    learner.collect(envs, envs.reset(), rollout)
    learner.learn(rollout)
    before, other = everything(learner), copy.deepcopy(learner)
    assert same(everything(other), before)
    other.learn(rollout)
    assert same(everything(learner), before)
    learner.learn(rollout)
    assert same(everything(learner), everything(other))


def test_checkpoints_are_those_of_the_reference() -> None:
    """So that checkpoints of either can be gone on from by the other."""
    (learner,), (envs,) = make("Pendulum-v1", range(1))
    rollout = learner.rollout(envs)
    learner.collect(envs, envs.reset(), rollout)
    reference = stacked_ppo.PPO(copy.deepcopy(learner.policy), SMALL, copy.deepcopy(learner.rng))
    for each in (learner, reference):
        each.learn(rollout)
    found, expected = learner.state(), reference.state()
    assert {name: tensor.shape for name, tensor in found.items()} == {n: t.shape for n, t in expected.items()}
    for name, moment in expected.items():
        torch.testing.assert_close(found[name], moment, atol=1e-4, rtol=1e-2)
    learner.restore(expected)
    assert same(learner.state(), {name: moment.contiguous() for name, moment in expected.items()})
