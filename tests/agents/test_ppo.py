"""PPO: rollouts, and losses and updates against slow references; its plain form and the one in groups."""

from __future__ import annotations

import copy
import math
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learning import GAMMA, learned, make, probe, same, slow_gae, weights
from probe_environments import (
    Countdown,
    OneStep,
    Probe,
    RewardAtEnd,
    RewardByAction,
    RewardByBoth,
    Steady,
    Targets,
)
from torch import nn

from laurel.agents.ppo import PPO, OnPolicyRollout
from laurel.agents.stacked_ppo import StackedPPO
from laurel.params.algorithms import PPOParams

SMALL = PPOParams(
    n_envs=8,
    n_steps=16,
    n_epochs=4,
    batch_size=64,
    learning_rate=1e-2,
    gamma=GAMMA,
    gae_lambda=0.95,
    entropy_coef=0.0,
    hidden=(16,),
)


KINDS = pytest.mark.parametrize("learner", [PPO, StackedPPO])


# -- reset rows ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [RewardAtEnd, Steady])
@KINDS
def test_rewards_of_reset_steps_never_reach_training(kind: type[Probe], learner: type[PPO]) -> None:
    trained = []
    for poison in (0.0, 1e6, math.nan):
        ppo, envs = make(probe(kind, limit=3), SMALL, kind=learner)
        observation, rollout = envs.reset(), ppo.rollout(envs)
        for _ in range(3):
            observation = ppo.collect(envs, observation, rollout)
            assert not rollout.valid.all()
            rollout.reward[~rollout.valid] = poison
            ppo.learn(rollout)
        trained.append(weights(ppo))
    assert same(trained[0], trained[1])
    assert same(trained[0], trained[2])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
@KINDS
def test_learning_ignores_reset_rows(learner: type[PPO], seed: int) -> None:
    ppo, envs = make(probe(Countdown), SMALL, kind=learner)
    rollout = ppo.rollout(envs)
    ppo.collect(envs, envs.reset(), rollout)
    resets = ~rollout.valid
    assert resets.any()

    poisoned, other, rng = copy.deepcopy(rollout), copy.deepcopy(ppo), np.random.default_rng(seed)
    after_termination = np.concatenate([np.zeros_like(resets[:1]), rollout.terminated])
    poisoned.features[:-1][resets] = rng.normal(0, 100, (resets.sum(), rollout.features.shape[2]))
    poisoned.action[resets] = 7
    poisoned.log_prob[resets] = rng.normal(0, 100, resets.sum())
    poisoned.reward[resets] = rng.normal(0, 100, resets.sum())
    poisoned.extrinsic[resets] = math.nan
    poisoned.value[after_termination] = rng.normal(0, 100, after_termination.sum())

    before = weights(ppo)
    assert ppo.learn(rollout) == other.learn(poisoned)
    assert same(weights(ppo), weights(other))
    assert not same(weights(ppo), before)


@KINDS
def test_a_rollout_of_resets_alone_is_not_learned_from(learner: type[PPO]) -> None:
    params = SMALL.model_copy(update={"n_envs": 2, "n_steps": 1})
    ppo, envs = make(probe(OneStep), params, kind=learner)
    rollout = ppo.rollout(envs)
    observation = ppo.collect(envs, envs.reset(), rollout)
    ppo.learn(rollout)
    ppo.collect(envs, observation, rollout)
    assert not rollout.valid.any()
    before = weights(ppo)
    losses = ppo.learn(rollout)
    assert same(weights(ppo), before)
    assert all(math.isnan(loss) for loss in losses.values())


# -- collecting ---------------------------------------------------------------------------------------------
def test_a_rollout_continues_where_the_last_one_ended() -> None:
    ppo, envs = make(probe(Countdown), SMALL)
    observation, rollout, seen = envs.reset(), ppo.rollout(envs), []
    for _ in range(2):
        observation = ppo.collect(envs, observation, rollout)
        seen += rollout.observation[:-1, 0, 0].tolist()
    assert seen == [t % (Countdown.STEPS + 1) for t in range(2 * SMALL.n_steps)]
    assert observation[0, 0] == 2 * SMALL.n_steps % (Countdown.STEPS + 1)


