"""A2C: its update against the formula."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from learning import GAMMA, collected, probe, same, weights
from probe_environments import (
    Countdown,
    Probe,
    RewardByBoth,
    Steady,
    Targets,
)

from laurel.params.algorithms import A2CParams

SMALL = A2CParams(n_envs=8, n_steps=8, learning_rate=2e-2, gamma=GAMMA, entropy_coef=0.0, hidden=(16,))


def slow_returns(rollout: Any, value: Any, gamma: float, lam: float) -> dict[tuple[int, int], float]:
    """Return the λ-return of each step as the weighted mean of all its n-step returns (Sutton & Barto, 12.3)."""
    n_steps, n_envs = rollout.valid.shape
    found = {}
    for n in range(n_envs):
        for t in range(n_steps):
            if not rollout.valid[t, n]:
                continue
            total, discount, weight, result, step = 0.0, 1.0, 1.0, 0.0, t
            while True:
                total += discount * float(rollout.reward[step, n])
                discount *= gamma
                after = 0.0 if rollout.terminated[step, n] else float(value[step + 1, n])
                last = rollout.terminated[step, n] or rollout.truncated[step, n] or step + 1 == n_steps
                share = weight if last else weight * (1 - lam)
                result += share * (total + discount * after)
                if last:
                    break
                weight, step = weight * lam, step + 1
            found[t, n] = result
    return found


@pytest.mark.parametrize("kind", [Countdown, RewardByBoth, Steady, Targets])
@pytest.mark.parametrize(("lam", "norm"), [(1.0, 100.0), (0.7, 0.05)])
def test_an_update_agrees_with_the_formula(kind: type[Probe], lam: float, norm: float) -> None:
    params = SMALL.model_copy(update={"gae_lambda": lam, "max_grad_norm": norm, "entropy_coef": 0.1})
    learner, rollout, _ = collected(probe(kind, limit=5), params)
    rng = np.random.default_rng(0)
    rollout.reward[rollout.valid] += rng.normal(0, 1, rollout.valid.sum())
    other = copy.deepcopy(learner)
    policy = other.policy
    features = learner.features(rollout.observation)
    value = np.stack([policy.evaluate(row) for row in features])
    returns = slow_returns(rollout, value, GAMMA, lam)
    loss = torch.zeros(())
    for (t, n), g in returns.items():
        x = torch.from_numpy(features[t, n])
        output, v = policy.actor(x), policy.critic(x)[0]
        action = torch.as_tensor(rollout.action[t, n])
        if policy.log_std is None:
            chances: Any = torch.distributions.Categorical(logits=output)
        else:
            chances = torch.distributions.Independent(torch.distributions.Normal(output, policy.log_std.exp()), 1)
        gain = chances.log_prob(action) * (g - float(v.detach())) + params.entropy_coef * chances.entropy()
        loss = loss - gain + params.value_coef * 0.5 * (v - g) ** 2
    optimizer = torch.optim.Adam(policy.parameters(), lr=params.learning_rate, eps=1e-5)
    (loss / len(returns)).backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), norm)
    optimizer.step()
    losses = learner.learn(rollout)
    for name, weight in weights(learner).items():
        torch.testing.assert_close(weight, weights(other)[name], atol=2e-4, rtol=0, msg=name)
    assert losses["value"] == pytest.approx(
        np.mean([0.5 * (value[place] - g) ** 2 for place, g in returns.items()]), rel=1e-4
    )


@pytest.mark.parametrize("anneal", [True, False])
def test_an_annealed_learning_rate_falls_to_zero(anneal: bool) -> None:
    learner, rollout, _ = collected(probe(Steady), SMALL.model_copy(update={"anneal": anneal}))
    learner.schedule(1.0)
    before = weights(learner)
    learner.learn(rollout)
    assert same(weights(learner), before) is anneal
