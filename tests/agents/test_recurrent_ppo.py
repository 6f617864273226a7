"""PPO that remembers: what cannot be solved otherwise, its update against the formulas, memories and where they end."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from learning import GAMMA, SEEDS, collected, learned, mean_return, poisoned, probe, same, weights
from probe_environments import Countdown, OneStep, Probe, Recall, RewardAtEnd, RewardByBoth, Steady, Targets

from laurel.agents.actor import View
from laurel.agents.behaviour import Behaviour
from laurel.agents.checkpoint import load_policy, save_policy
from laurel.agents.recurrent import RecurrentActor, RecurrentActorCritic
from laurel.agents.recurrent_ppo import RecurrentPPO
from laurel.arrays import FloatArray
from laurel.envs import adapter_for
from laurel.envs.captioner import Captioner
from laurel.errors import ParamsError
from laurel.evaluation.episode import moments
from laurel.params import PolicyShare, parse_params
from laurel.params.algorithms import PPOParams

SMALL = PPOParams(
    n_envs=16,
    n_steps=10,
    n_epochs=4,
    batch_size=80,
    learning_rate=1e-2,
    gamma=GAMMA,
    entropy_coef=0.01,
    recurrent=True,
    hidden=(16, 16),
)


@SEEDS
def test_the_first_observation_is_remembered(seed: int) -> None:
    """As in evaluation; without memory the mean return is zero."""
    recall = probe(Recall)
    assert mean_return(learned(recall, SMALL, 60, seed), recall) > 0.95
    assert abs(mean_return(learned(recall, SMALL.model_copy(update={"recurrent": False}), 60, seed), recall)) < 0.3


class Seen(View):
    """A view of features alone."""

    def __init__(self, features: FloatArray) -> None:
        self.features = features


def first_values(learner: RecurrentPPO, n: int) -> list[float]:
    """Return the values of the observations 0, 1, 2, … seen in this order."""
    actor, rng = learner.policy.as_actor(), np.random.default_rng(0)
    actor.begin(np.array([True]))
    rows = np.eye(learner.policy.n_features, dtype=np.float32)[:n]
    return [float(actor.act(Seen(row[None]), rng).value[0]) for row in rows]


def test_truncation_bootstraps_and_termination_does_not() -> None:
    steady = learned(probe(Steady, limit=3), SMALL, 60)
    assert first_values(steady, 1) == pytest.approx([1 / (1 - GAMMA)], rel=0.05)
    expected = [1 + GAMMA + GAMMA**2, 1 + GAMMA, 1.0]
    assert first_values(learned(probe(Countdown), SMALL, 60), 3) == pytest.approx(expected, abs=0.1)
    assert first_values(learned(probe(RewardAtEnd), SMALL, 60), 2) == pytest.approx([GAMMA, 1.0], abs=0.05)


def test_a_gaussian_policy_finds_the_targets() -> None:
    policy = learned(probe(Targets), SMALL.model_copy(update={"entropy_coef": 0.0}), 60).policy
    assert policy.act(np.eye(2, dtype=np.float32), np.random.default_rng(0), greedy=True)[0][:, 0].tolist() == (
        pytest.approx([-0.5, 0.5], abs=0.1)
    )


# -- collecting and learning ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [Countdown, Recall])
def test_memory_continues_within_an_episode_and_is_reset_after_it(kind: type[Probe]) -> None:
    """Over two rollouts, seen by a policy that is asked from each episode's first observation on."""
    learner, rollout, envs = collected(probe(kind, limit=7), SMALL)
    rollouts = [copy.deepcopy(rollout)]
    learner.collect(envs, rollout.observation[-1].copy(), rollout)
    rollouts.append(rollout)
    begins_anew = True
    for n in range(2):
        memory = learner.policy.initial_memory(1)
        for part in rollouts:
            if begins_anew:
                memory = learner.policy.initial_memory(1)
            np.testing.assert_allclose(part.memory[n] * (not begins_anew), memory[0], atol=1e-6)
            for t in range(SMALL.n_steps):
                assert bool(part.begins[t, n]) == begins_anew
                if begins_anew:
                    memory = learner.policy.initial_memory(1)
                memory = learner.policy.remember(part.features[t, n][None], memory)
                value = learner.policy.heads.evaluate(memory)
                assert part.value[t, n] == pytest.approx(float(value[0]), abs=1e-5)
                log_prob = learner.policy.heads.log_prob(memory, part.action[t, n][None])
                assert part.log_prob[t, n] == pytest.approx(float(log_prob[0]), abs=1e-5)
                begins_anew = not part.valid[t, n]
        begins_anew = True


