"""REINFORCE: returns and the gradient by hand, and what is remembered of episodes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learning import GAMMA, collected, make, probe, same, weights
from probe_environments import (
    Countdown,
    Probe,
    RewardByBoth,
    Steady,
    Targets,
)

from laurel.agents.reinforce import discounted
from laurel.params.algorithms import ReinforceParams

SMALL = ReinforceParams(n_envs=8, n_steps=8, learning_rate=2e-2, gamma=GAMMA, entropy_coef=0.0, hidden=(16,))


def slow_discounted(reward: list[float], after: float, gamma: float, t: int) -> float:
    """Sum up what comes from a step on, each with its power of gamma."""
    following = [*reward[t:], after]
    return sum(gamma**k * value for k, value in enumerate(following))


@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=20), st.floats(-3, 3), st.floats(0, 1))
def test_returns_agree_with_the_sum(reward: list[float], after: float, gamma: float) -> None:
    found = discounted(np.array(reward, dtype=np.float32), after=after, gamma=gamma)
    expected = [slow_discounted(reward, after, gamma, t) for t in range(len(reward))]
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("kind", [Countdown, RewardByBoth, Targets])
@pytest.mark.parametrize("norm", [100.0, 0.05])
def test_the_gradient_is_that_of_log_probabilities_times_what_they_led_to(kind: type[Probe], norm: float) -> None:
    """Over three rollouts, so that episodes begin in one and end in another; some are cut short."""
    params = SMALL.model_copy(update={"n_steps": 4, "max_grad_norm": norm, "entropy_coef": 0.1})
    learner, envs = make(probe(kind, limit=2), params)
    rng, observation, steps = np.random.default_rng(0), envs.reset(), []
    for _ in range(3):
        rollout = learner.rollout(envs)
        observation = learner.collect(envs, observation, rollout)
        rollout.reward[rollout.valid] += rng.normal(0, 1, rollout.valid.sum())
        before = copy.deepcopy(learner.policy)
        steps.append(rollout)
        learned = learner.learn(rollout)
    assert learned

    whole = {
        name: np.concatenate([getattr(part, name) for part in steps])
        for name in ("action", "reward", "valid", "terminated", "truncated")
    }
    seen = learner.features(np.concatenate([part.observation[:-1] for part in steps] + [observation[None]]))
    losses = []
    for n in range(params.n_envs):
        for end in np.flatnonzero(whole["terminated"][:, n] | whole["truncated"][:, n]):
            if end < 2 * params.n_steps:
                continue  # it was learned from before
            start = end
            while start > 0 and whole["valid"][start - 1, n] and not whole["terminated"][start - 1, n]:
                if whole["truncated"][start - 1, n]:
                    break
                start -= 1
            start += not whole["valid"][start, n]
            after = 0.0 if whole["terminated"][end, n] else float(before.evaluate(seen[end + 1, n][None])[0])
            reward = whole["reward"][start : end + 1, n].tolist()
            for t in range(start, end + 1):
                g = slow_discounted(reward, after, GAMMA, t - start)
                x = torch.from_numpy(seen[t, n])
                output, b = before.actor(x), before.critic(x)[0]
                if before.log_std is None:
                    chances: Any = torch.distributions.Categorical(logits=output)
                else:
                    normal = torch.distributions.Normal(output, before.log_std.exp())
                    chances = torch.distributions.Independent(normal, 1)
                log_prob = chances.log_prob(torch.as_tensor(whole["action"][t, n]))
                gain = log_prob * (g - float(b.detach())) + params.entropy_coef * chances.entropy()
                losses.append(-gain + params.value_coef * 0.5 * (b - g) ** 2)
    assert losses
    torch.stack(losses).mean().backward()
    torch.nn.utils.clip_grad_norm_(before.parameters(), norm)
    for (name, ours), theirs in zip(learner.policy.named_parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-3, msg=name)


def test_without_a_finished_episode_there_is_no_update() -> None:
    learner, rollout, _ = collected(probe(Steady), SMALL)
    before = weights(learner)
    assert learner.learn(rollout) == {}
    assert same(weights(learner), before)


def test_remembered_episodes_are_copies_of_the_rollout() -> None:
    """A rollout's arrays are filled again; what is remembered of an episode is not."""
    learner, rollout, envs = collected(probe(Steady), SMALL)
    rollout.reward[:] = 7.0
    learner.learn(rollout)
    learner.collect(envs, rollout.observation[-1].copy(), rollout)
    rollout.truncated[-1] = True
    episodes = learner._take_in(rollout)
    assert [episode.reward.tolist() for episode in episodes] == [[7.0] * 8 + [1.0] * 8] * SMALL.n_envs