def test_transitions_are_rows_of_one_episode() -> None:
    ppo, envs = make(probe(Countdown), SMALL)
    rollout = ppo.rollout(envs)
    ppo.collect(envs, envs.reset(), rollout)
    transitions = rollout.transitions
    assert len(transitions) == SMALL.n_steps * SMALL.n_envs
    real = transitions[rollout.valid.reshape(-1)]
    assert np.array_equal(real.next_observation, real.observation + 1)
    assert np.array_equal(real.terminated, real.next_observation[:, 0] == Countdown.STEPS)
    assert (real.reward == 1).all()
    marked = copy.deepcopy(rollout)
    marked.extrinsic[:] = np.arange(SMALL.n_steps)[:, None] * 100 + np.arange(SMALL.n_envs)
    assert marked.transitions.reward[3 * SMALL.n_envs + 5] == 305


@pytest.mark.parametrize("kind", [RewardByBoth, Targets])
@KINDS
def test_a_rollout_holds_the_networks_inputs_and_outputs(kind: type[Probe], learner: type[PPO]) -> None:
    ppo, envs = make(probe(kind), SMALL, kind=learner)
    rollout = ppo.rollout(envs)
    ppo.collect(envs, envs.reset(), rollout)
    for t in range(SMALL.n_steps + 1):
        assert np.array_equal(rollout.features[t], envs.adapter.features(rollout.observation[t]))
        np.testing.assert_allclose(rollout.value[t], ppo.policy.evaluate(rollout.features[t]), atol=1e-6)
    for t in range(SMALL.n_steps):
        log_prob, _, _ = ppo.policy(torch.from_numpy(rollout.features[t]), torch.from_numpy(rollout.action[t]))
        np.testing.assert_allclose(rollout.log_prob[t], log_prob.detach().numpy(), atol=1e-5)
    assert np.array_equal(rollout.reward, rollout.extrinsic)


# -- learning -----------------------------------------------------------------------------------------------
def slow_learn(ppo: PPO, rollout: OnPolicyRollout) -> dict[str, float]:
    """Learn as `PPO.learn` says it does, written with torch.distributions, one sample at a time where it can be."""
    p, network = ppo.params, ppo.policy
    estimates = slow_gae(
        rollout.reward, rollout.value, rollout.terminated, rollout.truncated, rollout.valid, p.gamma, p.gae_lambda
    )
    places = sorted(estimates)  # (t, n) in order of rows
    optimizer = torch.optim.Adam(network.parameters(), lr=p.learning_rate, eps=1e-5)
    seen: dict[str, list[float]] = {name: [] for name in ("policy", "value", "entropy", "approx_kl", "clip_fraction")}
    n_batches = min(max(1, round(rollout.valid.size / p.batch_size)), len(places))
    for _ in range(p.n_epochs):
        for batch in np.array_split(ppo.rng.permutation(len(places)), n_batches):
            rows = [places[i] for i in batch]
            features = torch.stack([torch.from_numpy(rollout.features[place]) for place in rows])
            output, value = network.actor(features), network.critic(features)[:, 0]
            action = torch.from_numpy(np.stack([rollout.action[place] for place in rows]))
            policy: torch.distributions.Distribution = (
                torch.distributions.Categorical(logits=output)
                if network.log_std is None
                else torch.distributions.Independent(torch.distributions.Normal(output, network.log_std.exp()), 1)
            )
            advantage = torch.tensor([estimates[place] for place in rows])
            target = advantage + torch.tensor([float(rollout.value[place]) for place in rows])
            advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + p.advantage_epsilon)
            ratio = (policy.log_prob(action) - torch.tensor([float(rollout.log_prob[place]) for place in rows])).exp()
            gains = []
            for r, a in zip(ratio, advantage, strict=True):
                beyond = r > 1 + p.clip_range if a > 0 else r < 1 - p.clip_range
                gains.append((1 + p.clip_range if a > 0 else 1 - p.clip_range) * a if beyond else r * a)
            policy_loss = -torch.stack(gains).mean()
            value_loss = 0.5 * nn.functional.mse_loss(value, target)
            entropy = policy.entropy().mean()
            optimizer.zero_grad()
            (policy_loss + p.value_coef * value_loss - p.entropy_coef * entropy).backward()
            norm = torch.sqrt(sum((w.grad.square().sum() for w in network.parameters()), torch.zeros(())))
            for w in network.parameters():
                w.grad *= min(1.0, p.max_grad_norm / float(norm))
            optimizer.step()
            ratio = ratio.detach()
            means = (
                policy_loss,
                value_loss,
                entropy,
                (ratio - 1 - ratio.log()).mean(),
                ((ratio < 1 - p.clip_range) | (ratio > 1 + p.clip_range)).float().mean(),
            )
            for name, mean in zip(seen, means, strict=True):
                seen[name].append(float(mean.detach()))
    advantages = np.array([estimates[place] for place in places])
    returns = advantages + np.array([float(rollout.value[place]) for place in places])
    explained = 1 - advantages.var() / returns.var()
    return {name: float(np.mean(means)) for name, means in seen.items()} | {"explained_variance": explained}