def test_memory_is_reset_where_environments_begin_anew() -> None:
    """Training recreates its environments now and then: the memory belongs to episodes that were dropped."""
    learner, rollout, envs = collected(probe(Steady, limit=100), SMALL)
    assert np.abs(learner.memory).sum() > 0
    learner.begin()
    learner.collect(envs, envs.reset(), rollout)
    first = learner.policy.heads.evaluate(
        learner.policy.remember(rollout.features[0], learner.policy.initial_memory(SMALL.n_envs))
    )
    assert rollout.begins[0].all()
    np.testing.assert_allclose(rollout.value[0], first, atol=1e-6)


@pytest.mark.parametrize("kind", [Recall, Steady, Targets])
def test_learning_agrees_with_the_formulas(kind: type[Probe]) -> None:
    """One sequence, one step at a time, with torch's own distributions; episodes continue from the previous rollout."""
    params = SMALL.model_copy(update={"n_epochs": 2, "entropy_coef": 0.1, "max_grad_norm": 0.1, "gae_lambda": 0.8})
    learner, rollout, envs = collected(probe(kind, limit=5), params)
    learner.collect(envs, rollout.observation[-1].copy(), rollout)
    if kind is Steady:
        assert np.abs(rollout.memory[~rollout.begins[0]]).sum() > 0
    rng = np.random.default_rng(0)
    rollout.log_prob += rng.normal(0, 0.3, rollout.log_prob.shape).astype(np.float32)
    rollout.reward[rollout.valid] += rng.normal(0, 1, rollout.valid.sum())
    other, p = copy.deepcopy(learner), params
    network = other.policy
    n_steps, n_envs = rollout.valid.shape
    advantage = np.zeros((n_steps, n_envs))
    for n in range(n_envs):
        following = 0.0
        for t in reversed(range(n_steps)):
            ended = rollout.terminated[t, n] or rollout.truncated[t, n]
            after = 0.0 if rollout.terminated[t, n] else p.gamma * float(rollout.value[t + 1, n])
            delta = float(rollout.reward[t, n]) + after - float(rollout.value[t, n])
            following = delta + (0.0 if ended else p.gamma * p.gae_lambda * following)
            advantage[t, n] = following
    optimizer = torch.optim.Adam(network.parameters(), lr=p.learning_rate, eps=1e-5)
    for _ in range(p.n_epochs):
        for batch in np.array_split(other.rng.permutation(n_envs), round(n_steps * n_envs / p.batch_size)):
            parts: list[tuple[Any, ...]] = []
            for n in batch:
                memory = torch.from_numpy(rollout.memory[n][None])
                for t in range(n_steps):
                    if rollout.begins[t, n]:
                        memory = torch.zeros_like(memory)
                    x = torch.from_numpy(rollout.features[t, n][None])
                    memory = network.core(network.encoder(x), memory)
                    if not rollout.valid[t, n]:
                        continue
                    output, value = network.heads.actor(memory)[0], network.heads.critic(memory)[0, 0]
                    if network.heads.log_std is None:
                        chances: Any = torch.distributions.Categorical(logits=output)
                    else:
                        normal = torch.distributions.Normal(output, network.heads.log_std.exp())
                        chances = torch.distributions.Independent(normal, 1)
                    log_prob = chances.log_prob(torch.as_tensor(rollout.action[t, n]))
                    target = float(advantage[t, n] + rollout.value[t, n])
                    old = float(rollout.log_prob[t, n])
                    parts.append((log_prob - old, chances.entropy(), (value - target) ** 2, float(advantage[t, n])))
            log_ratio, entropy, error = (torch.stack([part[i] for part in parts]) for i in range(3))
            adv = torch.tensor([part[3] for part in parts])
            adv = (adv - adv.mean()) / adv.std(correction=0)
            ratio = log_ratio.exp()
            surrogate = torch.minimum(ratio * adv, ratio.clamp(1 - p.clip_range, 1 + p.clip_range) * adv)
            loss = -surrogate.mean() + p.value_coef * 0.5 * error.mean() - p.entropy_coef * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), p.max_grad_norm)
            optimizer.step()
    losses = learner.learn(rollout)
    assert losses["clip_fraction"] > 0.1
    returns = (advantage + rollout.value[:-1])[rollout.valid]
    explained = 1 - advantage[rollout.valid].var() / returns.var()
    assert losses["explained_variance"] == pytest.approx(explained, abs=1e-4)
    for name, weight in weights(learner).items():
        torch.testing.assert_close(weight, weights(other)[name], atol=2e-4, rtol=0, msg=name)


def test_figures_are_means_over_minibatches() -> None:
    found = []
    for size in (80, 160):
        params = SMALL.model_copy(update={"batch_size": size, "learning_rate": 1e-12})
        learner, rollout, _ = collected(probe(Steady, limit=100), params)
        assert rollout.valid.all()
        found.append(learner.learn(rollout))
    for name in ("value", "entropy"):
        assert found[0][name] == pytest.approx(found[1][name], rel=1e-4)


def test_resets_are_not_learned_from() -> None:
    learner, rollout, _ = collected(probe(OneStep), SMALL)
    other, nonsense = copy.deepcopy(learner), poisoned(rollout)
    nonsense.log_prob[~rollout.valid] = 9.0
    assert learner.learn(rollout) == other.learn(nonsense)
    assert same(weights(learner), weights(other))


# -- a policy with a memory, used elsewhere -------------------------------------------------------------------------
def saved(path: Path) -> RecurrentActorCritic:
    torch.manual_seed(0)
    network = RecurrentActorCritic(3, 2, continuous=False, hidden=(8,))
    for parameter in network.parameters():
        parameter.data *= 3
    save_policy(path, network)
    return network


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    network, features = saved(tmp_path), np.random.default_rng(0).random((4, 3), dtype=np.float32)
    loaded = load_policy(tmp_path)
    assert loaded.config() == network.config()
    for ours, theirs in zip(
        network.act(features, np.random.default_rng(1)), loaded.act(features, np.random.default_rng(1)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_a_recurrent_actor_remembers_until_an_episode_begins(tmp_path: Path) -> None:
    policy, rng = saved(tmp_path), np.random.default_rng(0)
    actor = policy.as_actor()
    actor.begin(np.array([True, True]))
    features = np.random.default_rng(0).random((5, 2, 3), dtype=np.float32)
    memory = policy.initial_memory(2)
    for t, row in enumerate(features):
        if t == 3:
            actor.begin(np.array([True, False]))
            memory[0] = 0
        memory = policy.remember(row, memory)
        action, log_prob, value = actor.act(Seen(row), rng)
        np.testing.assert_allclose(value, policy.heads.evaluate(memory), atol=1e-6)
        np.testing.assert_allclose(log_prob, policy.heads.log_prob(memory, action), atol=1e-6)
        np.testing.assert_allclose(actor.log_prob(Seen(row), 1 - action), np.log1p(-np.exp(log_prob)), atol=1e-4)


def test_a_shown_episode_begins_with_the_initial_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.evaluation.episode.view", lambda _: None)
    actor, adapter = saved(tmp_path).as_actor(), adapter_for(probe(Recall))
    assert isinstance(actor, RecurrentActor)
    reference, captioner = gym.make(probe(Recall).id), Captioner(adapter)
    remembered = []
    for seed in (0, 0):
        episode = moments(reference, adapter, actor, np.random.default_rng(0), captioner, 10, seed, None)
        next(episode)
        next(episode)
        remembered.append(actor.memory.copy())
        list(episode)
    np.testing.assert_array_equal(*remembered)


def test_collection_remembers_too(tmp_path: Path) -> None:
    network = saved(tmp_path)
    adapter = adapter_for(probe(Recall))
    for kind in ("checkpoint", "epsilon_random"):
        share = PolicyShare(kind=kind, epsilon=0.5, path=tmp_path)
        behaviour, memory = Behaviour([share], adapter, 2, 0), network.initial_memory(2)
        for t, begins in enumerate([[True, True], [False, False], [False, True], [False, False]]):
            observation = np.array([[t % 3], [(t + 1) % 3]])
            memory[begins] = 0
            memory = network.remember(adapter.features(observation), memory)
            action, log_prob, value = behaviour.act(observation, np.array(begins))
            chances = np.exp(network.heads.log_prob(memory, action))
            np.testing.assert_allclose(value, network.heads.evaluate(memory), atol=1e-6)
            expected = chances if kind == "checkpoint" else 0.25 + 0.5 * chances
            np.testing.assert_allclose(np.exp(log_prob), expected, rtol=1e-4)


def test_a_memory_needs_a_width() -> None:
    content = {
        "env": {"id": "CartPole-v1"},
        "collect": {"steps": 1},
        "arms": "full",
        "agent": {"seeds": [0], "steps": 1, "ppo": {"recurrent": True, "hidden": []}},
    }
    with pytest.raises(ParamsError, match=r"agent\.ppo is recurrent, so hidden must have at least one width"):
        parse_params(content, "my.yaml")


def test_plain_ppo_is_unchanged_in_a_task_without_hidden_state() -> None:
    learner = learned(probe(RewardByBoth), SMALL, 40)
    assert isinstance(learner, RecurrentPPO)
    assert isinstance(gym.make("CartPole-v1").action_space, gym.spaces.Discrete)
    assert mean_return(learner, probe(RewardByBoth)) > 0.95