@pytest.mark.parametrize("kind", [Countdown, RewardByBoth, Steady, Targets])
@pytest.mark.parametrize(("max_grad_norm", "advantage_epsilon"), [(0.05, 1e-8), (100.0, 1e-8), (100.0, 0.5)])
@KINDS
def test_learning_agrees_with_the_formulas(
    kind: type[Probe], max_grad_norm: float, advantage_epsilon: float, learner: type[PPO]
) -> None:
    changes = {"entropy_coef": 0.1, "max_grad_norm": max_grad_norm, "advantage_epsilon": advantage_epsilon}
    params = SMALL.model_copy(update={"n_epochs": 2, **changes})
    ppo, envs = make(probe(kind, limit=7), params, kind=learner)
    rollout = ppo.rollout(envs)
    ppo.collect(envs, envs.reset(), rollout)
    rng = np.random.default_rng(0)
    rollout.log_prob += rng.normal(0, 0.3, rollout.log_prob.shape).astype(np.float32)  # as of an older policy
    rollout.reward[rollout.valid] += rng.normal(0, 1, rollout.valid.sum())
    reference, kept = copy.deepcopy(ppo), copy.deepcopy(rollout)

    losses, expected = ppo.learn(rollout), slow_learn(reference, kept)

    for name, mean in expected.items():
        assert losses[name] == pytest.approx(mean, abs=1e-4), name
    assert losses["clip_fraction"] > 0.1, "the clipping must have been put to the test"
    for name, weight in weights(ppo).items():
        torch.testing.assert_close(weight, weights(reference)[name], atol=1e-4, rtol=0)
    for field in fields(OnPolicyRollout):  # left as it was
        assert np.array_equal(getattr(rollout, field.name), getattr(kept, field.name)), field.name


@pytest.mark.parametrize("anneal", [True, False])
@KINDS
def test_an_annealed_learning_rate_falls_to_zero(anneal: bool, learner: type[PPO]) -> None:
    ppo, envs = make(probe(RewardByAction), SMALL.model_copy(update={"anneal": anneal}), kind=learner)
    rollout = ppo.rollout(envs)
    ppo.collect(envs, envs.reset(), rollout)
    ppo.schedule(1.0)
    before = weights(ppo)
    ppo.learn(rollout)
    assert same(weights(ppo), before) is anneal


def test_explained_variance_is_nan_if_returns_are_equal() -> None:
    ppo, envs = make(probe(OneStep), SMALL.model_copy(update={"gae_lambda": 1.0}))
    rollout = ppo.rollout(envs)
    ppo.collect(envs, envs.reset(), rollout)
    rollout.value[:] = 0
    assert math.isnan(ppo.learn(rollout)["explained_variance"])


@pytest.mark.parametrize("kind", [RewardByBoth, Targets])
def test_same_seed_same_weights(kind: type[Probe]) -> None:
    first, second, other = (weights(learned(probe(kind), SMALL, 5, seed)) for seed in (3, 3, 4))
    assert same(first, second)
    assert not same(first, other)
